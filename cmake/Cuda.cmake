# The CUDA toolkit, cuDNN and NCCL. As long as the tree has no CUDA source, AUTO does not look for
# them: enabling the language costs seconds of configure time.

set(_zinc_cuda_sources "")
foreach(layer IN ITEMS core kernels comm offload zero)
  file(GLOB_RECURSE _zinc_found CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${layer}/*.cu"
       "${PROJECT_SOURCE_DIR}/${layer}/cuda/*.cpp")
  list(APPEND _zinc_cuda_sources ${_zinc_found})
endforeach()

set(_zinc_cuda_found FALSE)
if(ZINC_CUDA STREQUAL "ON" OR (ZINC_CUDA STREQUAL "AUTO" AND _zinc_cuda_sources))
  include(CheckLanguage)
  check_language(CUDA)
  find_package(CUDAToolkit QUIET)
  if(CMAKE_CUDA_COMPILER AND TARGET CUDA::cudart AND TARGET CUDA::cublasLt)
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 80 90
          CACHE STRING "GPU architectures the device code is built for")
    endif()
    enable_language(CUDA)
    set(_zinc_cuda_found TRUE)
  endif()
endif()
_zinc_optional(CUDA CUDA _zinc_cuda_found "${CUDAToolkit_VERSION}"
               "the CUDA toolkit with nvcc, cudart and cublasLt")

set(_zinc_CUDNN_found FALSE)
set(_zinc_NCCL_found FALSE)
if(ZINC_HAVE_CUDA)
  find_path(CUDNN_INCLUDE_DIR NAMES cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(CUDNN_LIBRARY NAMES cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
  find_path(NCCL_INCLUDE_DIR NAMES nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(NCCL_LIBRARY NAMES nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
  mark_as_advanced(CUDNN_INCLUDE_DIR CUDNN_LIBRARY NCCL_INCLUDE_DIR NCCL_LIBRARY)
  foreach(name IN ITEMS CUDNN NCCL)
    if(${name}_INCLUDE_DIR AND ${name}_LIBRARY)
      set(_zinc_${name}_found TRUE)
    endif()
  endforeach()
endif()
_zinc_optional(CUDNN cuDNN _zinc_CUDNN_found "found" "cuDNN 9 for the CUDA toolkit in use")
_zinc_optional(NCCL NCCL _zinc_NCCL_found "found" "libnccl-dev for the CUDA toolkit in use")
