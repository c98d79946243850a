# install(): the layer archives, headers under include/zinc, and a package config, so that
# find_package(zinc) gives zinc::zinc and one target per layer.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(config_folder "${CMAKE_INSTALL_LIBDIR}/cmake/zinc")

set(installed zinc)
foreach(layer IN LISTS ZINC_LAYERS)
  if(NOT layer STREQUAL "apps")
    list(APPEND installed zinc_${layer})
  endif()
endforeach()
install(
  TARGETS ${installed}
  EXPORT zincTargets
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(EXPORT zincTargets NAMESPACE zinc:: DESTINATION "${config_folder}")
if(TARGET zinc_command)
  install(TARGETS zinc_command RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()

set(header_layers ${ZINC_LAYERS})
list(REMOVE_ITEM header_layers apps)
string(REPLACE ";" "," header_layers "${header_layers}")
install(
  CODE "execute_process(
    COMMAND \"${CMAKE_COMMAND}\" \"-DSOURCE_DIR=${PROJECT_SOURCE_DIR}\" \"-DLAYERS=${header_layers}\"
      \"-DDESTINATION=\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_INCLUDEDIR}/zinc\"
      \"-DEXAMPLES=\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DOCDIR}/examples\"
      -P \"${CMAKE_CURRENT_LIST_DIR}/install_headers.cmake\"
    COMMAND_ERROR_IS_FATAL ANY)")

configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/zincConfig.cmake.in"
                              "${PROJECT_BINARY_DIR}/zincConfig.cmake" INSTALL_DESTINATION
                              "${config_folder}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/zincConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(
  FILES "${PROJECT_BINARY_DIR}/zincConfig.cmake" "${PROJECT_BINARY_DIR}/zincConfigVersion.cmake"
        "${CMAKE_CURRENT_LIST_DIR}/FindOneDNN.cmake" "${CMAKE_CURRENT_LIST_DIR}/FindLibAio.cmake"
        "${CMAKE_CURRENT_LIST_DIR}/FindPcre2.cmake"
        "${CMAKE_CURRENT_LIST_DIR}/FindUtf8proc.cmake"
        "${CMAKE_CURRENT_LIST_DIR}/FindSentencePiece.cmake"
  DESTINATION "${config_folder}")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/docs" "${PROJECT_SOURCE_DIR}/examples" DESTINATION "${CMAKE_INSTALL_DOCDIR}"
        PATTERN "*.cpp" EXCLUDE)
