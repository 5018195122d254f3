# Finds the CUDA runtime (header and library) and defines CUDA::cudart. Looked for in $CUDA_HOME, in the toolkit's usual
# place and in the nvidia-cuda-runtime wheel that comes with LibTorch. Not find_package(CUDAToolkit), which wants names of
# files that the wheel does not have.
file(GLOB _cuda_wheel "${LIBTORCH_ROOT}/../nvidia/cu13")
set(_cuda_places $ENV{CUDA_HOME} /usr/local/cuda ${_cuda_wheel})
find_path(CUDA_RUNTIME_INCLUDE_DIR cuda_runtime_api.h HINTS ${_cuda_places} PATH_SUFFIXES include)
find_library(CUDA_RUNTIME_LIBRARY NAMES cudart libcudart.so.13 HINTS ${_cuda_places} PATH_SUFFIXES lib64 lib)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CudaRuntime REQUIRED_VARS CUDA_RUNTIME_LIBRARY CUDA_RUNTIME_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "run scripts/install_dependencies.sh --cuda, or set CUDA_HOME")
if(CudaRuntime_FOUND AND NOT TARGET CUDA::cudart)
  add_library(CUDA::cudart UNKNOWN IMPORTED)
  set_target_properties(CUDA::cudart PROPERTIES IMPORTED_LOCATION ${CUDA_RUNTIME_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${CUDA_RUNTIME_INCLUDE_DIR})
endif()
