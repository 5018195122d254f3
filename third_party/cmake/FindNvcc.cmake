# Finds nvcc, the compiler for GPUs, and defines
#   automodel_nvcc(<variable> files.cu ...)   compiles CUDA C++ to objects, whose names go into the variable
# Looked for in $CUDA_HOME, in the toolkit's usual place and in the wheels that scripts/install_dependencies.sh --cuda
# installs. Not CMake's own CUDA language, whose trial programs want names of libraries that the wheels do not have.
find_program(CUDA_NVCC nvcc HINTS $ENV{CUDA_HOME} /usr/local/cuda ${LIBTORCH_ROOT}/../nvidia/cu13 PATH_SUFFIXES bin)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Nvcc REQUIRED_VARS CUDA_NVCC
  REASON_FAILURE_MESSAGE "run scripts/install_dependencies.sh --cuda, or set CUDA_HOME")
set(AUTOMODEL_CUDA_ARCHITECTURES 80 90 100 CACHE STRING "Compute capabilities that machine code is made for; the last also as PTX")

function(automodel_nvcc variable)
  set(architectures)
  foreach(capability IN LISTS AUTOMODEL_CUDA_ARCHITECTURES)
    list(APPEND architectures -gencode arch=compute_${capability},code=sm_${capability})
  endforeach()
  list(GET AUTOMODEL_CUDA_ARCHITECTURES -1 newest)
  list(APPEND architectures -gencode arch=compute_${newest},code=compute_${newest})
  set(objects)
  foreach(source IN LISTS ARGN)
    set(object ${PROJECT_BINARY_DIR}/nvcc/${source}.o)
    get_filename_component(folder ${object} DIRECTORY)
    file(MAKE_DIRECTORY ${folder})
    # What ptxas says of registers and spills is kept for scripts/kernel_registers.py.
    add_custom_command(OUTPUT ${object} DEPFILE ${object}.d DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${source}
      COMMAND sh -c "\"$@\" > ${object}.ptxas 2>&1 || { cat ${object}.ptxas; exit 1; }" nvcc
        ${CUDA_NVCC} -ccbin ${CMAKE_CXX_COMPILER} -std=c++20 -O3 --expt-relaxed-constexpr ${architectures}
        -Xcompiler=-fPIC,-Wall,-Wextra -Xptxas=-v -I${PROJECT_SOURCE_DIR}/lib -MD -MF ${object}.d
        -c ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${object}
      VERBATIM COMMENT "nvcc ${source}")
    list(APPEND objects ${object})
  endforeach()
  set(${variable} ${objects} PARENT_SCOPE)
endfunction()
