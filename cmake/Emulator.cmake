# ZINC_CUDA=EMULATED: the .cu files are compiled as C++ against tests/emulator, whose sources join the
# library core, so that a build for the emulator links like one for a GPU.

# Suites of tests/kernels that run on the emulated device too, beside the CPU.
set(ZINC_EMULATED_SUITES "RmsNorm*")

if(ZINC_CUDA STREQUAL "EMULATED")
  find_package(boost_context CONFIG QUIET)
  if(NOT TARGET Boost::context)
    message(FATAL_ERROR "ZINC_CUDA=EMULATED needs Boost.Context: install libboost-context-dev")
  endif()
  file(GLOB ZINC_EMULATOR_SOURCES CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/emulator/*.cpp")
  list(FILTER ZINC_EMULATOR_SOURCES EXCLUDE REGEX "_test\\.cpp$")
endif()

# Makes `target`, whose sources have been selected, compile its CUDA code for the emulator.
function(zinc_emulate_cuda target)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cu$")
  # An unused barrier result or register is the kernel's business; g++ does not know #pragma unroll.
  set_source_files_properties(
    ${sources} TARGET_DIRECTORY ${target}
    PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-x;c++;-Wno-unknown-pragmas;-Wno-conversion")
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/tests/emulator/include")
endfunction()
