# libsentencepiece and its trainer. Target: zinc::sentencepiece.
find_path(SentencePiece_INCLUDE_DIR NAMES sentencepiece_processor.h)
find_library(SentencePiece_LIBRARY NAMES sentencepiece)
find_library(SentencePiece_TRAIN_LIBRARY NAMES sentencepiece_train)
mark_as_advanced(SentencePiece_INCLUDE_DIR SentencePiece_LIBRARY SentencePiece_TRAIN_LIBRARY)
# No header has its version: pkg-config knows it.
find_package(PkgConfig QUIET)
if(PKG_CONFIG_FOUND)
  pkg_check_modules(ZINC_PC_SENTENCEPIECE QUIET sentencepiece)
  set(SentencePiece_VERSION "${ZINC_PC_SENTENCEPIECE_VERSION}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  SentencePiece
  REQUIRED_VARS SentencePiece_LIBRARY SentencePiece_TRAIN_LIBRARY SentencePiece_INCLUDE_DIR
  VERSION_VAR SentencePiece_VERSION)
if(SentencePiece_FOUND AND NOT TARGET zinc::sentencepiece)
  add_library(zinc::sentencepiece UNKNOWN IMPORTED)
  set_target_properties(
    zinc::sentencepiece
    PROPERTIES IMPORTED_LOCATION "${SentencePiece_LIBRARY}"
               INTERFACE_LINK_LIBRARIES "${SentencePiece_TRAIN_LIBRARY}"
               INTERFACE_INCLUDE_DIRECTORIES "${SentencePiece_INCLUDE_DIR}")
endif()
