// CMake compiles common_headers.h only for a target with a file that uses it, and test_main.cpp does not.
