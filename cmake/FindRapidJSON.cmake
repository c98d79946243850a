# RapidJSON, headers only. Target: RapidJSON::RapidJSON. (Debian's own config defines no target.)
find_path(RapidJSON_INCLUDE_DIR NAMES rapidjson/rapidjson.h)
mark_as_advanced(RapidJSON_INCLUDE_DIR)
if(RapidJSON_INCLUDE_DIR)
  file(STRINGS "${RapidJSON_INCLUDE_DIR}/rapidjson/rapidjson.h" lines
       REGEX "#define RAPIDJSON_(MAJOR|MINOR|PATCH)_VERSION ")
  string(
    REGEX
    REPLACE ".*MAJOR_VERSION +([0-9]+).*MINOR_VERSION +([0-9]+).*PATCH_VERSION +([0-9]+).*"
            "\\1.\\2.\\3" RapidJSON_VERSION "${lines}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  RapidJSON REQUIRED_VARS RapidJSON_INCLUDE_DIR VERSION_VAR RapidJSON_VERSION)
if(RapidJSON_FOUND AND NOT TARGET RapidJSON::RapidJSON)
  add_library(RapidJSON::RapidJSON INTERFACE IMPORTED)
  set_target_properties(RapidJSON::RapidJSON PROPERTIES INTERFACE_INCLUDE_DIRECTORIES
                                                        "${RapidJSON_INCLUDE_DIR}")
endif()
