# cmake -D HEADERS=a,b -D COMPILER=... -D LIBTORCH=... -D OUTPUT=stamp.h -P stamp.cmake
# The program and its CUDA half are binary compatible if they were built with the same compiler, the same headers between
# them and the same LibTorch. The stamp is a hash of these.
string(REPLACE "," ";" HEADERS "${HEADERS}")
set(all "${COMPILER} ${LIBTORCH}")
foreach(header IN LISTS HEADERS)
  file(SHA256 "${header}" sum)
  string(APPEND all " ${sum}")
endforeach()
string(SHA256 stamp "${all}")
string(SUBSTRING "${stamp}" 0 16 stamp)
file(WRITE "${OUTPUT}" "// Written by stamp.cmake.
#pragma once

// Precedes the stamp in the file, so that the stamp can be read without loading the file.
#define AUTOMODEL_CUDA_PLUGIN_MARK \"automodel-cuda.so of build \"
#define AUTOMODEL_CUDA_HALF_STAMP \"${stamp}\"
")
