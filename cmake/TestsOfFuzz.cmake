# tests/fuzz: each <name>_fuzz.cpp defines LLVMFuzzerTestOneInput. It is always built with a driver that
# replays tests/fuzz/corpus/<name>/, and with ZINC_FUZZ=ON (preset fuzz, clang) as a libFuzzer program.

if(ZINC_FUZZ AND NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "ZINC_FUZZ=ON needs clang: use the preset fuzz (Debian packages clang-14 "
                      "libclang-rt-14-dev libomp-14-dev)")
endif()

file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/fuzz/*_fuzz.cpp")
file(GLOB replay_main CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/fuzz/replay_main.cpp")
add_custom_target(zinc_tests_fuzz)
add_dependencies(zinc_tests zinc_tests_fuzz)
foreach(source IN LISTS sources)
  get_filename_component(name "${source}" NAME_WE)
  string(REGEX REPLACE "_fuzz$" "" name "${name}")
  add_executable(zinc_replay_${name} "${source}" ${replay_main})
  target_link_libraries(zinc_replay_${name} PRIVATE zinc zinc_warnings)
  add_dependencies(zinc_tests_fuzz zinc_replay_${name})
  add_test(NAME "fuzz.replay_${name}" COMMAND zinc_replay_${name}
                                              "${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name}")
  set_tests_properties("fuzz.replay_${name}" PROPERTIES LABELS cpu TIMEOUT 300)
  if(ZINC_FUZZ)
    add_executable(zinc_fuzz_${name} "${source}")
    target_link_libraries(zinc_fuzz_${name} PRIVATE zinc zinc_warnings)
    target_link_options(zinc_fuzz_${name} PRIVATE -fsanitize=fuzzer)
    add_dependencies(zinc_tests_fuzz zinc_fuzz_${name})
  endif()
endforeach()
