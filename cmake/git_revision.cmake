# cmake -DGIT=... -DSOURCE_DIR=... -DOUTPUT=... -P git_revision.cmake: writes the revision of
# SOURCE_DIR as a C++ file, if it differs from what the file says.
set(revision unknown)
if(GIT AND EXISTS "${SOURCE_DIR}/.git")
  execute_process(
    COMMAND "${GIT}" describe --always --dirty --abbrev=12 --exclude *
    WORKING_DIRECTORY "${SOURCE_DIR}"
    OUTPUT_VARIABLE described
    ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE
    RESULT_VARIABLE status)
  if(status EQUAL 0 AND described)
    set(revision "${described}")
  endif()
endif()
set(text
    "namespace zinc {\nextern const char* const kGitRevision;\nconst char* const kGitRevision = \"${revision}\";\n}  // namespace zinc\n"
)
set(old "")
if(EXISTS "${OUTPUT}")
  file(READ "${OUTPUT}" old)
endif()
if(NOT old STREQUAL text)
  file(WRITE "${OUTPUT}" "${text}")
endif()
