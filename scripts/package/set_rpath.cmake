# cmake -D FILE=... -D RPATH=... -P set_rpath.cmake: replaces where a program looks for its libraries.
file(RPATH_SET FILE "${FILE}" NEW_RPATH "${RPATH}")
