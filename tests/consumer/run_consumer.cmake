# cmake -DBUILD_DIR=... -DSOURCE_DIR=... -P run_consumer.cmake: installs the build into an empty prefix,
# then configures, builds and runs tests/consumer against it.
cmake_minimum_required(VERSION 3.25)
set(work "${BUILD_DIR}/consumer")
file(REMOVE_RECURSE "${work}")
set(steps
    "${CMAKE_COMMAND}|--install|${BUILD_DIR}|--prefix|${work}/prefix"
    "${CMAKE_COMMAND}|-S|${SOURCE_DIR}/tests/consumer|-B|${work}/build|-G|Ninja|-DCMAKE_PREFIX_PATH=${work}/prefix|-DZINC_SOURCE_DIR=${SOURCE_DIR}|-DCMAKE_BUILD_TYPE=Release|-DCMAKE_CXX_FLAGS=${FLAGS}|-DCMAKE_CXX_COMPILER=${COMPILER}"
    "${CMAKE_COMMAND}|--build|${work}/build"
    "${work}/build/consumer")
foreach(step IN LISTS steps)
  string(REPLACE "|" ";" command "${step}")
  execute_process(COMMAND ${command} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
