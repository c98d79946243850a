# libaio. Target: zinc::aio. It has no version macro: the version is that of the file behind the link.
find_path(LibAio_INCLUDE_DIR NAMES libaio.h)
find_library(LibAio_LIBRARY NAMES aio)
mark_as_advanced(LibAio_INCLUDE_DIR LibAio_LIBRARY)
if(LibAio_LIBRARY)
  get_filename_component(LibAio_VERSION "${LibAio_LIBRARY}" REALPATH)
  string(REGEX REPLACE "^.*\\.so\\.?" "" LibAio_VERSION "${LibAio_VERSION}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  LibAio REQUIRED_VARS LibAio_LIBRARY LibAio_INCLUDE_DIR VERSION_VAR LibAio_VERSION)
if(LibAio_FOUND AND NOT TARGET zinc::aio)
  add_library(zinc::aio UNKNOWN IMPORTED)
  set_target_properties(
    zinc::aio PROPERTIES IMPORTED_LOCATION "${LibAio_LIBRARY}"
                         INTERFACE_INCLUDE_DIRECTORIES "${LibAio_INCLUDE_DIR}")
endif()
