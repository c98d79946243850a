# Tests, found by glob: one GoogleTest binary per folder tests/<folder>. File names decide labels and
# processes; the rules are in cmake/README.md, "Tests".

find_package(GTest CONFIG QUIET)
if(NOT TARGET GTest::gmock_main)
  message(FATAL_ERROR "ZINC_TESTS=ON needs GoogleTest: install the Debian packages "
                      "libgtest-dev and libgmock-dev")
endif()
include(GoogleTest)

add_custom_target(zinc_tests)

# zinc_register_tests(binary prefix label timeout FILTER filter ARGS argument...): to ctest, those tests of
# a binary that the GoogleTest filter names; a process per test, found when ctest runs. With
# ZINC_TEST_SHARDS=N they share N processes instead, because a program starts slowly under a sanitizer;
# the output of a process names the tests that failed. Tests that start jobs of their own stay alone, and
# so do those with the label pace, because each of them may be repeated.
set(ZINC_TESTS_PACE "*Pace*")
set(ZINC_TESTS_ALONE_apps "*")
set(ZINC_TESTS_ALONE_comm "*MpiFaults*")
# Programs that a suite runs besides its own: .ci/run_tests looks whether they changed.
set(ZINC_TESTS_NEED_apps REQUIRED_FILES "${PROJECT_BINARY_DIR}/zinc")
# Left out under a sanitizer, where they cost minutes each and run code that other tests run there too:
# large products and heads (Gemm.*, GemmOfType, the smaller sizes of GemmOver; the other heads), norms
# whose every value is compared (the other tests of LayerNormBackward and RmsNormBackward), large arrays on
# more ranks than three, worlds of 5 to 7 ranks and four micro-steps (the rest of the matrix), every size
# of a world (OddNumbersOfMicroSteps) or of a mean (LossScaleOfTheMean.LeavesEqualBits...), shuffled
# placement of states (Placement.* in order; shuffled: stages, parameters, vertical steps), resident
# weights of a second model, parts of the matrix of meshes (other models and stages of SequenceTraining
# and FixedSlices, the other order of PipelineOrders), schedules of the attention kernel for compute
# capability 9.0, searches of a plan that compare themselves with every candidate (the other tests of Fit,
# Fill, FitMesh and FitPipeline). A build without a sanitizer runs them.
set(ZINC_TESTS_UNSANITIZED "")
if(ZINC_SANITIZE)
  list(
    APPEND
    ZINC_TESTS_UNSANITIZED
    "LinearCrossEntropy.SeveralChunks_MatchF64"
    "Gemm.Bits_DoNotDependOnThreads"
    "*GemmOver.RandomInputs_MatchDefinition/11?" # 513 x 385 x 33
    "*GemmOver.RandomInputs_MatchDefinition/12?"
    "*local4_*LargeArrays*"
    "*local5_*LargeArrays*"
    "*local7_*LargeArrays*"
    "*staged4_*LargeArrays*"
    "Placement.ShuffledExecutionChangesNoBit"
    "World.SizeChangesNoBit"
    "StagesByKeys/SequenceTraining.*"
    "WithTensorRanks/SequenceTraining.*/1?"
    "SequenceWays.*"
    "Models/FixedSlices.GiveTheSameBitsOnEveryMesh/1?"
    "All/PipelineOrders.*/Interleaved"
    "*Stages.GiveTheSameBits/World5*"
    "*Stages.GiveTheSameBits/World6*"
    "*Stages.GiveTheSameBits/World7*"
    "*Stages.GiveTheSameBits/World2Accumulation4*"
    "*NormBackward.ShortFloats_AreTheF64ResultOfTheRoundedArguments"
    "AttentionLibraryOnDevice.ALibraryThatForgetsAMaskIsFound"
    "*AttentionWgmma.GivesTheSameBitsUnderEverySchedule*"
    "*GemmWgmma.GivesTheSameBitsUnderEverySchedule*"
    "*Stage3Of.ResidentWeightsChangeNoBit/T5"
    "LossScaleOfTheMean.SkipsTheSameStepAtAnyNumberOfTokens"
    "Fill.MaxLiveParameters_IsTheMostThatFits"
    "Fill.MemoryForHalfOfTheWeights_SavesNearlyHalfOfTheGathers"
    "Fill.NumberOfCheckpoints_RecomputesNoMoreBlocksThanMemoryAsks"
    "Fill.Ratio_IsTheLeastThatLeaves"
    "Fill.ResidentMemory_IsTheMostThatFits"
    "Fill.SeveralKeys_AreFilledInTheOrderThatIsFastest"
    "Fit.BytesOnNvmeAreThoseOfARun"
    "Fit.ExplainsAValueThatRulesSavingsOut_ByFiguresWithoutThem"
    "Fit.IsTheBestOfAllCandidatesAtEveryLimit"
    "Fit.NothingFits_SaysWhatIsBeyondAndByHowMuch"
    "Fit.StepOfManyMicroBatchesIsPlannedByFour"
    "FitBench.EveryChoiceIsTimedBesideAllThatFit"
    "FitMesh.IsTheBestOfAllMeshesAtEveryLimit"
    "FitMesh.IsTheBestOfAllOrdersOfAPipelineAtEveryLimit"
    "*FitPipeline.WrittenFileHasTheMeshAndItsPlan/1"
    "*FitPipeline.WrittenFileHasTheMeshAndItsPlan/2"
    "*FitPipeline.WrittenFileHasTheMeshAndItsPlan/3")
endif()
function(zinc_register_tests binary prefix label timeout)
  cmake_parse_arguments(PARSE_ARGV 4 arg "" "FILTER" "ARGS")
  set(alone "${ZINC_TESTS_ALONE_${prefix}}")
  if(NOT ZINC_TEST_SHARDS OR label MATCHES "^(slow|pace)$" OR alone STREQUAL "*")
    set(alone "${arg_FILTER}")
  else()
    set(filter "${arg_FILTER}")
    if(NOT filter MATCHES "-")
      string(APPEND filter "-")
    endif()
    string(REPLACE ";" ":" unsanitized "${ZINC_TESTS_UNSANITIZED}")
    math(EXPR last "${ZINC_TEST_SHARDS} - 1")
    foreach(shard RANGE ${last})
      set(test "${prefix}.shard_${shard}_of_${ZINC_TEST_SHARDS}")
      add_test(
        NAME "${test}"
        COMMAND ${binary} "--gtest_filter=${filter}:${alone}:${unsanitized}" ${arg_ARGS}
        WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
      set_tests_properties(
        "${test}"
        PROPERTIES LABELS ${label}
                   TIMEOUT 1800
                   ENVIRONMENT "GTEST_TOTAL_SHARDS=${ZINC_TEST_SHARDS};GTEST_SHARD_INDEX=${shard}")
      if(shard EQUAL 0)
        # A filter that names no test must not pass.
        set_tests_properties("${test}" PROPERTIES FAIL_REGULAR_EXPRESSION "Running 0 tests")
      endif()
    endforeach()
    if(NOT alone)
      return()
    endif()
    string(APPEND alone "-${ZINC_TESTS_PACE}")
  endif()
  gtest_discover_tests(
    ${binary}
    TEST_PREFIX "${prefix}."
    TEST_FILTER "${alone}"
    EXTRA_ARGS ${arg_ARGS}
    WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
    NO_PRETTY_VALUES
    DISCOVERY_MODE PRE_TEST
    DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS ${label} TIMEOUT ${timeout} ${ZINC_TESTS_NEED_${prefix}})
endfunction()

# One binary. Suites whose name contains "slow" or "Slow" get the label slow, other tests whose name
# contains "Pace" the label pace, the rest `label`.
function(_zinc_add_gtest name label)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "SOURCES;LIBRARIES")
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES} GTest::gmock_main fmt::fmt zinc_warnings)
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_compile_options(${name} PRIVATE ${ZINC_OPTIMIZE_TESTS})
  zinc_unite(${name} ${arg_SOURCES})
  add_dependencies(zinc_tests ${name})
  set(slow "*Slow*.*:*slow*.*")
  # Names must be unique over all binaries: CTest sets the properties of a test by its name.
  string(REGEX REPLACE "^zinc_tests_" "" prefix "${name}")
  if(label STREQUAL "slow")
    zinc_register_tests(${name} ${prefix} slow 1800 FILTER "*")
  else()
    set(paced "${ZINC_TESTS_PACE}")
    if(label STREQUAL "cuda")
      set(paced "")  # what needs a GPU says so
    else()
      zinc_register_tests(${name} ${prefix} pace 300 FILTER "${paced}-${slow}")
    endif()
    zinc_register_tests(${name} ${prefix} ${label} 300 FILTER "-${slow}:${paced}")
    zinc_register_tests(${name} ${prefix} slow 1800 FILTER "${slow}")
  endif()
endfunction()

file(GLOB folders CONFIGURE_DEPENDS LIST_DIRECTORIES true "${PROJECT_SOURCE_DIR}/tests/*")
foreach(folder IN LISTS folders)
  get_filename_component(layer "${folder}" NAME)
  if(NOT IS_DIRECTORY "${folder}" OR layer MATCHES "^(ranks|fuzz|consumer|emulator|cudnn)$")
    continue()
  endif()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${folder}/*.cpp")
  if(layer STREQUAL "structure")
    list(FILTER sources EXCLUDE REGEX "_main\\.cpp$")  # programs of .ci/quick, which compiles them
  endif()
  zinc_select_sources(sources ${sources})
  set(libraries zinc)
  if(layer IN_LIST ZINC_LAYERS OR (layer STREQUAL "bench" AND TARGET zinc_bench))
    set(libraries zinc_${layer})
  elseif(layer STREQUAL "structure")
    set(libraries "")
  endif()
  set(support ${sources})
  list(FILTER support EXCLUDE REGEX "_test\\.cpp$")
  foreach(suffix IN ITEMS "" _slow _cuda)
    set(tests ${sources})
    list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
    if(suffix STREQUAL "")
      list(FILTER tests EXCLUDE REGEX "(slow[a-z0-9_]*|_cuda)_test\\.cpp$")
      set(label cpu)
    elseif(suffix STREQUAL "_slow")
      list(FILTER tests INCLUDE REGEX "slow[a-z0-9_]*_test\\.cpp$")
      list(FILTER tests EXCLUDE REGEX "_cuda_test\\.cpp$")
      set(label slow)
    else()
      list(FILTER tests INCLUDE REGEX "_cuda_test\\.cpp$")
      set(label cuda)
      if(ZINC_CUDA STREQUAL "EMULATED")
        set(label emulated)
      endif()
      if(NOT ZINC_HAVE_CUDA)
        set(tests "")
      endif()
    endif()
    if(tests)
      _zinc_add_gtest(zinc_tests_${layer}${suffix} ${label} SOURCES ${tests} ${support} LIBRARIES
                      ${libraries})
      if(ZINC_CUDA STREQUAL "EMULATED")
        target_compile_definitions(zinc_tests_${layer}${suffix} PRIVATE ZINC_CUDA_EMULATED)
      endif()
    endif()
  endforeach()
endforeach()

if(TARGET zinc_tests_zero)
  target_sources(zinc_tests_zero PRIVATE "${PROJECT_SOURCE_DIR}/tests/offload/faulty_queue.cpp")
endif()
if(TARGET zinc_tests_parallel)
  target_sources(zinc_tests_parallel PRIVATE "${PROJECT_SOURCE_DIR}/tests/autograd/gradcheck.cpp")
endif()
if(TARGET zinc_tests_comm AND ZINC_HAVE_MPI)
  target_link_libraries(zinc_tests_comm PRIVATE MPI::MPI_CXX)  # comm/mpi's own headers
endif()
foreach(layer IN ITEMS text data hub generate train plan parity apps)
  if(TARGET zinc_tests_${layer})
    target_sources(zinc_tests_${layer} PRIVATE "${PROJECT_SOURCE_DIR}/tests/files/scratch_folder.cpp")
  endif()
endforeach()
if(TARGET zinc_tests_generate)
  target_link_libraries(zinc_tests_generate PRIVATE zinc_data)  # a model of its own is trained first
endif()
if(TARGET zinc_tests_hub)
  target_link_libraries(zinc_tests_hub PRIVATE zinc_train)  # folders that an engine wrote are read here
endif()
if(TARGET zinc_tests_train)
  target_link_libraries(zinc_tests_train PRIVATE zinc_plan)  # some keys are seen by their plan alone
  target_sources(zinc_tests_train PRIVATE "${PROJECT_SOURCE_DIR}/tests/files/file_system_faults.cpp")
endif()
if(TARGET zinc_tests_plan)
  target_sources(zinc_tests_plan PRIVATE "${PROJECT_SOURCE_DIR}/tests/files/mapped_bytes.cpp")
endif()
if(TARGET zinc_tests_apps)
  # They run the command itself, alone and under mpirun.
  set(mpirun "")
  if(ZINC_HAVE_MPI)
    set(mpirun "${MPIEXEC_EXECUTABLE}")
  endif()
  # By a path from the root of the tree, so that the program is the same wherever the tree lies.
  file(RELATIVE_PATH command "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}/zinc")
  target_compile_definitions(zinc_tests_apps PRIVATE "ZINC_COMMAND=\"${command}\""
                                                     "ZINC_MPIRUN=\"${mpirun}\"")
  add_dependencies(zinc_tests_apps zinc_command)
endif()
# They compare runs themselves: exit code 1 where losses differ.
foreach(example prefetch_rewrite own_optimizer own_op own_data)
  if(TARGET example_${example})
    set(arguments "")
    if(example STREQUAL "own_data")
      set(arguments "examples/classify.json" "${PROJECT_BINARY_DIR}/own_data")
    endif()
    add_test(NAME examples.${example} COMMAND example_${example} ${arguments}
             WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
    set_tests_properties(examples.${example} PROPERTIES LABELS cpu TIMEOUT 300 PROCESSORS 2)
    add_dependencies(zinc_tests example_${example})
  endif()
endforeach()
if(TARGET zinc_command AND NOT ZINC_SANITIZE)
  # Short here, whole by ./run soak, where the last lines have to be those of a model that has learned.
  set(jobs gpt2-pretraining llama-lora-questions bloomz-lora-questions chatglm3-three-ways
           flan-t5-summaries review-classifier programs)
  set(ends "went to the" "Paris lies. The Seine" "Paris lies. The Seine" "assistant.> The Seine"
           "rouge1 +0[.]9" "accuracy +(1[.]0|0[.]99)" "The Seine.*rouge1 0[.]9")
  foreach(job end IN ZIP_LISTS jobs ends)
    if(job STREQUAL "programs" AND NOT TARGET example_summarize_t5)
      continue()
    endif()
    foreach(form short whole)
      set(out "${PROJECT_BINARY_DIR}/jobs/${job}-${form}")
      add_test(NAME jobs.${job}.${form}
               COMMAND sh -c "rm -rf '${out}' && examples/jobs/${job}/run.sh '${out}'"
               WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
    endforeach()
    set(program "ZINC=$<TARGET_FILE:zinc_command>")
    set_tests_properties(jobs.${job}.short PROPERTIES LABELS cpu PROCESSORS 2 TIMEOUT 300 ENVIRONMENT
                                                      "${program};QUICK=1")
    set_tests_properties(
      jobs.${job}.whole PROPERTIES LABELS slow PROCESSORS 2 TIMEOUT 900 ENVIRONMENT
                                   "${program};QUICK=0" PASS_REGULAR_EXPRESSION "${end}")
  endforeach()
endif()
include(TestsOfEmulator)
include(TestsOfCudnn)
include(TestsOfHeaders)
include(TestsOfSnippets)
include(TestsOfPages)
include(TestsOfRanks)
include(TestsOfFuzz)

if(ZINC_INSTALL)
  set(flags "")
  if(ZINC_SANITIZE)
    set(flags "-fsanitize=${ZINC_SANITIZE}")
  endif()
  add_test(
    NAME consumer.installed_package
    COMMAND
      "${CMAKE_COMMAND}" "-DBUILD_DIR=${PROJECT_BINARY_DIR}" "-DSOURCE_DIR=${PROJECT_SOURCE_DIR}"
      "-DFLAGS=${flags}" "-DCOMPILER=${CMAKE_CXX_COMPILER}" -P
      "${PROJECT_SOURCE_DIR}/tests/consumer/run_consumer.cmake")
  set_tests_properties(consumer.installed_package PROPERTIES LABELS slow TIMEOUT 600)
endif()

add_test(NAME structure.source_selection
         COMMAND "${CMAKE_COMMAND}" -P
                 "${PROJECT_SOURCE_DIR}/tests/structure/source_selection_test.cmake")
add_test(NAME structure.run_script COMMAND sh
                                           "${PROJECT_SOURCE_DIR}/tests/structure/run_script_test.sh")
add_test(NAME structure.link_lines COMMAND sh "${PROJECT_SOURCE_DIR}/tests/structure/link_lines_test.sh"
                                           "${PROJECT_BINARY_DIR}")
add_test(NAME structure.page_scripts
         COMMAND sh "${PROJECT_SOURCE_DIR}/tests/structure/page_scripts_test.sh" "${PROJECT_SOURCE_DIR}")
add_test(NAME structure.gpu_check
         COMMAND sh "${PROJECT_SOURCE_DIR}/tests/structure/gpu_check_test.sh" "${PROJECT_SOURCE_DIR}")
add_test(NAME structure.kernel_resources
         COMMAND sh "${PROJECT_SOURCE_DIR}/tests/structure/kernel_resources_test.sh"
                 "${PROJECT_SOURCE_DIR}")
add_test(NAME structure.ci_suites COMMAND sh "${PROJECT_SOURCE_DIR}/tests/structure/ci_suites_test.sh"
                                          "${PROJECT_SOURCE_DIR}")
add_test(NAME structure.ci_reach COMMAND bash "${PROJECT_SOURCE_DIR}/tests/structure/ci_reach_test.sh"
                                         "${PROJECT_SOURCE_DIR}")
add_test(NAME structure.quick COMMAND bash "${PROJECT_SOURCE_DIR}/tests/structure/quick_test.sh"
                                      "${PROJECT_SOURCE_DIR}")
set_tests_properties(
  structure.source_selection structure.run_script structure.gpu_check structure.kernel_resources
  structure.ci_suites structure.ci_reach structure.quick structure.link_lines
  structure.page_scripts PROPERTIES LABELS cpu TIMEOUT 240)
set_tests_properties(structure.ci_suites structure.ci_reach structure.quick
                     structure.link_lines structure.page_scripts PROPERTIES SKIP_RETURN_CODE 77)
