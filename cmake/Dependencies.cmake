# Finds third-party code. A required package that is missing stops the configure step and names its
# Debian package; an optional one is switched by ZINC_<NAME> = AUTO (use it when found) | ON (an
# error when missing) | OFF. Result: ZINC_HAVE_<NAME> and a row of ZINC_DEPENDENCY_TABLE.

set(ZINC_DEPENDENCY_TABLE "")  # rows "name|1 or 0|version|Debian package", for core/build_info.h

macro(_zinc_required name target version package)
  if(NOT TARGET ${target})
    message(FATAL_ERROR "zinc needs ${name}: install the Debian package ${package}")
  endif()
  list(APPEND ZINC_DEPENDENCY_TABLE "${name}|1|${version}|${package}")
endmacro()

# Sets ZINC_HAVE_<NAME> from the user's choice and from what was found.
macro(_zinc_optional name label found version package)
  set(ZINC_HAVE_${name} FALSE)
  if(ZINC_${name} STREQUAL "OFF")
    message(STATUS "zinc: ${label}: off (ZINC_${name}=OFF)")
  elseif(${found})
    set(ZINC_HAVE_${name} TRUE)
    message(STATUS "zinc: ${label}: ${version}")
  elseif(ZINC_${name} STREQUAL "ON")
    message(FATAL_ERROR "ZINC_${name}=ON, but ${label} was not found: install ${package}, or set "
                        "ZINC_${name}=AUTO to build without it")
  else()
    message(STATUS "zinc: ${label}: not found, fallback sources are built (install ${package})")
  endif()
  if(ZINC_HAVE_${name})
    list(APPEND ZINC_DEPENDENCY_TABLE "${label}|1|${version}|${package}")
  else()
    list(APPEND ZINC_DEPENDENCY_TABLE "${label}|0||${package}")
  endif()
endmacro()

foreach(name IN ITEMS CUDA CUBLASLT CUDNN NCCL MPI ONEDNN AIO PCRE2 UTF8PROC SENTENCEPIECE ZLIB)
  set(ZINC_${name} AUTO CACHE STRING "Use ${name}: AUTO, ON or OFF")
  set_property(CACHE ZINC_${name} PROPERTY STRINGS AUTO ON OFF)
  string(TOUPPER "${ZINC_${name}}" ZINC_${name})
  if(name STREQUAL "CUDA" AND ZINC_CUDA STREQUAL "EMULATED")
    continue()
  endif()
  if(NOT ZINC_${name} MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "ZINC_${name} must be AUTO, ON or OFF, not '${ZINC_${name}}'")
  endif()
endforeach()

# Required.
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(OpenMP QUIET COMPONENTS CXX)
_zinc_required(OpenMP OpenMP::OpenMP_CXX "${OpenMP_CXX_VERSION}"
               "g++ (or libomp-14-dev for clang-14)")
find_package(fmt CONFIG QUIET)
_zinc_required(fmt fmt::fmt "${fmt_VERSION}" libfmt-dev)
find_package(hwy CONFIG QUIET)
_zinc_required(Highway hwy::hwy "${hwy_VERSION}" libhwy-dev)
find_package(RapidJSON MODULE QUIET)
_zinc_required(RapidJSON RapidJSON::RapidJSON "${RapidJSON_VERSION}" rapidjson-dev)
find_package(CLI11 CONFIG QUIET)
_zinc_required(CLI11 CLI11::CLI11 "${CLI11_VERSION}" libcli11-dev)

# Optional.
set(OneDNN_FOUND FALSE)
if(NOT ZINC_ONEDNN STREQUAL "OFF")
  find_package(OneDNN MODULE QUIET)
endif()
_zinc_optional(ONEDNN oneDNN OneDNN_FOUND "${OneDNN_VERSION}" libdnnl-dev)

set(MPI_CXX_FOUND FALSE)
if(NOT ZINC_MPI STREQUAL "OFF")
  set(MPI_CXX_SKIP_MPICXX TRUE)
  find_package(MPI QUIET COMPONENTS CXX)
endif()
_zinc_optional(MPI MPI MPI_CXX_FOUND "${MPI_CXX_VERSION}" "libopenmpi-dev openmpi-bin")

set(LibAio_FOUND FALSE)
if(NOT ZINC_AIO STREQUAL "OFF")
  find_package(LibAio MODULE QUIET)
endif()
_zinc_optional(AIO libaio LibAio_FOUND "${LibAio_VERSION}" libaio-dev)

set(Pcre2_FOUND FALSE)
if(NOT ZINC_PCRE2 STREQUAL "OFF")
  find_package(Pcre2 MODULE QUIET)
endif()
_zinc_optional(PCRE2 PCRE2 Pcre2_FOUND "${Pcre2_VERSION}" libpcre2-dev)

set(Utf8proc_FOUND FALSE)
if(NOT ZINC_UTF8PROC STREQUAL "OFF")
  find_package(Utf8proc MODULE QUIET)
endif()
_zinc_optional(UTF8PROC utf8proc Utf8proc_FOUND "${Utf8proc_VERSION}" libutf8proc-dev)

set(SentencePiece_FOUND FALSE)
if(NOT ZINC_SENTENCEPIECE STREQUAL "OFF")
  find_package(SentencePiece MODULE QUIET)
endif()
_zinc_optional(SENTENCEPIECE sentencepiece SentencePiece_FOUND "${SentencePiece_VERSION}"
               libsentencepiece-dev)

set(ZLIB_FOUND FALSE)
if(NOT ZINC_ZLIB STREQUAL "OFF")
  find_package(ZLIB MODULE QUIET)
endif()
_zinc_optional(ZLIB zlib ZLIB_FOUND "${ZLIB_VERSION_STRING}" zlib1g-dev)

include(Cuda)
