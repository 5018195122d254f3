# Cross-compiles for 64-bit Arm (Linux) on Debian: a compiler, and what `scripts/install_dependencies.sh --arm` unpacks.
# Preset `aarch64`; built programs run on this machine with
#
#   qemu-aarch64-static -L ~/.cache/automodel/aarch64/sysroot build/aarch64/bin/automodel ...
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

if(DEFINED ENV{AUTOMODEL_DEPS_DIR})
  set(_arm "$ENV{AUTOMODEL_DEPS_DIR}/aarch64")
elseif(DEFINED ENV{XDG_CACHE_HOME})
  set(_arm "$ENV{XDG_CACHE_HOME}/automodel/aarch64")
else()
  set(_arm "$ENV{HOME}/.cache/automodel/aarch64")
endif()
set(CMAKE_SYSROOT "${_arm}/sysroot")
set(CMAKE_FIND_ROOT_PATH "${_arm}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_CROSSCOMPILING_EMULATOR "qemu-aarch64-static;-L;${CMAKE_SYSROOT}")

file(GLOB _torch "${_arm}/libtorch-*/torch")
file(GLOB _arrow "${_arm}/arrow-*/pyarrow")
set(LIBTORCH_ROOT "${_torch}" CACHE PATH "folder that holds LibTorch's include/ and lib/")
set(ARROW_ROOT "${_arrow}" CACHE PATH "folder that holds Arrow's include/ and libraries")

# The compiler wrapper and the packages that are found by themselves are this machine's.
set(ENV{PKG_CONFIG_LIBDIR} "${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig")
set(MPI_SKIP_COMPILER_WRAPPER ON)
set(MPI_C_LIB_NAMES mpi CACHE STRING "")
set(MPI_mpi_LIBRARY "${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/openmpi/lib/libmpi.so" CACHE FILEPATH "")
set(MPI_C_HEADER_DIR "${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/openmpi/include" CACHE PATH "")
