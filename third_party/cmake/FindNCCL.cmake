# Finds NCCL (header and library) and defines NCCL::NCCL. Looked for in $NCCL_HOME, $CUDA_HOME, the CUDA toolkit's usual
# place, the system's folders and in the nvidia-nccl wheel that scripts/install_dependencies.sh --cuda installs.
file(GLOB _nccl_wheel "${LIBTORCH_ROOT}/../nvidia/nccl")
find_path(NCCL_INCLUDE_DIR nccl.h HINTS $ENV{NCCL_HOME} $ENV{CUDA_HOME} /usr/local/cuda ${_nccl_wheel} PATH_SUFFIXES include)
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS $ENV{NCCL_HOME} $ENV{CUDA_HOME} /usr/local/cuda ${_nccl_wheel}
  PATH_SUFFIXES lib64 lib)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "run scripts/install_dependencies.sh --cuda, or set NCCL_HOME")
if(NCCL_FOUND AND NOT TARGET NCCL::NCCL)
  add_library(NCCL::NCCL UNKNOWN IMPORTED)
  set_target_properties(NCCL::NCCL PROPERTIES IMPORTED_LOCATION ${NCCL_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${NCCL_INCLUDE_DIR})
endif()
