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
string(SUBSTRING "${revision}" 0 63 revision)
# Of one size and in a section of its own, so that programs of two revisions can be compared without it.
set(text
    "namespace zinc {
extern const char kGitRevision[64];
[[gnu::section(\".zinc_revision\")]] const char kGitRevision[64] = \"${revision}\";
}  // namespace zinc
")
set(old "")
if(EXISTS "${OUTPUT}")
  file(READ "${OUTPUT}" old)
endif()
if(NOT old STREQUAL text)
  file(WRITE "${OUTPUT}" "${text}")
endif()
