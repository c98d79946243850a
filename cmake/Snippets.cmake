# The C++ snippets of README.md and docs/, as sources: what a reader copies has to compile.
#
# A block between ```cpp and ``` becomes <page>_<n>.cpp. Where it needs declarations that a reader can
# do without, they stand in a comment right before it:
#   <!-- before the snippet:
#   #include "core/view.h"
#   -->
# A page includes installed headers, as in <zinc/zinc.h>; in the build tree `zinc` is a link to the
# root of the tree.

function(zinc_extract_snippets source_dir folder sources)
  set(all "")
  file(GLOB pages "${source_dir}/README.md" "${source_dir}/*/README.md" "${source_dir}/docs/*.md")
  foreach(page IN LISTS pages)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${page}")
    file(RELATIVE_PATH name "${source_dir}" "${page}")
    string(REGEX REPLACE "\\.md$" "" name "${name}")
    string(REPLACE "/" "_" name "${name}")
    file(READ "${page}" text)
    set(number 0)
    while(TRUE)
      string(FIND "${text}" "```cpp\n" begin)
      if(begin EQUAL -1)
        break()
      endif()
      string(SUBSTRING "${text}" 0 ${begin} ahead)
      math(EXPR begin "${begin} + 7")
      string(SUBSTRING "${text}" ${begin} -1 text)
      string(FIND "${text}" "```" end)
      string(SUBSTRING "${text}" 0 ${end} code)
      math(EXPR end "${end} + 3")
      string(SUBSTRING "${text}" ${end} -1 text)
      set(before "")
      string(FIND "${ahead}" "<!-- before the snippet:" comment REVERSE)
      string(FIND "${ahead}" "-->" closed REVERSE)
      string(LENGTH "${ahead}" length)
      math(EXPR last "${length} - 12")  # the end of the comment is right before the block
      if(comment GREATER -1 AND closed GREATER last)
        math(EXPR comment "${comment} + 24")
        math(EXPR length "${closed} - ${comment}")
        string(SUBSTRING "${ahead}" ${comment} ${length} before)
      endif()
      math(EXPR number "${number} + 1")
      set(file "${folder}/${name}_${number}.cpp")
      file(CONFIGURE OUTPUT "${file}" CONTENT "@before@\n@code@" @ONLY)
      list(APPEND all "${file}")
    endwhile()
  endforeach()
  set(${sources} "${all}" PARENT_SCOPE)
endfunction()
