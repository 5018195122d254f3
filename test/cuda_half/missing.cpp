// A library that the linker finds and the loader does not.
extern "C" void automodel_missing_library() {}
