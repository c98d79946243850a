# ZINC_CUDA=EMULATED: the emulator's own tests, and the kernel tests on the emulated device; label
# `emulated`. The same binaries and tests as on the CPU, told to run on the other device.

# Builds its own copy of the tree for the emulator, once per mutant: about three hours on two cores.
add_test(NAME soak.mutants
         COMMAND sh "${PROJECT_SOURCE_DIR}/tests/soak/mutants.sh" "${PROJECT_SOURCE_DIR}"
                 "${PROJECT_BINARY_DIR}/mutants")
set_tests_properties(soak.mutants PROPERTIES LABELS slow TIMEOUT 21600
                     WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")  # tests/reference is found from there

# The kernel tests on the device: `emulated.` of an emulated build, `gpu.` of one for a GPU.
if(NOT ZINC_HAVE_CUDA)
  return()
endif()
string(REPLACE ";" ":" filter "${ZINC_EMULATED_SUITES}-${ZINC_EMULATED_EXCEPT}")
set(prefix gpu)
set(label cuda)
if(ZINC_CUDA STREQUAL "EMULATED")
  set(prefix emulated)
  set(label emulated)
endif()
zinc_register_tests(zinc_tests_kernels ${prefix} ${label} 300 FILTER "${filter}" ARGS --device=cuda)
if(TARGET zinc_tests_kernels_cuda)
  zinc_register_tests(zinc_tests_kernels_cuda ${prefix}_cuda ${label} 300 FILTER "*" ARGS --device=cuda)
endif()

# One binary with every test that runs on a GPU, for `./run gpu-check` and `./run bundle`: those of
# the kernels, and all files *_cuda_test.cpp. It reads no source file when it runs.
file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/kernels/*.cpp"
     "${PROJECT_SOURCE_DIR}/tests/*/*_cuda_test.cpp")
list(FILTER sources EXCLUDE REGEX "(simd_targets|past_caches)_test\\.cpp$|/emulator/")
zinc_select_sources(sources ${sources})
add_executable(zinc_gpu_tests EXCLUDE_FROM_ALL ${sources})
target_link_libraries(zinc_gpu_tests PRIVATE zinc zinc_bench GTest::gmock fmt::fmt zinc_warnings)
file(WRITE "${PROJECT_BINARY_DIR}/gpu_tests_filter.txt" "*Cuda*:*Gpu*:${filter}\n")

if(NOT ZINC_CUDA STREQUAL "EMULATED")
  return()
endif()

file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/emulator/*_test.cpp")
_zinc_add_gtest(zinc_tests_emulator emulated SOURCES ${sources} LIBRARIES zinc_core)
target_compile_options(zinc_tests_emulator PRIVATE -Wno-unknown-pragmas)
target_include_directories(zinc_tests_emulator PRIVATE "${PROJECT_SOURCE_DIR}/tests/emulator/include")
