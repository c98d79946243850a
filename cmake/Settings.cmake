# Compiler settings every target shares: language level, optimisation, warnings, sanitizers, ccache.

option(ZINC_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(ZINC_BENCH "Build the benches" ${PROJECT_IS_TOP_LEVEL})
option(ZINC_EXAMPLES "Build the examples" ${PROJECT_IS_TOP_LEVEL})
option(ZINC_INSTALL "Define the install targets" ${PROJECT_IS_TOP_LEVEL})
option(ZINC_WERROR "Treat compiler warnings as errors" OFF)
set(ZINC_OPTIMIZE -O2 CACHE STRING "Optimisation level of the build type Release")
option(ZINC_UNITY "Compile several sources in one translation unit" ON)
set(ZINC_UNITY_BATCH 24 CACHE STRING "Sources that are compiled as one: more parse fewer headers, and take longer to compile again")
set(ZINC_TEST_SHARDS 0 CACHE STRING "Processes for the tests of one binary; 0: one for each test")
set(ZINC_OPTIMIZE_TESTS "" CACHE STRING "Optimisation level of the tests; empty: as all else")
option(ZINC_FUZZ "Build the libFuzzer programs; needs clang with its run-time library" OFF)
set(ZINC_SANITIZE "" CACHE STRING "Sanitizers, as in -fsanitize=: address,undefined or thread")

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release or Debug" FORCE)
endif()

if(PROJECT_IS_TOP_LEVEL)
  # Debug information level 1: line tables, so that a profile or a stack trace names its lines.
  set(CMAKE_CXX_FLAGS_RELEASE "${ZINC_OPTIMIZE} -g1")
  set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g -D_GLIBCXX_ASSERTIONS")
  # Of a .cu file this is the host's half; device code has the level that nvcc gives it.
  set(CMAKE_CUDA_FLAGS_RELEASE "${ZINC_OPTIMIZE} -DNDEBUG")
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}")
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# lld links a test binary in a third of the time of ld.
find_program(ZINC_LLD NAMES ld.lld)
mark_as_advanced(ZINC_LLD)
if(PROJECT_IS_TOP_LEVEL AND ZINC_LLD)
  add_link_options($<$<LINK_LANGUAGE:CXX>:-fuse-ld=lld>)
endif()

# zinc_unite(target file...): `target`, made of these files, is compiled several of them at a time, which
# parses their headers once and instantiates their templates once. Compiled alone: sources that Highway
# includes once per instruction set, and (by CMake's own rule) those with settings of their own.
function(zinc_unite target)
  if(NOT ZINC_UNITY)
    return()
  endif()
  foreach(source IN LISTS ARGN)
    if(EXISTS "${source}")
      file(STRINGS "${source}" lines REGEX "hwy/foreach_target|hwy/highway" LIMIT_COUNT 1)
      if(lines)
        set_source_files_properties("${source}" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
      endif()
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE
                                                            ${ZINC_UNITY_BATCH})
  # A class with a member of an anonymous namespace is fine in a source, and here it is an included one.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
  endif()
endfunction()

find_program(ZINC_CCACHE ccache)
mark_as_advanced(ZINC_CCACHE)
if(ZINC_CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  # Paths relative to the source root, so that checkouts in several places share one cache.
  set(CMAKE_CXX_COMPILER_LAUNCHER env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1
                                  "${ZINC_CCACHE}")
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()
# The sources of a unit have absolute names, and so would __FILE__: programs would differ by where the
# tree lies.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=>)

# What a source file of zinc is compiled with, and nobody else's. Arguments are structs filled by
# designated initialisers: a field that is left out has its default on purpose. g++ 12 sees frees of
# pointers into the heap's middle in destructors of std::vector that it inlined; the sanitizers see
# the real ones.
add_library(zinc_warnings INTERFACE)
target_compile_options(
  zinc_warnings
  INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wconversion;-Wno-missing-field-initializers;-Wno-free-nonheap-object>
                          $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${ZINC_WERROR}>>:-Werror>)

if(ZINC_SANITIZE)
  add_compile_options(-fsanitize=${ZINC_SANITIZE} -fno-omit-frame-pointer
                      -fno-sanitize-recover=all)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-maybe-uninitialized)  # g++ warns about code the sanitizers insert
  else()
    add_compile_options("-fsanitize-ignorelist=${CMAKE_CURRENT_LIST_DIR}/sanitizer_ignore.txt")
  endif()
  add_link_options(-fsanitize=${ZINC_SANITIZE})
endif()
if(ZINC_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
