# Finds the LibTorch that ships in the PyPI wheel and defines
#   torch::cpu   ATen, autograd and c10 on the CPU; does not load libtorch_cuda
#   torch::cuda  torch::cpu plus the CUDA half of the wheel
#
# Looked for in LIBTORCH_ROOT (a folder with include/ and lib/), else in the folder that
# scripts/install_dependencies.sh fills, else in the torch package of the python3 on PATH.
#
# Not find_package(Torch): the wheel's TorchConfig.cmake stops with an error on a machine without the CUDA toolkit, and
# always links libtorch_cuda. The headers come after the system ones (-idirafter) because the wheel carries its own,
# newer <fmt/...>, which would shadow the fmt that spdlog was built with.
if(NOT LIBTORCH_ROOT)
  set(_cache "$ENV{AUTOMODEL_DEPS_DIR}")
  if(NOT _cache)
    set(_cache "$ENV{XDG_CACHE_HOME}")
    if(NOT _cache)
      set(_cache "$ENV{HOME}/.cache")
    endif()
    set(_cache "${_cache}/automodel")
  endif()
  set(_root "${_cache}/libtorch-${LibTorch_FIND_VERSION}/torch")
  file(GLOB _candidates "${_cache}/libtorch-${LibTorch_FIND_VERSION}*/torch")
  if(_candidates)
    list(GET _candidates 0 _root)
  else()
    execute_process(COMMAND python3 -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
                    OUTPUT_VARIABLE _root OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  set(LIBTORCH_ROOT "${_root}" CACHE PATH "folder that holds LibTorch's include/ and lib/" FORCE)
endif()
find_library(LIBTORCH_CPU torch_cpu HINTS ${LIBTORCH_ROOT}/lib NO_DEFAULT_PATH)
find_library(LIBTORCH_C10 c10 HINTS ${LIBTORCH_ROOT}/lib NO_DEFAULT_PATH)
find_library(LIBTORCH_OPENMP NAMES libgomp.so.1 gomp HINTS ${LIBTORCH_ROOT}/lib NO_DEFAULT_PATH)
find_library(LIBTORCH_CUDA torch_cuda HINTS ${LIBTORCH_ROOT}/lib NO_DEFAULT_PATH)
find_library(LIBTORCH_C10_CUDA c10_cuda HINTS ${LIBTORCH_ROOT}/lib NO_DEFAULT_PATH)
set(LibTorch_VERSION "")
if(EXISTS "${LIBTORCH_ROOT}/version.py")
  file(STRINGS ${LIBTORCH_ROOT}/version.py _version REGEX "^__version__")
  string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" LibTorch_VERSION "${_version}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch REQUIRED_VARS LIBTORCH_CPU LIBTORCH_C10 VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE "run scripts/install_dependencies.sh, or set LIBTORCH_ROOT")
if(LibTorch_FOUND AND NOT TARGET torch::cpu)
  add_library(torch::cpu INTERFACE IMPORTED)
  target_compile_options(torch::cpu INTERFACE
    "SHELL:-idirafter ${LIBTORCH_ROOT}/include" "SHELL:-idirafter ${LIBTORCH_ROOT}/include/torch/csrc/api/include")
  # Checks in its headers do not name the folder either.
  target_compile_options(torch::cpu INTERFACE
    $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-ffile-prefix-map=${LIBTORCH_ROOT}/include/=>)
  # Its Half is made from __fp16 on Arm, so every conversion to it narrows; builds for x86-64 have the warning.
  if(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
    target_compile_options(torch::cpu INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-float-conversion>)
  endif()
  # One header for each operator, instead of all operators with every tensor.
  target_compile_definitions(torch::cpu INTERFACE AT_PER_OPERATOR_HEADERS)
  # at::parallel_for is a template whose loop runs on one thread unless the including source is compiled with OpenMP. One
  # runtime for both: LibTorch's own libgomp.
  target_compile_options(torch::cpu INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fopenmp>)
  target_link_libraries(torch::cpu INTERFACE ${LIBTORCH_CPU} ${LIBTORCH_C10} $<IF:$<BOOL:${LIBTORCH_OPENMP}>,${LIBTORCH_OPENMP},gomp>)
  target_link_options(torch::cpu INTERFACE "LINKER:-rpath,${LIBTORCH_ROOT}/lib")
  if(LIBTORCH_CUDA)
    add_library(torch::cuda INTERFACE IMPORTED)
    # Nothing refers to libtorch_cuda by symbol: it registers itself when it is loaded. Its own neighbours (cuBLAS,
    # cuDNN, ...) are looked for at run time, so that the build needs no more than the toolkit.
    target_link_libraries(torch::cuda INTERFACE torch::cpu
      "-Wl,--no-as-needed" ${LIBTORCH_CUDA} ${LIBTORCH_C10_CUDA} "-Wl,--as-needed" "-Wl,--allow-shlib-undefined")
  endif()
endif()
