# cmake -D FILE=... -D RPATH=... -P set_rpath.cmake: sets a program's RPATH.
file(RPATH_SET FILE "${FILE}" NEW_RPATH "${RPATH}")
