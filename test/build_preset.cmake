# Configures a preset in a folder of its own and builds some of its targets:
#   cmake -D SOURCE=... -D FOLDER=... -D PRESET=... -D TARGETS=a,b [-D OPTIONS=-DA=1,-DB=2] -P build_preset.cmake
string(REPLACE "," ";" TARGETS "${TARGETS}")
string(REPLACE "," ";" OPTIONS "${OPTIONS}")
execute_process(COMMAND ${CMAKE_COMMAND} --preset ${PRESET} -B ${FOLDER} ${OPTIONS} WORKING_DIRECTORY ${SOURCE} OUTPUT_QUIET RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "preset ${PRESET} cannot be configured")
endif()
execute_process(COMMAND ${CMAKE_COMMAND} --build ${FOLDER} -j 2 --target ${TARGETS} RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "preset ${PRESET} does not build")
endif()
