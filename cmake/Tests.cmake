# Tests, found by glob: one GoogleTest binary per folder tests/<folder>. File names decide labels and
# processes; the rules are in cmake/README.md, "Tests".

find_package(GTest CONFIG QUIET)
if(NOT TARGET GTest::gmock_main)
  message(FATAL_ERROR "ZINC_TESTS=ON needs GoogleTest: install the Debian packages "
                      "libgtest-dev and libgmock-dev")
endif()
include(GoogleTest)

add_custom_target(zinc_tests)

# One binary, its tests registered when ctest runs. Suites whose name contains "slow" or "Slow" get
# the label slow, the others `label`.
function(_zinc_add_gtest name label)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "SOURCES;LIBRARIES")
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES} GTest::gmock_main fmt::fmt zinc_warnings)
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_compile_options(${name} PRIVATE ${ZINC_OPTIMIZE_TESTS})
  zinc_unite(${name} ${arg_SOURCES})
  add_dependencies(zinc_tests ${name})
  set(slow "*Slow*.*:*slow*.*")
  # Names must be unique over all binaries: CTest sets the properties of a test by its name.
  string(REGEX REPLACE "^zinc_tests_" "" prefix "${name}")
  set(common TEST_PREFIX "${prefix}." WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}" NO_PRETTY_VALUES
             DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60)
  if(label STREQUAL "slow")
    gtest_discover_tests(${name} ${common} PROPERTIES LABELS slow TIMEOUT 1800)
  else()
    gtest_discover_tests(${name} ${common} TEST_FILTER "-${slow}"
                         PROPERTIES LABELS ${label} TIMEOUT 300)
    gtest_discover_tests(${name} ${common} TEST_FILTER "${slow}" PROPERTIES LABELS slow TIMEOUT
                                                                            1800)
  endif()
endfunction()

file(GLOB folders CONFIGURE_DEPENDS LIST_DIRECTORIES true "${PROJECT_SOURCE_DIR}/tests/*")
foreach(folder IN LISTS folders)
  get_filename_component(layer "${folder}" NAME)
  if(NOT IS_DIRECTORY "${folder}" OR layer MATCHES "^(ranks|fuzz|consumer|emulator)$")
    continue()
  endif()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${folder}/*.cpp")
  zinc_select_sources(sources ${sources})
  set(libraries zinc)
  if(layer IN_LIST ZINC_LAYERS OR (layer STREQUAL "bench" AND TARGET zinc_bench))
    set(libraries zinc_${layer})
  elseif(layer STREQUAL "structure")
    set(libraries "")
  endif()
  set(support ${sources})
  list(FILTER support EXCLUDE REGEX "_test\\.cpp$")
  foreach(suffix IN ITEMS "" _slow _cuda)
    set(tests ${sources})
    list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
    if(suffix STREQUAL "")
      list(FILTER tests EXCLUDE REGEX "(slow[a-z0-9_]*|_cuda)_test\\.cpp$")
      set(label cpu)
    elseif(suffix STREQUAL "_slow")
      list(FILTER tests INCLUDE REGEX "slow[a-z0-9_]*_test\\.cpp$")
      list(FILTER tests EXCLUDE REGEX "_cuda_test\\.cpp$")
      set(label slow)
    else()
      list(FILTER tests INCLUDE REGEX "_cuda_test\\.cpp$")
      set(label cuda)
      if(ZINC_CUDA STREQUAL "EMULATED")
        set(label emulated)
      endif()
      if(NOT ZINC_HAVE_CUDA)
        set(tests "")
      endif()
    endif()
    if(tests)
      _zinc_add_gtest(zinc_tests_${layer}${suffix} ${label} SOURCES ${tests} ${support} LIBRARIES
                      ${libraries})
      if(ZINC_CUDA STREQUAL "EMULATED")
        target_compile_definitions(zinc_tests_${layer}${suffix} PRIVATE ZINC_CUDA_EMULATED)
      endif()
    endif()
  endforeach()
endforeach()

if(TARGET zinc_tests_structure)
  target_compile_definitions(zinc_tests_structure
                             PRIVATE "ZINC_SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\"")
endif()
if(TARGET zinc_tests_zero)
  target_sources(zinc_tests_zero PRIVATE "${PROJECT_SOURCE_DIR}/tests/offload/faulty_queue.cpp")
endif()
if(TARGET zinc_tests_comm AND ZINC_HAVE_MPI)
  target_link_libraries(zinc_tests_comm PRIVATE MPI::MPI_CXX)  # comm/mpi's own headers
endif()
if(TARGET zinc_tests_apps)
  # They run the command itself, alone and under mpirun, in folders made as those of train's tests.
  target_sources(zinc_tests_apps PRIVATE "${PROJECT_SOURCE_DIR}/tests/train/scratch_folder.cpp")
  set(mpirun "")
  if(ZINC_HAVE_MPI)
    set(mpirun "${MPIEXEC_EXECUTABLE}")
  endif()
  target_compile_definitions(zinc_tests_apps PRIVATE "ZINC_COMMAND=\"$<TARGET_FILE:zinc_command>\""
                                                     "ZINC_MPIRUN=\"${mpirun}\"")
  add_dependencies(zinc_tests_apps zinc_command)
endif()
include(TestsOfEmulator)
include(TestsOfHeaders)
include(TestsOfSnippets)
include(TestsOfRanks)
include(TestsOfFuzz)

if(ZINC_INSTALL)
  set(flags "")
  if(ZINC_SANITIZE)
    set(flags "-fsanitize=${ZINC_SANITIZE}")
  endif()
  add_test(
    NAME consumer.installed_package
    COMMAND
      "${CMAKE_COMMAND}" "-DBUILD_DIR=${PROJECT_BINARY_DIR}" "-DSOURCE_DIR=${PROJECT_SOURCE_DIR}"
      "-DFLAGS=${flags}" "-DCOMPILER=${CMAKE_CXX_COMPILER}" -P
      "${PROJECT_SOURCE_DIR}/tests/consumer/run_consumer.cmake")
  set_tests_properties(consumer.installed_package PROPERTIES LABELS slow TIMEOUT 600)
endif()

add_test(NAME structure.source_selection
         COMMAND "${CMAKE_COMMAND}" -P
                 "${PROJECT_SOURCE_DIR}/tests/structure/source_selection_test.cmake")
add_test(NAME structure.run_script COMMAND sh
                                           "${PROJECT_SOURCE_DIR}/tests/structure/run_script_test.sh")
add_test(NAME structure.gpu_check
         COMMAND sh "${PROJECT_SOURCE_DIR}/tests/structure/gpu_check_test.sh" "${PROJECT_SOURCE_DIR}")
add_test(NAME structure.kernel_resources
         COMMAND sh "${PROJECT_SOURCE_DIR}/tests/structure/kernel_resources_test.sh"
                 "${PROJECT_SOURCE_DIR}")
set_tests_properties(structure.source_selection structure.run_script structure.gpu_check
                     structure.kernel_resources PROPERTIES LABELS cpu TIMEOUT 120)
