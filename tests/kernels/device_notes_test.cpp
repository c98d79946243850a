// A GPU that falls back to a plain kernel says so once, with shape and reason.
#include "kernels/device_notes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/context.h"
#include "core/dtype.h"
#include "kernels/attention.h"
#include "kernels/gemm.h"
#include "tests/kernels/cpu_context.h"
#include "tests/kernels/host_array.h"
#include "tests/kernels/test_device.h"
#include "tests/kernels/test_gpu.h"

namespace zinc::kernels {
namespace device_notes_test {

using test::HostArray;

TEST(DeviceNotes, EachTextOnce_AndALimit) {
  DeviceNotes notes;
  notes.add("a");
  notes.add("b");
  notes.add("a");
  EXPECT_THAT(notes.lines(), testing::ElementsAre("a", "b"));
  for (int i = 0; i < 100; ++i) notes.add(std::to_string(i));
  ASSERT_EQ(notes.lines().size(), DeviceNotes::kMaxLines + 1);
  EXPECT_EQ(notes.lines().back(), "more kernels stand in for faster ones; they are not listed");
}

// The notes that `body` adds to a context of the GPU.
template <class Body>
std::vector<std::string> notes_on_gpu(const Body& body) {
  const test::CpuContext contexts;
  const test::DeviceScope scope(test::device_for(DType::bf16));
  body();
  test::test_stream()->synchronize();
  return Context::current().slot<DeviceNotes>().lines();
}

TEST(AttentionNotes, SixteenBitsWithoutTensorCores_AreNotedOnceByShapeAndReason) {
  if (!test::runs_on_cuda()) GTEST_SKIP() << "a GPU's kernels";
  const auto run = [](int64_t head_size) {
    const Shape shape{1, 5, 2, head_size};
    const HostArray x = HostArray::random(shape, DType::bf16, 1), out(shape, DType::bf16);
    attention_forward({.q = x, .k = x, .v = x, .out = out}, test::test_stream());
  };
  const auto notes = notes_on_gpu([&] {
    for (const int64_t head_size : {16, 12, 12, 20}) run(head_size);
  });
  EXPECT_THAT(notes,
              testing::ElementsAre("attention of 1 x 5 queries and 5 keys, 2 heads of 12, "
                                   "bf16 runs in f32 without tensor cores, which is far slower: "
                                   "the head size is not a multiple of 8",
                                   testing::HasSubstr("2 heads of 20")));
}

// On a GPU cuBLASLt takes the product; the emulator has no library, and the note says so.
TEST(Gemm, OwnKernelInThePlaceOfTheLibrary_IsNotedOnceByShapeAndReason) {
  if (!test::runs_on_cuda()) GTEST_SKIP() << "a GPU's kernels";
  const auto notes = notes_on_gpu([] {
    const HostArray a = HostArray::random(Shape{8, 16}, DType::f32, 1);
    const HostArray b = HostArray::random(Shape{4, 16}, DType::f32, 2), c(Shape{8, 4}, DType::f32);
    for (int i = 0; i < 2; ++i) {
      gemm({.a = a, .b = b, .c = c, .transpose_b = true}, test::test_stream());
    }
  });
  if (!test::counts_tensor_cores()) GTEST_SKIP() << "a library may take it";
  EXPECT_THAT(notes, testing::ElementsAre(
                         "the product 8 x 16 by 16 x 4 of f32, the second transposed runs on "
                         "zinc's own kernel, which is far slower: this build has no cuBLASLt"));
}

}  // namespace device_notes_test
}  // namespace zinc::kernels
