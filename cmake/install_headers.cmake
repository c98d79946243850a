# cmake -DSOURCE_DIR=... -DLAYERS=core,kernels,... -DDESTINATION=.../include/zinc -DEXAMPLES=... -P
# install_headers.cmake
#
# Installs the public headers: those of every layer outside the folders that belong to one device or
# library, and what they include. "core/error.h" becomes "zinc/core/error.h". A header that includes
# a file that does not exist stops the installation. The examples' programs are installed in EXAMPLES, with
# includes changed likewise.
cmake_minimum_required(VERSION 3.25)
string(REPLACE "," ";" LAYERS "${LAYERS}")
list(JOIN LAYERS "|" layer_pattern)

set(pending "")
foreach(layer IN LISTS LAYERS)
  file(GLOB_RECURSE found RELATIVE "${SOURCE_DIR}" "${SOURCE_DIR}/${layer}/*.h")
  list(FILTER found EXCLUDE REGEX "^(kernels/(cpu|cuda)|core/cuda|comm/(mpi|nccl)|files/json)/")
  list(FILTER found EXCLUDE REGEX "-inl\\.h$")
  list(APPEND pending ${found})
endforeach()
file(GLOB found RELATIVE "${SOURCE_DIR}" "${SOURCE_DIR}/zinc.h")
list(APPEND pending ${found})

set(installed "")
while(pending)
  list(POP_FRONT pending header)
  if(header IN_LIST installed)
    continue()
  endif()
  list(APPEND installed "${header}")
  if(NOT EXISTS "${SOURCE_DIR}/${header}")
    message(FATAL_ERROR "install: a public header includes \"${header}\", which does not exist")
  endif()
  file(READ "${SOURCE_DIR}/${header}" text)
  string(REGEX MATCHALL "#include \"[^\"\n]+\"" includes "${text}")
  foreach(include IN LISTS includes)
    string(REGEX REPLACE "#include \"(.*)\"" "\\1" target "${include}")
    list(APPEND pending "${target}")
  endforeach()
  string(REGEX REPLACE "#include \"((${layer_pattern})/)" "#include \"zinc/\\1" text "${text}")
  file(WRITE "${DESTINATION}/${header}" "${text}")
endwhile()
file(GLOB_RECURSE programs RELATIVE "${SOURCE_DIR}/examples" "${SOURCE_DIR}/examples/*.cpp")
foreach(program IN LISTS programs)
  file(READ "${SOURCE_DIR}/examples/${program}" text)
  string(REGEX REPLACE "#include \"((${layer_pattern})/|zinc\\.h)" "#include \"zinc/\\1" text "${text}")
  file(WRITE "${EXAMPLES}/${program}" "${text}")
endforeach()

list(LENGTH installed count)
message(STATUS "Installed ${count} headers in ${DESTINATION}")
