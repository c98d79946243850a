# cmake -P: the table "File names" of cmake/README.md, as expectations of cmake/SourceSelection.cmake.
cmake_minimum_required(VERSION 3.25)
get_filename_component(root "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
set(PROJECT_SOURCE_DIR "${root}")
include("${root}/cmake/SourceSelection.cmake")

foreach(row IN ITEMS "core/a.cpp||" "kernels/cpu/gemm_onednn.cpp|ON|onednn"
                     "kernels/cpu/gemm_no_onednn.cpp|OFF|onednn" "comm/connect_mpi_fallback.cpp|OFF|mpi"
                     "comm/no_mpi.cpp|OFF|mpi" "comm/mpi/exchange.cpp|ON|mpi"
                     "comm/nccl/exchange.cpp|ON|nccl" "offload/aio_storage.cpp|ON|aio"
                     "offload/storage_no_aio.cpp|OFF|aio" "kernels/cuda/softmax.cu|ON|cuda"
                     "kernels/cuda/attention_cudnn.cpp|ON|cudnn" "kernels/cuda/gemm_cublaslt.cpp|ON|cublaslt"
                     "kernels/cuda/gemm_no_cublaslt.cpp|OFF|cublaslt" "kernels/softmax.cu|ON|cuda"
                     "tests/kernels/softmax_cuda_test.cpp|ON|cuda" "tests/kernels/softmax_test.cpp||"
                     "train/tokenizer_pcre2.cpp|ON|pcre2" "train/cudamp.cpp||" "train/nompi.cpp||")
  string(REGEX MATCH "^([^|]*)\\|([^|]*)\\|([^|]*)$" unused "${row}")
  set(path "${CMAKE_MATCH_1}")
  set(expected "${CMAKE_MATCH_2}|${CMAKE_MATCH_3}")
  zinc_dependency_of("${path}" need have)
  if(NOT "${need}|${have}" STREQUAL expected)
    message(SEND_ERROR "${path}: '${need}|${have}', expected '${expected}'")
  endif()
endforeach()

# A tree with both sides of two features, selected with and without oneDNN.
set(scratch "${CMAKE_CURRENT_BINARY_DIR}/source_selection")
set(names gemm.cpp gemm_onednn.cpp gemm_no_onednn.cpp conv_onednn.cpp conv_fallback.cpp
          other_fallback.cpp)
set(files "")
foreach(name IN LISTS names)
  file(WRITE "${scratch}/${name}" "")
  list(APPEND files "${scratch}/${name}")
endforeach()
function(expect_selection have expected)
  set(ZINC_HAVE_ONEDNN ${have})
  zinc_select_sources(selected ${files})
  list(TRANSFORM selected REPLACE ".*/" "")
  if(NOT selected STREQUAL expected)
    message(SEND_ERROR "with oneDNN ${have}: '${selected}', expected '${expected}'")
  endif()
endfunction()
expect_selection(TRUE "conv_onednn.cpp;gemm.cpp;gemm_onednn.cpp;other_fallback.cpp")
expect_selection(FALSE "conv_fallback.cpp;gemm.cpp;gemm_no_onednn.cpp;other_fallback.cpp")
file(REMOVE_RECURSE "${scratch}")
