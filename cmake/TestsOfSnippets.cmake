# Part of the build: the snippets of the pages compile. tests/consumer links the README's program with the
# installed package.
include(Snippets)
set(snippets "${PROJECT_BINARY_DIR}/snippets")
zinc_extract_snippets("${PROJECT_SOURCE_DIR}" "${snippets}" sources)
file(MAKE_DIRECTORY "${snippets}/include")
if(NOT IS_SYMLINK "${snippets}/include/zinc")  # of an older configuration: a folder
  file(REMOVE_RECURSE "${snippets}/include/zinc")
  file(CREATE_LINK "${PROJECT_SOURCE_DIR}" "${snippets}/include/zinc" SYMBOLIC)
endif()
add_library(zinc_snippets OBJECT ${sources})
target_link_libraries(zinc_snippets PRIVATE zinc)
target_include_directories(zinc_snippets PRIVATE "${snippets}/include")
target_compile_options(zinc_snippets PRIVATE -O0 -g0)
if(NOT ZINC_SANITIZE)
  add_dependencies(zinc_tests zinc_snippets)
endif()
