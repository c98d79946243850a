#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "autograd/functions/padding.h"
#include "core/error.h"
#include "tests/autograd/rank.h"

namespace zinc::autograd {
namespace padding_test {

using ::testing::ElementsAre;
using zinc::testing::ids_tensor;
using zinc::testing::Rank;

TEST(Padding, MaskIsOneWhereTokensAre) {
  const Rank rank;
  const Tensor mask = length_mask(ids_tensor({2, 0, 3}, {3}), 3);
  EXPECT_EQ(mask.shape(), (Shape{3, 3}));
  EXPECT_THAT(mask.to_vector<int64_t>(), ElementsAre(1, 1, 0, 0, 0, 0, 1, 1, 1));
  EXPECT_THROW(length_mask(ids_tensor({2}, {1, 1}), 3), InvalidArgument);
}

// 300 is no bf16, nor is a sum of 300 values of 300 an f16.
TEST(Padding, MeanLeavesOutWhatIsBehindTheEnd) {
  const Rank rank;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    std::vector<float> values(2 * 400, std::numeric_limits<float>::quiet_NaN());
    for (size_t i = 0; i < 300; ++i) values[i] = 256.0f;
    values[400] = 3.0f;
    const Tensor x = Tensor::from(values, {2, 400, 1}, dtype);
    EXPECT_THAT(mean_over_tokens(x, ids_tensor({300, 1}, {2})).to_vector<float>(),
                ElementsAre(256.0f, 3.0f))
        << name_of(dtype);
  }
  EXPECT_THROW(mean_over_tokens(Tensor::zeros({2, 3, 1}), ids_tensor({1}, {1})), InvalidArgument);
}

}  // namespace padding_test
}  // namespace zinc::autograd
