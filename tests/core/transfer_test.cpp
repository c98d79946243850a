#include "core/transfer.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/context.h"
#include "core/error.h"

namespace zinc {
namespace transfer_test {

TEST(Transfer, CopiesBytesBetweenTiersInTheOrderOfTheStream) {
  Context context({.execution = ContextOptions::Execution::concurrent});
  std::vector<float> from{1, 2, 3, 4};
  std::vector<float> to(4, 0.0f);
  const StreamRef stream = context.stream(StreamRole::copy_out);
  transfer(View(from.data(), DType::f32, {2, 2}, kCpu),
           View(to.data(), DType::f32, {2, 2}, kCpu, Tier::pinned_host), stream);
  stream->synchronize();
  EXPECT_EQ(to, from);
}

TEST(Transfer, RefusesWhatItCannotCopy) {
  Context context;
  std::vector<float> a(4), b(4);
  const auto view = [](std::vector<float>& values, const Shape& shape, DType dtype = DType::f32,
                       Tier tier = Tier::device) {
    return View(values.data(), dtype, shape, kCpu, tier);
  };
  const StreamRef stream = context.compute();
  EXPECT_THROW(transfer(view(a, {4}), view(b, {3}), stream), InvalidArgument);
  EXPECT_THROW(transfer(view(a, {4}), view(b, {4}, DType::i32), stream), InvalidArgument);
  EXPECT_THROW(transfer(view(a, {4}), view(b, {4}, DType::f32, Tier::nvme), stream),
               InvalidArgument);
  const View strided(a.data(), DType::f32, Shape{2, 1}, Strides{2, 1}, kCpu, Tier::device);
  EXPECT_THROW(transfer(strided, view(b, {2, 1}), stream), InvalidArgument);
}

}  // namespace transfer_test
}  // namespace zinc
