# libutf8proc. Target: zinc::utf8proc.
find_path(Utf8proc_INCLUDE_DIR NAMES utf8proc.h)
find_library(Utf8proc_LIBRARY NAMES utf8proc)
mark_as_advanced(Utf8proc_INCLUDE_DIR Utf8proc_LIBRARY)
if(Utf8proc_INCLUDE_DIR)
  file(STRINGS "${Utf8proc_INCLUDE_DIR}/utf8proc.h" lines
       REGEX "#define UTF8PROC_VERSION_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE ".*MAJOR +([0-9]+).*MINOR +([0-9]+).*PATCH +([0-9]+).*" "\\1.\\2.\\3"
                       Utf8proc_VERSION "${lines}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  Utf8proc REQUIRED_VARS Utf8proc_LIBRARY Utf8proc_INCLUDE_DIR VERSION_VAR Utf8proc_VERSION)
if(Utf8proc_FOUND AND NOT TARGET zinc::utf8proc)
  add_library(zinc::utf8proc UNKNOWN IMPORTED)
  set_target_properties(
    zinc::utf8proc PROPERTIES IMPORTED_LOCATION "${Utf8proc_LIBRARY}"
                              INTERFACE_INCLUDE_DIRECTORIES "${Utf8proc_INCLUDE_DIR}")
endif()
