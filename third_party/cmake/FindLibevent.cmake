# Finds libevent with its HTTP server and defines Libevent::extra. The archives, where they are installed: every command
# would otherwise load two more shared objects for the sake of one.
find_path(Libevent_INCLUDE_DIR event2/http.h)
foreach(part extra core)
  find_library(Libevent_${part}_LIBRARY NAMES libevent_${part}.a event_${part})
endforeach()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Libevent REQUIRED_VARS Libevent_extra_LIBRARY Libevent_core_LIBRARY Libevent_INCLUDE_DIR)
if(Libevent_FOUND AND NOT TARGET Libevent::extra)
  add_library(Libevent::extra UNKNOWN IMPORTED)
  set_target_properties(Libevent::extra PROPERTIES IMPORTED_LOCATION ${Libevent_extra_LIBRARY}
    INTERFACE_LINK_LIBRARIES ${Libevent_core_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${Libevent_INCLUDE_DIR})
endif()
