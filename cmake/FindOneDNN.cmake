# oneDNN without its own package config, which also asks for OpenCL. Target: zinc::onednn.
find_path(OneDNN_INCLUDE_DIR NAMES dnnl.hpp)
find_library(OneDNN_LIBRARY NAMES dnnl)
mark_as_advanced(OneDNN_INCLUDE_DIR OneDNN_LIBRARY)
foreach(header IN ITEMS dnnl_version.h oneapi/dnnl/dnnl_version.h)
  if(OneDNN_INCLUDE_DIR AND EXISTS "${OneDNN_INCLUDE_DIR}/${header}")
    file(STRINGS "${OneDNN_INCLUDE_DIR}/${header}" lines
         REGEX "#define DNNL_VERSION_(MAJOR|MINOR|PATCH) ")
    if(lines)
      string(REGEX REPLACE ".*MAJOR +([0-9]+).*MINOR +([0-9]+).*PATCH +([0-9]+).*" "\\1.\\2.\\3"
                           OneDNN_VERSION "${lines}")
    endif()
  endif()
endforeach()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  OneDNN REQUIRED_VARS OneDNN_LIBRARY OneDNN_INCLUDE_DIR VERSION_VAR OneDNN_VERSION)
if(OneDNN_FOUND AND NOT TARGET zinc::onednn)
  add_library(zinc::onednn UNKNOWN IMPORTED)
  set_target_properties(
    zinc::onednn PROPERTIES IMPORTED_LOCATION "${OneDNN_LIBRARY}"
                            INTERFACE_INCLUDE_DIRECTORIES "${OneDNN_INCLUDE_DIR}")
endif()
