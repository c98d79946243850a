# Pages in the program: files of HTML, CSS and JavaScript as functions that return their text.

# zinc_embed(out_sources header namespace FUNCTION FILE [FUNCTION FILE...]): appends a generated source to
# `out_sources`. It defines each `std::string_view FUNCTION()`, which `header` declares in `namespace`, as the bytes of
# FILE. A changed file is embedded again by the next build.
function(zinc_embed out_sources header namespace)
  set(text "// Made by cmake/Embed.cmake.\n#include \"${header}\"\n\nnamespace ${namespace} {\n")
  set(pairs ${ARGN})
  while(pairs)
    list(POP_FRONT pairs function file)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${file}")
    file(READ "${PROJECT_SOURCE_DIR}/${file}" bytes)
    string(FIND "${bytes}" ")zinc_file\"" end_mark)
    if(NOT end_mark EQUAL -1)
      message(FATAL_ERROR "${file} has the mark that ends an embedded file: )zinc_file\"")
    endif()
    string(APPEND text "\n// ${file}\nstd::string_view ${function}() {\n  return R\"zinc_file(${bytes})zinc_file\";\n}\n")
  endwhile()
  string(APPEND text "\n}  // namespace ${namespace}\n")
  string(REGEX REPLACE "\\.h$" "_embedded.cpp" path "${header}")
  set(path "${PROJECT_BINARY_DIR}/embedded/${path}")
  file(CONFIGURE OUTPUT "${path}" CONTENT "@text@" @ONLY)
  set(${out_sources} ${${out_sources}} "${path}" PARENT_SCOPE)
endfunction()
