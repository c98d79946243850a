#include "core/view.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <string>
#include <vector>

namespace zinc {
namespace view_test {

TEST(Shape, Extents_AndTheirProducts) {
  const Shape shape{2, 3, 4};
  EXPECT_EQ(shape.rank(), 3);
  EXPECT_EQ(shape[1], 3);
  EXPECT_EQ(shape.dim(-1), 4);
  EXPECT_EQ(shape.dim(-3), 2);
  EXPECT_EQ(shape.numel(), 24);
  EXPECT_EQ(shape.rows(), 6);
  EXPECT_EQ(shape.cols(), 4);
  EXPECT_EQ(to_string(shape), "[2, 3, 4]");
  EXPECT_EQ(std::accumulate(shape.begin(), shape.end(), int64_t{0}), 9);
}

TEST(Shape, Scalar_HasOneElement) {
  const Shape scalar;
  EXPECT_EQ(scalar.rank(), 0);
  EXPECT_EQ(scalar.numel(), 1);
  EXPECT_EQ(scalar.rows(), 1);
  EXPECT_EQ(scalar.cols(), 1);
  EXPECT_EQ(to_string(scalar), "[]");
}

TEST(Shape, Equality_IsOfRankAndExtents) {
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_NE((Shape{2}), (Shape{2, 1}));
  Shape changed{2, 3, 4};
  changed.set(2, 5);
  EXPECT_EQ(changed, (Shape{2, 3, 5}));
}

TEST(Shape, OutsideTheContract_Throws) {
  EXPECT_THROW(Shape({1, -1}), InvalidArgument);
  EXPECT_THROW(Shape({1, 1, 1, 1, 1, 1, 1}), InvalidArgument);
  Shape shape{2, 3};
  EXPECT_THROW(shape[2], InvalidArgument);
  EXPECT_THROW(shape[-1], InvalidArgument);
  EXPECT_THROW(shape.dim(-3), InvalidArgument);
  EXPECT_THROW(shape.dim(2), InvalidArgument);
  EXPECT_THROW(shape.set(2, 1), InvalidArgument);
  EXPECT_THROW(shape.set(0, -1), InvalidArgument);
  EXPECT_THROW(Shape().dim(-1), InvalidArgument);
}

TEST(Shape, ProductBeyondInt64_Throws) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  EXPECT_EQ((Shape{kMax, 1}).numel(), kMax);
  EXPECT_THROW((Shape{kMax, 2}).numel(), InvalidArgument);
  EXPECT_THROW((Shape{int64_t{1} << 32, int64_t{1} << 31, 1}).rows(), InvalidArgument);
}

class ViewTest : public testing::Test {
 protected:
  // [2, 3, 4] f32 with the values 0 to 23.
  ViewTest() : values_(24) { std::iota(values_.begin(), values_.end(), 0.0f); }
  View view() { return {values_.data(), DType::f32, Shape{2, 3, 4}}; }
  // The element at (i, j, k) of a view of rank 3.
  static float at(const ConstView& v, int64_t i, int64_t j, int64_t k) {
    return v.data_as<float>()[i * v.stride(0) + j * v.stride(1) + k * v.stride(2)];
  }

  std::vector<float> values_;
};

TEST_F(ViewTest, Contiguous_HasRowMajorStrides) {
  const View v = view();
  EXPECT_EQ(v.stride(0), 12);
  EXPECT_EQ(v.stride(1), 4);
  EXPECT_EQ(v.stride(-1), 1);
  EXPECT_EQ(v.bytes(), 96);
  EXPECT_EQ(v.rows(), 6);
  EXPECT_EQ(v.cols(), 4);
  EXPECT_TRUE(v.is_contiguous());
  EXPECT_EQ(to_string(v), "f32[2, 3, 4] on cpu");
  EXPECT_TRUE(v);
  EXPECT_FALSE(View());
}

TEST_F(ViewTest, Narrow_SelectsElementsInEveryDimension) {
  const View v = view();
  for (int dim = 0; dim < 3; ++dim) {
    const int64_t length = v.dim(dim) - 1;
    const ConstView part = v.narrow(dim - (dim == 2 ? 3 : 0), 1, length);  // -1 is the last
    EXPECT_EQ(part.dim(dim), length);
    for (int64_t i = 0; i < part.dim(0); ++i) {
      for (int64_t j = 0; j < part.dim(1); ++j) {
        for (int64_t k = 0; k < part.dim(2); ++k) {
          const int64_t shift[3] = {dim == 0 ? 1 : 0, dim == 1 ? 1 : 0, dim == 2 ? 1 : 0};
          EXPECT_EQ(at(part, i, j, k), at(v, i + shift[0], j + shift[1], k + shift[2]));
        }
      }
    }
    EXPECT_EQ(part.is_contiguous(), dim == 0);
  }
}

TEST_F(ViewTest, Narrow_OfANarrow_Composes) {
  const ConstView part = view().narrow(1, 1, 2).narrow(2, 1, 3).narrow(1, 1, 1);
  EXPECT_EQ(part.shape(), (Shape{2, 1, 3}));
  EXPECT_EQ(at(part, 1, 0, 0), 12 + 8 + 1);
}

TEST_F(ViewTest, Narrow_Outside_Throws) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  EXPECT_THROW(view().narrow(1, 1, 3), InvalidArgument);
  EXPECT_THROW(view().narrow(1, -1, 1), InvalidArgument);
  EXPECT_THROW(view().narrow(1, 0, -1), InvalidArgument);
  EXPECT_THROW(view().narrow(1, 4, 0), InvalidArgument);
  EXPECT_THROW(view().narrow(1, 1, kMax), InvalidArgument);
  EXPECT_THROW(view().narrow(3, 0, 1), InvalidArgument);
  EXPECT_THROW(view().narrow(-4, 0, 1), InvalidArgument);
  EXPECT_EQ(view().narrow(1, 3, 0).numel(), 0);
}

TEST_F(ViewTest, IsContiguous_IgnoresDimensionsOfOneAndEmptyViews) {
  const View v = view();
  EXPECT_TRUE(v.narrow(0, 0, 1).narrow(1, 0, 2).is_contiguous());
  EXPECT_TRUE(v.narrow(1, 0, 0).is_contiguous());
  EXPECT_FALSE(v.narrow(1, 0, 2).is_contiguous());
}

TEST_F(ViewTest, Reshape_KeepsTheElements) {
  const ConstView flat = view().reshape(Shape{4, 6});
  EXPECT_EQ(flat.data_as<float>()[3 * flat.stride(0) + 5], 23.0f);
  EXPECT_EQ(view().narrow(0, 1, 1).reshape(Shape{12}).data_as<float>()[0], 12.0f);
  EXPECT_THROW(view().reshape(Shape{5, 5}), InvalidArgument);
  EXPECT_THROW(view().narrow(1, 0, 2).reshape(Shape{16}), InvalidArgument);
  EXPECT_EQ(view().narrow(0, 0, 0).reshape(Shape{0, 7}).shape(), (Shape{0, 7}));
}

TEST_F(ViewTest, AsDtype_ReadsTheSameBytes) {
  const View v = view();
  EXPECT_EQ(v.as_dtype(DType::i32).shape(), v.shape());
  EXPECT_EQ(v.as_dtype(DType::i32).data(), v.data());
  EXPECT_EQ(v.as_dtype(DType::u8).shape(), Shape{96});
  EXPECT_EQ(v.as_dtype(DType::f64).shape(), Shape{12});
  EXPECT_THROW(v.narrow(1, 0, 2).as_dtype(DType::i32), InvalidArgument);
  const View odd(values_.data(), DType::f32, Shape{3});
  EXPECT_THROW(odd.as_dtype(DType::f64), InvalidArgument);
}

TEST_F(ViewTest, DataAs_AnotherType_IsABug) {
  EXPECT_THROW(view().data_as<double>(), InternalError);
  static_assert(std::is_same_v<decltype(view().data_as<float>()), float*>);
  static_assert(std::is_same_v<decltype(ConstView().data_as<float>()), const float*>);
  static_assert(!std::is_convertible_v<ConstView, View>);
}

TEST_F(ViewTest, Constructor_StridedInnermostDimension_Throws) {
  EXPECT_THROW(View(values_.data(), DType::f32, Shape{3, 2}, Strides{1, 3}, kCpu, Tier::device),
               InvalidArgument);
  const View column(values_.data(), DType::f32, Shape{3, 1}, Strides{4, 4}, kCpu, Tier::device);
  EXPECT_FALSE(column.is_contiguous());
}

TEST_F(ViewTest, Checks_NameOpArgumentAndBothSides) {
  const View v = view();
  const auto message = [](const auto& body) -> std::string {
    try {
      body();
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  require_dtype("gemm", "a", v, DType::f32);
  require_shape("gemm", "a", v, Shape{2, 3, 4});
  require_contiguous("gemm", "a", v);
  require_computable("gemm", "a", v);
  require_same_device("gemm", {v, View(), v});
  EXPECT_EQ(message([&] { require_dtype("gemm", "a", v, DType::bf16); }),
            "gemm: a must be bf16, not f32");
  EXPECT_EQ(message([&] { require_shape("gemm", "a", v, Shape{2}); }),
            "gemm: a must have shape [2], not [2, 3, 4]");
  EXPECT_EQ(message([&] { require_contiguous("gemm", "a", v.narrow(1, 0, 2)); }),
            "gemm: a of shape [2, 2, 4] must be contiguous; copy it with contiguous() first");
  const View pinned(values_.data(), DType::f32, Shape{2}, kCpu, Tier::pinned_host);
  EXPECT_EQ(message([&] { require_computable("gemm", "a", pinned); }),
            "gemm: a lies in tier pinned_host; kernels compute on device memory only");
  const View other(values_.data(), DType::f32, Shape{2}, Device{.kind = DeviceKind::cuda});
  EXPECT_EQ(message([&] {
              require_same_device("gemm", {v, View(), other});
            }),
            "gemm: all arguments must be on one device: cpu vs cuda:0");
}

}  // namespace view_test
}  // namespace zinc
