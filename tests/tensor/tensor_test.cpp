#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace zinc {
namespace tensor_test {

struct Rank {
  explicit Rank(ContextOptions options = {}) : context(std::move(options)), scope(context) {}
  Context context;
  ContextScope scope;
};

ContextOptions shuffled(uint64_t seed) {
  return {.execution = ContextOptions::Execution::shuffled, .shuffle_seed = seed};
}

TEST(Tensor, DefaultConstructed_IsUndefinedAndThrowsOnUse) {
  const Tensor tensor;
  EXPECT_FALSE(tensor.defined());
  EXPECT_THROW(tensor.shape(), InvalidArgument);
}

TEST(Tensor, WithoutAContext_CreationThrows) {
  EXPECT_THROW(Tensor::zeros(Shape{1}), InvalidArgument);
}

TEST(Tensor, From_EveryDtype_RoundTrips) {
  Rank rank;
  const std::vector<double> values{0, 1, -2, 3.5, 64, -0.25};
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    const Tensor tensor = Tensor::from(values, Shape{2, 3}, dtype);
    EXPECT_EQ(tensor.to_vector<double>(), values) << name_of(dtype);
  }
  const std::vector<int64_t> integers{0, 1, 2, 250};
  for (const DType dtype : {DType::i64, DType::i32, DType::u8}) {
    EXPECT_EQ(Tensor::from(integers, Shape{4}, dtype).to_vector<int64_t>(), integers);
    EXPECT_EQ(Tensor::from(integers, Shape{4}, dtype).to_vector<int32_t>(),
              (std::vector<int32_t>{0, 1, 2, 250}));
  }
}

TEST(Tensor, From_DoubleTo16Bit_RoundsOnce) {
  Rank rank;
  // 1 + 2^-8 + 2^-40 lies above the middle of two bf16 neighbours, but its f32 lies on it and would
  // go to the even one below; the f16 case is the same with 2^-11.
  const std::vector<double> values{1 + 0x1p-8 + 0x1p-40, 1 + 0x1p-11 + 0x1p-40,
                                   -(1 + 0x1p-8 + 0x1p-40), 1 + 0x1p-8 - 0x1p-40};
  const auto as_bf16 = Tensor::from(values, Shape{4}, DType::bf16).to_vector<double>();
  EXPECT_EQ(as_bf16[0], 1 + 0x1p-7);
  EXPECT_EQ(as_bf16[2], -(1 + 0x1p-7));
  EXPECT_EQ(as_bf16[3], 1.0);
  const auto as_f16 = Tensor::from(values, Shape{4}, DType::f16).to_vector<double>();
  EXPECT_EQ(as_f16[1], 1 + 0x1p-10);
}

TEST(Tensor, From_NotFinite_Stays) {
  Rank rank;
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> values{infinity, -infinity, std::nan(""), 1e300};
  const auto read = Tensor::from(values, Shape{4}, DType::bf16).to_vector<double>();
  EXPECT_EQ(read[0], infinity);
  EXPECT_EQ(read[1], -infinity);
  EXPECT_TRUE(std::isnan(read[2]));
  EXPECT_EQ(read[3], infinity);
}

TEST(Tensor, From_WrongCount_Throws) {
  Rank rank;
  EXPECT_THROW(Tensor::from({1, 2, 3}, Shape{2, 2}), InvalidArgument);
}

TEST(Tensor, NarrowAndReshape_ShareMemory) {
  Rank rank;
  Tensor tensor = Tensor::from({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, Shape{3, 4});
  const Tensor middle = tensor.narrow_view(1, 1, 2);
  EXPECT_EQ(middle.storage_id(), tensor.storage_id());
  EXPECT_FALSE(middle.is_contiguous());
  EXPECT_EQ(middle.to_vector<double>(), (std::vector<double>{1, 2, 5, 6, 9, 10}));
  EXPECT_EQ(tensor.reshape_view(Shape{2, 6}).storage_id(), tensor.storage_id());
  EXPECT_THROW(middle.reshape_view(Shape{6}), InvalidArgument);
  EXPECT_THROW(tensor.narrow_view(1, 3, 2), InvalidArgument);

  Tensor part = tensor.narrow_view(0, 1, 1);
  part.fill(7);
  EXPECT_EQ(tensor.to_vector<double>(),
            (std::vector<double>{0, 1, 2, 3, 7, 7, 7, 7, 8, 9, 10, 11}));
}

TEST(Tensor, Clone_OfAStridedView_IsContiguousAndIndependent) {
  Rank rank;
  Tensor tensor = Tensor::from({0, 1, 2, 3, 4, 5}, Shape{2, 3});
  const Tensor copy = tensor.narrow_view(1, 0, 2).clone();
  EXPECT_TRUE(copy.is_contiguous());
  tensor.fill(9);
  EXPECT_EQ(copy.to_vector<double>(), (std::vector<double>{0, 1, 3, 4}));
}

TEST(Tensor, CopyFrom_ConvertsAndChecksShape) {
  Rank rank;
  Tensor tensor = Tensor::zeros(Shape{2}, DType::bf16);
  tensor.copy_from(Tensor::from({1.5f, -3}, Shape{2}));
  EXPECT_EQ(tensor.to_vector<double>(), (std::vector<double>{1.5, -3}));
  EXPECT_THROW(tensor.copy_from(Tensor::zeros(Shape{3})), InvalidArgument);
}

TEST(Tensor, Version_CountsWritesIntoTheStorage) {
  Rank rank;
  Tensor tensor = Tensor::zeros(Shape{4});
  const int64_t before = tensor.version();
  Tensor part = tensor.narrow_view(0, 0, 2);
  part.fill(1);
  part.copy_from(Tensor::zeros(Shape{2}));
  EXPECT_EQ(tensor.version(), before + 2);
}

TEST(Tensor, IsSoleOwner_SeesCopiesViewsAndForeignMemory) {
  Rank rank;
  Tensor tensor = Tensor::zeros(Shape{4});
  EXPECT_TRUE(tensor.is_sole_owner());
  {
    const Tensor view = tensor.narrow_view(0, 0, 2);
    EXPECT_FALSE(tensor.is_sole_owner());
    EXPECT_FALSE(view.is_sole_owner());
  }
  EXPECT_TRUE(tensor.is_sole_owner());
  float memory[4] = {};
  const Tensor wrapped = Tensor::wrap(View(memory, DType::f32, Shape{4}), nullptr);
  EXPECT_FALSE(wrapped.is_sole_owner());
}

TEST(Tensor, Wrap_KeepsTheOwnerUntilTheLastHandleGoes) {
  Rank rank;
  auto owner = std::make_shared<std::vector<float>>(4, 2.0f);
  const std::weak_ptr<std::vector<float>> watch = owner;
  Tensor tensor = Tensor::wrap(View(owner->data(), DType::f32, Shape{4}), owner);
  owner.reset();
  Tensor view = tensor.narrow_view(0, 1, 2);
  tensor = {};
  EXPECT_FALSE(watch.expired());
  EXPECT_EQ(view.to_vector<double>(), (std::vector<double>{2, 2}));
  view = {};
  EXPECT_TRUE(watch.expired());
}

TEST(Tensor, Item_NeedsOneElement) {
  Rank rank;
  EXPECT_EQ(Tensor::full(Shape{}, 2.5).item(), 2.5);
  EXPECT_EQ(Tensor::full(Shape{1, 1}, 3).item(), 3.0);
  EXPECT_THROW(Tensor::zeros(Shape{2}).item(), InvalidArgument);
}

TEST(Tensor, EmptyExtents_Work) {
  Rank rank;
  const Tensor tensor = Tensor::zeros(Shape{0, 3});
  EXPECT_TRUE(tensor.defined());
  EXPECT_TRUE(tensor.to_vector<double>().empty());
  EXPECT_EQ(tensor.clone().shape(), (Shape{0, 3}));
}

TEST(Tensor, Memory_IsLabelledAndGoesWithTheLastHandle) {
  Rank rank;
  auto live = [&](Label label) {
    return rank.context.allocator().report().at(Tier::device, label).live;
  };
  Tensor activation = Tensor::empty(Shape{64});  // 256 bytes: one block
  Tensor parameter = Tensor::empty(Shape{65}, DType::f32, Label::parameters);
  EXPECT_EQ(live(Label::activations), 256);
  EXPECT_EQ(live(Label::parameters), 512);
  Tensor view = activation.narrow_view(0, 0, 1);
  activation = {};
  EXPECT_EQ(live(Label::activations), 256);
  view = {};
  parameter = {};
  EXPECT_EQ(live(Label::activations), 0);
  EXPECT_EQ(live(Label::parameters), 0);
}

// The source of the values is gone, and its block used again, before queued work runs.
TEST(Tensor, ShuffledExecution_GivesTheSameValues) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Rank rank(shuffled(seed));
    Tensor sum = Tensor::zeros(Shape{3});
    for (int i = 0; i < 4; ++i) {
      std::vector<float> values(3, static_cast<float>(i));
      const Tensor step = Tensor::from(values, Shape{3});
      values.assign(3, -1.0f);
      sum = step.clone();
    }
    EXPECT_EQ(sum.to_vector<double>(), (std::vector<double>{3, 3, 3})) << "seed " << seed;
  }
}

TEST(Tensor, OnAMetaDevice_HasShapesAndBytesButNoValues) {
  Rank rank({.device = {.meta = true}});
  Tensor tensor = Tensor::from({1, 2, 3}, Shape{3});
  tensor.fill(4);
  const Tensor copy = tensor.clone();
  EXPECT_EQ(Tensor::zeros(Shape{}).item(), 1.0);
  EXPECT_EQ(copy.to_vector<double>(), (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(rank.context.allocator().report().at(Tier::device, Label::activations).live, 512);
}

TEST(TensorPrint, SmallTensor_ShowsAllValuesAligned) {
  Rank rank;
  EXPECT_EQ(to_string(Tensor::from({1, -2.5f, 3, 10}, Shape{2, 2})),
            "f32[2, 2] on cpu\n[[   1, -2.5],\n [   3,   10]]");
  EXPECT_EQ(to_string(Tensor::full(Shape{}, 0.1)), "f32[] on cpu\n0.1");
  EXPECT_EQ(to_string(Tensor()), "undefined");
}

TEST(TensorPrint, LargeTensor_ShowsEdges) {
  Rank rank;
  std::vector<int64_t> values(2000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int64_t>(i);
  EXPECT_EQ(to_string(Tensor::from(values, Shape{2000})),
            "i64[2000] on cpu\n[   0,    1,    2, ..., 1997, 1998, 1999]");
}

}  // namespace tensor_test
}  // namespace zinc
