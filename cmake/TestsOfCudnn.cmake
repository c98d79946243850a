# tests/cudnn: what our graphs for cuDNN say, computed on the CPU, and the plans that cuDNN makes of them
# for a GPU that it is only told of. Needs no GPU and no driver: driver_stand_in.cpp takes the driver's place and name in this one binary's process.

if(NOT ZINC_HAVE_CUDNN)
  add_custom_target(zinc_tests_cudnn)
  return()
endif()

add_library(zinc_driver_stand_in SHARED EXCLUDE_FROM_ALL
            "${PROJECT_SOURCE_DIR}/tests/cudnn/driver_stand_in.cpp")
set_target_properties(
  zinc_driver_stand_in PROPERTIES OUTPUT_NAME cuda VERSION 1 SOVERSION 1
                                  LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/driver_stand_in")

file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/cudnn/*.cpp")
list(FILTER sources EXCLUDE REGEX "/driver_stand_in\\.cpp$")
_zinc_add_gtest(zinc_tests_cudnn cpu SOURCES ${sources} LIBRARIES zinc_kernels zinc_nn)
target_link_libraries(zinc_tests_cudnn PRIVATE ${CMAKE_DL_LIBS})
target_include_directories(zinc_tests_cudnn SYSTEM PRIVATE "${CUDNN_INCLUDE_DIR}")
target_compile_definitions(zinc_tests_cudnn
                           PRIVATE "ZINC_DRIVER_STAND_IN=\"$<TARGET_FILE:zinc_driver_stand_in>\"")
add_dependencies(zinc_tests_cudnn zinc_driver_stand_in)
