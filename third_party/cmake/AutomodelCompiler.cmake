# Compiler settings shared by every target: C++20, warnings as errors in our own code, sanitizers, ccache when it is there.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")

# Paths relative to the checkout, so that build folders side by side share what they compile alike. Looked for once for each
# build folder: a compiler cache that is installed later (scripts/test.sh does, after scripts/quickstart.sh has built) would
# change every command, and everything would be compiled again.
if(NOT DEFINED CCACHE_PROGRAM)
  find_program(CCACHE_PROGRAM ccache)
endif()
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
    CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})  # as its manual asks for precompiled headers
endif()

# Programs name files (in failed checks) as the checkout does, wherever that is: the same sources give the same programs.
add_compile_options($<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:C,CXX>>:-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=>)

add_library(automodel_warnings INTERFACE)
target_compile_options(automodel_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wconversion -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wswitch-enum>
  # Errors only with the compiler that this is developed with; g++ 12 is wrong about std::optional.
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized -Werror>)

# g++ collects its garbage from 1 GB on, not from 128 MB: a large source takes a tenth less time and a quarter more memory.
add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=1048576>)

# Every x86-64 rounds products before it adds them (kernels for one instruction set apart); where the base instructions have
# fused multiply-adds, compilers would use them, and plans and searched schedules would be others in the last digit.
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  add_compile_options(-ffp-contract=off)
endif()

# automodel_optimise_less(<target>): code that runs once in a run, or whose time is that of what it calls. Optimising it as
# the rest is would be a tenth of the whole build (docs/performance.md).
function(automodel_optimise_less target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

if(AUTOMODEL_SANITIZE)
  add_compile_options(-fsanitize=${AUTOMODEL_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${AUTOMODEL_SANITIZE})
endif()

# Every library counts its branches, so that the fuzzers see what an input reaches.
if(AUTOMODEL_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
  add_link_options(-fsanitize=fuzzer-no-link)
endif()
