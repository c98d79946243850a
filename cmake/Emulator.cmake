# ZINC_CUDA=EMULATED: the .cu files are compiled as C++ against tests/emulator, whose sources join the
# library core, so that a build for the emulator links like one for a GPU. NCCL is emulated with it.

# Suites of tests/kernels that run on the emulated device too, beside the CPU.
set(ZINC_EMULATED_SUITES
    "Fill.*" "Copy.*" "Concat.*" "Permute.*" "GatherRows.*" "Scatter*" "Embedding*" "Rotary*" "Dropout*"
    "Fp8Round.*" "Unary*" "Binary*" "Compare.*" "Select.*" "Argmax.*" "Cumsum.*" "FlatIndex.*" "Sort.*" "Gelu*" "SwiGlu*" "Scale.*" "Accumulate.*" "Reduce*" "TreeSum.*" "ChunkTreeSum.*"
    "RmsNorm*" "LayerNorm*" "ResidualNorm.*" "*SoftmaxOf.*" "Softmax.*" "*CrossEntropyOf.*"
    "CrossEntropy.*" "*HeadOf.*" "LinearCrossEntropy.*" "ElementUpdate.*" "BlockUpdate.*" "FiniteNorm.*" "*GemmO*"
    "Gemm.*" "BatchedGemm.*" "IndexFault.*" "Attention*" "*AttentionOver.EveryType*" "*AttentionWgmma*" "*GemmW*" "Fp8Encode.*")
# Of those: large products, whose schedules a test of its own covers; heads of many classes.
set(ZINC_EMULATED_EXCEPT "Gemm.Bits_DoNotDependOnThreads" "LinearCrossEntropy.SeveralChunks*"
                         "LinearCrossEntropy.LogitsOfTheWholeBatch*")
# Under a sanitizer, which is ten times as slow, every op once: not the equality of bits over schedules,
# the large cases, and the hundreds of small products whose code Gemm.* and GemmOfType run too.
if(ZINC_SANITIZE)
  list(
    APPEND
    ZINC_EMULATED_EXCEPT
    "*SameBits*"
    "*Bits_DoNotDependOn*"
    "Reduce.*BitForBit"
    "EmbeddingBackward.*BitForBit"
    "ResidualNorm.EqualsTheComposition*"
    "*ManyRows*"
    "*LargeHeads*"
    "*GemmOver*"
    "*CentralDifferences*"
    "*EveryOrderOf*"
    "*ManySmallMatrices*"
    "*EveryOpDtypeAndBroadcast*"
    "*EveryType_MatchesF64/Many*"
    "*EveryType_MatchesF64/*Documents"
    "*EveryType_MatchesF64/SharedBias"
    "*EveryType_MatchesF64/Everything")
endif()

if(ZINC_CUDA STREQUAL "EMULATED")
  find_package(boost_context CONFIG QUIET)
  if(NOT TARGET Boost::context)
    message(FATAL_ERROR "ZINC_CUDA=EMULATED needs Boost.Context: install libboost-context-dev")
  endif()
  file(GLOB ZINC_EMULATOR_SOURCES CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/emulator/*.cpp")
  list(FILTER ZINC_EMULATOR_SOURCES EXCLUDE REGEX "_test\\.cpp$")
endif()

# Makes `target`, whose sources have been selected, compile its CUDA code for the emulator. By source
# file, so that all others are compiled as in a build without CUDA, and found in the compiler's cache.
function(zinc_emulate_cuda target)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cu$|/cuda/|/nccl/")
  list(FILTER sources EXCLUDE REGEX "\\$<")
  set_source_files_properties(${sources} PROPERTIES INCLUDE_DIRECTORIES
                                                    "${PROJECT_SOURCE_DIR}/tests/emulator/include")
  list(FILTER sources INCLUDE REGEX "\\.cu$")
  # g++ does not know #pragma unroll; kernels mix the widths of CUDA's built-in variables.
  set_source_files_properties(
    ${sources} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS
                          "-x;c++;-Wno-unknown-pragmas;-Wno-conversion")
endfunction()
