# One static library per layer folder, linking the layers it may include (DESIGN, section 3).

set(ZINC_LAYERS core kernels comm tensor autograd nn optim offload zero train apps)
set(ZINC_SEES_core "")
set(ZINC_SEES_kernels core)
set(ZINC_SEES_comm kernels core)
set(ZINC_SEES_tensor kernels core)
set(ZINC_SEES_autograd tensor kernels core)
set(ZINC_SEES_nn autograd tensor core)
set(ZINC_SEES_optim autograd tensor kernels core)
set(ZINC_SEES_offload core)
set(ZINC_SEES_zero nn optim offload autograd tensor comm kernels core)
set(ZINC_SEES_train zero nn optim offload autograd tensor comm kernels core)
set(ZINC_SEES_apps train zero nn optim offload autograd tensor comm kernels core)

# Third-party code that a layer's sources use; it does not reach whoever links the layer.
set(ZINC_USES_core Threads::Threads)
set(ZINC_USES_kernels hwy::hwy)
set(ZINC_USES_comm Threads::Threads)
set(ZINC_USES_tensor "")
set(ZINC_USES_autograd "")
set(ZINC_USES_nn "")
set(ZINC_USES_optim "")
set(ZINC_USES_offload Threads::Threads)
set(ZINC_USES_zero "")
set(ZINC_USES_train $<BUILD_INTERFACE:RapidJSON::RapidJSON>)
set(ZINC_USES_apps $<BUILD_INTERFACE:CLI11::CLI11>)
if(ZINC_HAVE_ONEDNN)
  list(APPEND ZINC_USES_kernels zinc::onednn)
endif()
if(ZINC_HAVE_MPI)
  list(APPEND ZINC_USES_comm MPI::MPI_CXX)
endif()
if(ZINC_HAVE_AIO)
  list(APPEND ZINC_USES_offload zinc::aio)
endif()
if(ZINC_HAVE_PCRE2)
  list(APPEND ZINC_USES_train zinc::pcre2)
endif()
if(ZINC_CUDA STREQUAL "EMULATED")
  list(APPEND ZINC_USES_core $<BUILD_INTERFACE:Boost::context>)
elseif(ZINC_HAVE_CUDA)
  list(APPEND ZINC_USES_core CUDA::cudart)
  list(APPEND ZINC_USES_kernels CUDA::cudart)
endif()

foreach(layer IN LISTS ZINC_LAYERS)
  file(GLOB_RECURSE candidates CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${layer}/*.cpp"
       "${PROJECT_SOURCE_DIR}/${layer}/*.cu")
  list(REMOVE_ITEM candidates "${PROJECT_SOURCE_DIR}/apps/zinc_main.cpp")
  zinc_select_sources(sources ${candidates})
  if(layer STREQUAL "core")
    list(APPEND sources ${ZINC_BUILD_INFO_SOURCES} ${ZINC_EMULATOR_SOURCES})
  endif()
  set(kind STATIC)
  set(scope PUBLIC)
  if(NOT sources)
    set(kind INTERFACE)
    set(scope INTERFACE)
  endif()

  add_library(zinc_${layer} ${kind} ${sources})
  add_library(zinc::${layer} ALIAS zinc_${layer})
  set_target_properties(zinc_${layer} PROPERTIES EXPORT_NAME ${layer})
  target_include_directories(zinc_${layer} ${scope} $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                           $<INSTALL_INTERFACE:include>)
  list(TRANSFORM ZINC_SEES_${layer} PREPEND zinc_ OUTPUT_VARIABLE seen)
  target_link_libraries(zinc_${layer} ${scope} ${seen})
  if(layer STREQUAL "core")
    # core/parallel.h is a header with OpenMP pragmas. Contracting a * b + c into one rounding would
    # make bits depend on the instruction set, also in code that inlines our headers.
    target_link_libraries(zinc_core ${scope} OpenMP::OpenMP_CXX)
    target_compile_features(zinc_core ${scope} cxx_std_20)
    target_compile_options(zinc_core ${scope} $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
  endif()
  if(kind STREQUAL "STATIC")
    target_link_libraries(zinc_${layer} PRIVATE fmt::fmt ${ZINC_USES_${layer}}
                                                $<BUILD_INTERFACE:zinc_warnings>)
    # The rounding of a product is part of what a kernel promises; constexpr functions of the
    # standard library run on the device.
    target_compile_options(
      zinc_${layer}
      PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false;--expt-relaxed-constexpr>)
    if(layer STREQUAL "kernels" AND ZINC_HAVE_CUDA)
      file(GLOB dispatchers "${PROJECT_SOURCE_DIR}/kernels/*.cpp")
      set_source_files_properties(${dispatchers} PROPERTIES COMPILE_DEFINITIONS
                                                            ZINC_HAS_CUDA_KERNELS)
    endif()
    if(ZINC_CUDA STREQUAL "EMULATED")
      zinc_emulate_cuda(zinc_${layer})
    endif()
  endif()
endforeach()

# Everything a program that trains needs; the command line stays out.
add_library(zinc INTERFACE)
add_library(zinc::zinc ALIAS zinc)
target_link_libraries(zinc INTERFACE zinc_train zinc_zero zinc_nn zinc_optim zinc_offload
                                     zinc_autograd zinc_tensor zinc_comm zinc_kernels zinc_core)
