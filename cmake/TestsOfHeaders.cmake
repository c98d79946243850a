# Every header compiles alone: one generated source per header, compiled without optimisation into
# objects that nobody links. Not for a layer's header X.h beside a source X.cpp, which includes it first
# (a rule that tests/structure holds) and is compiled anyway. A build that compiles several sources at
# a time sees nothing of this, and checks only the headers that some other build has no library for.

set(headers "")
foreach(layer IN LISTS ZINC_LAYERS ITEMS bench tests)
  file(GLOB_RECURSE found CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${layer}/*.h")
  list(APPEND headers ${found})
endforeach()
file(GLOB found CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/zinc.h")
list(APPEND headers ${found})
list(FILTER headers EXCLUDE REGEX "-inl\\.h$")  # Highway compiles those once per instruction set

set(sources "")
foreach(header IN LISTS headers)
  file(RELATIVE_PATH path "${PROJECT_SOURCE_DIR}" "${header}")
  string(REGEX REPLACE "\\.h$" ".cpp" path_as_source "${path}")
  zinc_dependency_of("${path_as_source}" need have)
  string(TOUPPER "${have}" upper)
  # Device code is compiled by nvcc or for the emulator, from the .cu files.
  if(path MATCHES "^(tests/emulator|tests/consumer|kernels/cuda)/" OR (need STREQUAL "ON" AND NOT ZINC_HAVE_${upper}))
    continue()
  endif()
  if(ZINC_UNITY AND NOT need STREQUAL "ON")
    continue()
  endif()
  if(NOT path MATCHES "^(tests|bench)/" AND NOT ZINC_UNITY AND EXISTS "${PROJECT_SOURCE_DIR}/${path_as_source}")
    continue()
  endif()
  set(source "${PROJECT_BINARY_DIR}/headers/${path}.cpp")
  # Twice: the second time must add nothing.
  file(CONFIGURE OUTPUT "${source}" CONTENT "#include \"${path}\"\n#include \"${path}\"\n" @ONLY)
  list(APPEND sources "${source}")
endforeach()

if(NOT sources)
  add_custom_target(zinc_headers)
  return()
endif()
add_library(zinc_headers OBJECT ${sources})
target_link_libraries(
  zinc_headers
  PRIVATE zinc_apps zinc fmt::fmt hwy::hwy RapidJSON::RapidJSON CLI11::CLI11 GTest::gmock
          zinc_warnings)
foreach(pair IN ITEMS ONEDNN=zinc::onednn MPI=MPI::MPI_CXX AIO=zinc::aio PCRE2=zinc::pcre2
        UTF8PROC=zinc::utf8proc SENTENCEPIECE=zinc::sentencepiece ZLIB=ZLIB::ZLIB)
  string(REPLACE "=" ";" pair "${pair}")
  list(GET pair 0 name)
  list(GET pair 1 target)
  if(ZINC_HAVE_${name})
    target_link_libraries(zinc_headers PRIVATE ${target})
  endif()
endforeach()
target_compile_options(zinc_headers PRIVATE -O0 -g0)
# The ordinary builds have seen the headers; under a sanitizer they would only cost time.
if(NOT ZINC_SANITIZE)
  add_dependencies(zinc_tests zinc_headers)
endif()
