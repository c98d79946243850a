# The 8-bit library of PCRE2. Target: zinc::pcre2.
find_path(Pcre2_INCLUDE_DIR NAMES pcre2.h)
find_library(Pcre2_LIBRARY NAMES pcre2-8)
mark_as_advanced(Pcre2_INCLUDE_DIR Pcre2_LIBRARY)
if(Pcre2_INCLUDE_DIR)
  file(STRINGS "${Pcre2_INCLUDE_DIR}/pcre2.h" lines REGEX "#define PCRE2_(MAJOR|MINOR) ")
  string(REGEX REPLACE ".*MAJOR +([0-9]+).*MINOR +([0-9]+).*" "\\1.\\2" Pcre2_VERSION "${lines}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  Pcre2 REQUIRED_VARS Pcre2_LIBRARY Pcre2_INCLUDE_DIR VERSION_VAR Pcre2_VERSION)
if(Pcre2_FOUND AND NOT TARGET zinc::pcre2)
  add_library(zinc::pcre2 UNKNOWN IMPORTED)
  set_target_properties(
    zinc::pcre2 PROPERTIES IMPORTED_LOCATION "${Pcre2_LIBRARY}"
                           INTERFACE_INCLUDE_DIRECTORIES "${Pcre2_INCLUDE_DIR}")
endif()
