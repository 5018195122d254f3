# automodel_library(<name> SOURCES ... HEADERS ... DEPENDS ... PRIVATE_DEPENDS ...)
# One static library per folder of lib/, named automodel::<name>. DEPENDS is the whole list of folders that it may
# include; scripts/check_layers.py checks the #include lines against it.
function(automodel_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;HEADERS;DEPENDS;PRIVATE_DEPENDS")
  add_library(automodel_${name} STATIC ${arg_SOURCES})
  add_library(automodel::${name} ALIAS automodel_${name})
  target_sources(automodel_${name} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}/lib FILES ${arg_HEADERS})
  target_link_libraries(automodel_${name} PUBLIC ${arg_DEPENDS} PRIVATE ${arg_PRIVATE_DEPENDS} automodel_warnings)
endfunction()

# The programs of the tests that scripts/test.sh runs by default: those labelled core or quick.
function(automodel_quick_target name)
  if(NOT TARGET quick_tests)
    add_custom_target(quick_tests)
  endif()
  if("core" IN_LIST ARGN OR "quick" IN_LIST ARGN)
    add_dependencies(quick_tests ${name})
  endif()
endfunction()

# The tests' common headers, compiled with target `from`: test_main has them without LibTorch, rank_suite with it. Where
# another system's libraries give a test other options, the compiler says so and reads the headers themselves.
function(automodel_common_headers name from)
  target_link_libraries(${name} PRIVATE fmt::fmt nlohmann_json::nlohmann_json)
  target_compile_options(${name} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-error=invalid-pch>)
  target_precompile_headers(${name} REUSE_FROM ${from})
endfunction()

# automodel_test(<name> [OUTSIDE] SOURCES ... DEPENDS ... LABELS ...): one Catch2 program; every TEST_CASE is a ctest
# test. Those of the runtime link LibTorch, unless they only start programs (OUTSIDE). A test fails
# where its name selects no test case (CMake divides names at semicolons and joins them within brackets).
function(automodel_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "OUTSIDE" "" "SOURCES;DEPENDS;LABELS;PROPERTIES")
  add_executable(${name} ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)  # each file has helpers of its own, often of the same names
  target_link_libraries(${name} PRIVATE test_main golden_folder Catch2::Catch2 automodel_warnings ${arg_DEPENDS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/lib ${PROJECT_SOURCE_DIR}/test)
  if(arg_OUTSIDE OR "core" IN_LIST arg_LABELS)
    automodel_common_headers(${name} test_main)
  else()
    automodel_common_headers(${name} rank_suite)
  endif()
  automodel_quick_target(${name} ${arg_LABELS})
  catch_discover_tests(${name} TEST_PREFIX "${name}: " EXTRA_ARGS -w NoTests PROPERTIES LABELS "${arg_LABELS}"
    # Tests run beside each other: threads that spin while they wait take the cores from those that they wait for.
    ENVIRONMENT OMP_WAIT_POLICY=PASSIVE ${arg_PROPERTIES})
endfunction()
