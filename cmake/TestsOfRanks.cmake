# tests/ranks: one program per file, run under mpirun once for every `_np<ranks>` in the file's name.

file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/ranks/*.cpp")
set(support ${sources})
list(FILTER support EXCLUDE REGEX "_test\\.cpp$")
list(FILTER sources INCLUDE REGEX "_test\\.cpp$")
if(NOT ZINC_HAVE_MPI)
  message(STATUS "zinc: tests/ranks is left out, because MPI is")
  set(sources "")
endif()
foreach(source IN LISTS sources)
  get_filename_component(stem "${source}" NAME_WE)
  string(REGEX REPLACE "_test$" "" stem "${stem}")
  string(REGEX MATCHALL "_np[0-9]+" sizes "${stem}")
  if(NOT sizes)
    message(FATAL_ERROR "${source}: its name must say how many ranks it runs on, as in "
                        "all_reduce_np2_test.cpp or all_reduce_np2_np3_test.cpp")
  endif()
  string(REGEX REPLACE "_np[0-9]+" "" name "${stem}")
  add_executable(zinc_ranks_${name} "${source}" ${support})
  target_link_libraries(zinc_ranks_${name} PRIVATE zinc MPI::MPI_CXX GTest::gmock_main fmt::fmt
                                                   zinc_warnings)
  add_dependencies(zinc_tests zinc_ranks_${name})
  set(labels ranks)
  set(timeout 300)
  if(name MATCHES "slow")
    set(labels ranks slow)
    set(timeout 1800)
  endif()
  foreach(size IN LISTS sizes)
    string(REGEX REPLACE "_np" "" ranks "${size}")
    set(test "ranks.${name}.np${ranks}")
    add_test(
      NAME "${test}"
      COMMAND "${MPIEXEC_EXECUTABLE}" --oversubscribe --bind-to none --tag-output -np ${ranks}
              $<TARGET_FILE:zinc_ranks_${name}>
      WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
    set_tests_properties(
      "${test}"
      PROPERTIES LABELS "${labels}"
                 TIMEOUT ${timeout}
                 PROCESSORS ${ranks}
                 ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"
                 # A program without a single test must not pass.
                 FAIL_REGULAR_EXPRESSION "Running 0 tests")
  endforeach()
endforeach()
