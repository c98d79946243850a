# docs.<page>: the commands of a page run as they stand there (tests/docs/run_page.sh). A page has such a test if it
# has a block that is marked to run.
if(NOT TARGET zinc_command OR ZINC_SANITIZE)
  return()
endif()
file(GLOB pages CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/README.md" "${PROJECT_SOURCE_DIR}/docs/*.md")
foreach(page IN LISTS pages)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${page}")
  file(STRINGS "${page}" marks REGEX "^<!-- runs -->$")
  file(STRINGS "${page}" installed REGEX "ZINC_PREFIX")  # such a page runs in tests/consumer
  if(NOT marks OR installed)
    continue()
  endif()
  get_filename_component(name "${page}" NAME_WE)
  add_test(NAME docs.${name}
           COMMAND "${PROJECT_SOURCE_DIR}/tests/docs/run_page.sh" "${page}" "$<TARGET_FILE:zinc_command>"
                   "${PROJECT_BINARY_DIR}/pages/${name}")
  set_tests_properties(docs.${name} PROPERTIES LABELS "cpu;docs" PROCESSORS 2 TIMEOUT 300 SKIP_RETURN_CODE 77)
endforeach()
add_test(NAME docs.options_exist
         COMMAND "${PROJECT_SOURCE_DIR}/tests/docs/options_exist.sh" "$<TARGET_FILE:zinc_command>"
         WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
add_test(NAME docs.wrong_pages_are_found COMMAND "${PROJECT_SOURCE_DIR}/tests/docs/docs_test.sh"
                                                 "$<TARGET_FILE:zinc_command>")
add_test(NAME docs.links_exist COMMAND "${PROJECT_SOURCE_DIR}/tests/docs/links_exist.sh"
         WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
set_tests_properties(docs.options_exist docs.wrong_pages_are_found docs.links_exist PROPERTIES LABELS "cpu;docs" TIMEOUT 120)
