# Writes the definitions behind core/build_info.h: what was found, at configure time; the revision, at
# every build, into a file of its own that is touched only when the revision changed.

set(ZINC_DEPENDENCY_ROWS "")
foreach(row IN LISTS ZINC_DEPENDENCY_TABLE)
  string(REPLACE "|" ";" fields "${row}")
  list(GET fields 0 name)
  list(GET fields 1 found)
  list(GET fields 2 version)
  list(GET fields 3 package)
  set(found_text false)
  if(found)
    set(found_text true)
  endif()
  string(APPEND ZINC_DEPENDENCY_ROWS
         "    {\"${name}\", ${found_text}, \"${version}\", \"${package}\"},\n")
endforeach()
string(TOUPPER "${CMAKE_BUILD_TYPE}" type)
set(ZINC_BUILD_FLAGS "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${type}}")
if(ZINC_SANITIZE)
  string(APPEND ZINC_BUILD_FLAGS " -fsanitize=${ZINC_SANITIZE}")
endif()
string(STRIP "${ZINC_BUILD_FLAGS}" ZINC_BUILD_FLAGS)
string(REPLACE "\"" "\\\"" ZINC_BUILD_FLAGS "${ZINC_BUILD_FLAGS}")
configure_file("${CMAKE_CURRENT_LIST_DIR}/build_info.cpp.in"
               "${PROJECT_BINARY_DIR}/generated/build_info.cpp" @ONLY)

find_program(ZINC_GIT git)
mark_as_advanced(ZINC_GIT)
set(git_revision_command
    "${CMAKE_COMMAND}" "-DGIT=${ZINC_GIT}" "-DSOURCE_DIR=${PROJECT_SOURCE_DIR}"
    "-DOUTPUT=${PROJECT_BINARY_DIR}/generated/git_revision.cpp" -P
    "${CMAKE_CURRENT_LIST_DIR}/git_revision.cmake")
add_custom_target(
  zinc_git_revision
  COMMAND ${git_revision_command}
  BYPRODUCTS "${PROJECT_BINARY_DIR}/generated/git_revision.cpp"
  COMMENT "Reading the git revision"
  VERBATIM)

set(ZINC_BUILD_INFO_SOURCES "${PROJECT_BINARY_DIR}/generated/build_info.cpp"
                            "${PROJECT_BINARY_DIR}/generated/git_revision.cpp")
# It changes with every commit, and would compile its neighbours again.
set_source_files_properties("${PROJECT_BINARY_DIR}/generated/git_revision.cpp"
                            PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
