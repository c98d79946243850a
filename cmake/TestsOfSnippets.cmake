# Part of the build: the snippets of the pages compile. tests/consumer links the README's program with the
# installed package.
include(Snippets)
set(snippets "${PROJECT_BINARY_DIR}/snippets")
zinc_extract_snippets("${PROJECT_SOURCE_DIR}" "${snippets}" sources)
file(WRITE "${snippets}/include/zinc/zinc.h.new" "#include \"${PROJECT_SOURCE_DIR}/zinc.h\"\n")
file(COPY_FILE "${snippets}/include/zinc/zinc.h.new" "${snippets}/include/zinc/zinc.h" ONLY_IF_DIFFERENT)
add_library(zinc_snippets OBJECT ${sources})
target_link_libraries(zinc_snippets PRIVATE zinc)
target_include_directories(zinc_snippets PRIVATE "${snippets}/include")
target_compile_options(zinc_snippets PRIVATE -O0 -g0)
if(NOT ZINC_SANITIZE)
  add_dependencies(zinc_tests zinc_snippets)
endif()
