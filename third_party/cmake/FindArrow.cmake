# Finds the Arrow and Parquet libraries that ship in the PyPI wheel of pyarrow and defines arrow::parquet.
#
# Looked for in ARROW_ROOT (the wheel's folder pyarrow, with include/ and libarrow.so.*), else in the folder that
# scripts/install_dependencies.sh fills. Nothing of Python is used. Optional: without it Parquet and Arrow files and
# compressed texts are refused with a hint.
if(NOT ARROW_ROOT)
  set(_cache "$ENV{AUTOMODEL_DEPS_DIR}")
  if(NOT _cache)
    set(_cache "$ENV{XDG_CACHE_HOME}")
    if(NOT _cache)
      set(_cache "$ENV{HOME}/.cache")
    endif()
    set(_cache "${_cache}/automodel")
  endif()
  file(GLOB _candidates "${_cache}/arrow-${Arrow_FIND_VERSION}*/pyarrow")
  if(_candidates)
    list(GET _candidates 0 _root)
    set(ARROW_ROOT "${_root}" CACHE PATH "folder pyarrow of the wheel" FORCE)
  endif()
endif()
# The wheel has no names without a version.
file(GLOB ARROW_LIBRARY "${ARROW_ROOT}/libarrow.so.*")
file(GLOB PARQUET_LIBRARY "${ARROW_ROOT}/libparquet.so.*")
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Arrow REQUIRED_VARS ARROW_LIBRARY PARQUET_LIBRARY
  REASON_FAILURE_MESSAGE "run scripts/install_dependencies.sh, or set ARROW_ROOT")
if(Arrow_FOUND AND NOT TARGET arrow::parquet)
  add_library(arrow::parquet INTERFACE IMPORTED)
  target_include_directories(arrow::parquet SYSTEM INTERFACE ${ARROW_ROOT}/include)
  target_link_libraries(arrow::parquet INTERFACE ${PARQUET_LIBRARY} ${ARROW_LIBRARY})
  target_link_options(arrow::parquet INTERFACE "LINKER:-rpath,${ARROW_ROOT}")
endif()
