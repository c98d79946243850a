# cmake -DBUILD_DIR=... -DSOURCE_DIR=... -P run_consumer.cmake: installs the build into an empty prefix,
# then configures, builds and runs tests/consumer against it.
cmake_minimum_required(VERSION 3.25)
set(work "${BUILD_DIR}/consumer")
file(REMOVE_RECURSE "${work}")
set(steps
    "${CMAKE_COMMAND}|--install|${BUILD_DIR}|--prefix|${work}/prefix"
    "${CMAKE_COMMAND}|-S|${SOURCE_DIR}/tests/consumer|-B|${work}/build|-G|Ninja|-DCMAKE_PREFIX_PATH=${work}/prefix|-DZINC_SOURCE_DIR=${SOURCE_DIR}|-DCMAKE_BUILD_TYPE=Release|-DCMAKE_CXX_FLAGS=${FLAGS}|-DCMAKE_CXX_COMPILER=${COMPILER}"
    "${CMAKE_COMMAND}|--build|${work}/build"
    "${work}/build/consumer"
    "${work}/build/own_model|${work}/weights"
    "${work}/build/classify|${SOURCE_DIR}/examples/classify.json|5|${work}/run")
foreach(step IN LISTS steps)
  string(REPLACE "|" ";" command "${step}")
  execute_process(COMMAND ${command} COMMAND_ERROR_IS_FATAL ANY)
endforeach()

# A page that goes from an empty folder to a trained model. Exit code 77: it needs mpirun, and there is none.
if(NOT FLAGS)
  set(ENV{ZINC_PREFIX} "${work}/prefix")
  execute_process(COMMAND "${SOURCE_DIR}/tests/docs/run_page.sh" "${SOURCE_DIR}/docs/first-model.md"
                          "${work}/prefix/bin/zinc" "${work}/page" RESULT_VARIABLE status)
  if(NOT status MATCHES "^(0|77)$")
    message(FATAL_ERROR "docs/first-model.md does not run as it stands: ${status}")
  endif()
endif()

# The README's model, behind the recipe whose files it reads.
file(MAKE_DIRECTORY "${work}/readme")
file(WRITE "${work}/readme/zero3.json" "{\"train_micro_batch_size_per_gpu\": 2, \"zero_optimization\": {\"stage\": 3}}")
string(REPEAT "In the beginning was a text. " 400 text)
file(WRITE "${work}/readme/text.txt" "${text}")
execute_process(COMMAND "${work}/build/readme" WORKING_DIRECTORY "${work}/readme" COMMAND_ERROR_IS_FATAL ANY)
if(NOT EXISTS "${work}/readme/own-run/final/model.safetensors")
  message(FATAL_ERROR "the README's model left no weights")
endif()

# Slips of a program are refused in a few lines that name them; the last one compiles.
set(says_OPERAND "NeitherTensorNorNumber")
set(says_COMPARED "NeitherTensorNorNumber")
set(says_OPTION "AttentionOptions")
set(says_LAYER "inn")
set(says_FUNCTION "sinh")
foreach(slip OPERAND COMPARED OPTION LAYER FUNCTION NONE)
  execute_process(
    COMMAND "${COMPILER}" -std=c++20 -fsyntax-only "-I${work}/prefix/include" -D${slip}
            "${SOURCE_DIR}/tests/consumer/refused.cpp"
    RESULT_VARIABLE status
    ERROR_VARIABLE text)
  string(REGEX MATCHALL "\n" lines "${text}")
  list(LENGTH lines count)
  if(slip STREQUAL "NONE")
    if(NOT status EQUAL 0)
      message(FATAL_ERROR "A program without a slip is refused:\n${text}")
    endif()
  elseif(status EQUAL 0 OR count GREATER 30 OR NOT text MATCHES "${says_${slip}}")
    message(FATAL_ERROR "${slip}: ${count} lines, ${says_${slip}} expected in them:\n${text}")
  endif()
endforeach()
