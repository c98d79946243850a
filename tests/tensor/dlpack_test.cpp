#include "tensor/dlpack.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace zinc {
namespace dlpack_test {

// Another framework's tensor: counts how often it is deleted.
template <class Struct>
struct Foreign {
  std::vector<float> values{0, 1, 2, 3, 4, 5};
  std::array<int64_t, 2> shape{2, 3};
  std::array<int64_t, 2> strides{3, 1};
  int deleted = 0;
  Struct managed{};

  Foreign() {
    managed.tensor = {.data = values.data(),
                      .device = {dlpack::kDeviceCpu, 0},
                      .ndim = 2,
                      .dtype = {dlpack::kCodeFloat, 32, 1},
                      .shape = shape.data(),
                      .strides = strides.data(),
                      .byte_offset = 0};
    managed.manager_context = this;
    managed.deleter = [](Struct* self) { ++static_cast<Foreign*>(self->manager_context)->deleted; };
    if constexpr (requires { managed.version; }) managed.version = dlpack::kVersion;
  }
};

class Dlpack : public ::testing::Test {
 protected:
  Context context_;
  ContextScope scope_{context_};
};

// Offsets as in dlpack.h 1.1 on a 64-bit machine.
TEST_F(Dlpack, Layout_IsThatOfTheAbi) {
  EXPECT_EQ(sizeof(dlpack::DataType), 4u);
  EXPECT_EQ(offsetof(dlpack::TensorFields, device), 8u);
  EXPECT_EQ(offsetof(dlpack::TensorFields, ndim), 16u);
  EXPECT_EQ(offsetof(dlpack::TensorFields, dtype), 20u);
  EXPECT_EQ(offsetof(dlpack::TensorFields, shape), 24u);
  EXPECT_EQ(offsetof(dlpack::TensorFields, strides), 32u);
  EXPECT_EQ(offsetof(dlpack::ManagedVersioned, manager_context), 8u);
  EXPECT_EQ(offsetof(dlpack::ManagedVersioned, deleter), 16u);
  EXPECT_EQ(offsetof(dlpack::Managed, manager_context), 48u);
}

TEST_F(Dlpack, Export_SharesMemoryUntilTheDeleterRuns) {
  auto live = [&] { return context_.allocator().report().at(Tier::device).live; };
  Tensor tensor = Tensor::from({0, 1, 2, 3, 4, 5}, Shape{2, 3}, DType::bf16);
  dlpack::ManagedVersioned* managed = dlpack::to_dlpack(tensor.narrow_view(1, 1, 2));
  const void* data = tensor.view().data();
  tensor = {};
  EXPECT_EQ(live(), kBlockAlignment);
  EXPECT_EQ(managed->version.major, 1u);
  EXPECT_EQ(managed->flags, 0u);
  EXPECT_EQ(managed->tensor.data, static_cast<const std::byte*>(data) + 2);
  EXPECT_EQ(managed->tensor.ndim, 2);
  EXPECT_EQ(managed->tensor.shape[1], 2);
  EXPECT_EQ(managed->tensor.strides[0], 3);
  EXPECT_EQ(managed->tensor.dtype.code, dlpack::kCodeBfloat);
  EXPECT_EQ(managed->tensor.dtype.bits, 16);
  managed->deleter(managed);
  EXPECT_EQ(live(), 0);
}

TEST_F(Dlpack, RoundTrip_EveryDtype_KeepsValuesAndMemory) {
  for (const DType dtype :
       {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8}) {
    const Tensor tensor = Tensor::from(std::vector<int64_t>{1, 2, 3, 4}, Shape{4, 1}, dtype);
    const Tensor versioned = dlpack::from_dlpack(dlpack::to_dlpack(tensor));
    const Tensor legacy = dlpack::from_dlpack(dlpack::to_dlpack_legacy(tensor));
    for (const Tensor& back : {versioned, legacy}) {
      EXPECT_EQ(back.dtype(), dtype);
      EXPECT_EQ(back.view().data(), tensor.view().data());
      EXPECT_EQ(back.to_vector<double>(), (std::vector<double>{1, 2, 3, 4}));
    }
  }
}

TEST_F(Dlpack, Import_DeletesOnceWithTheLastHandle) {
  Foreign<dlpack::ManagedVersioned> versioned;
  Foreign<dlpack::Managed> legacy;
  legacy.managed.tensor.strides = nullptr;  // compact row-major
  Tensor a = dlpack::from_dlpack(&versioned.managed);
  Tensor b = dlpack::from_dlpack(&legacy.managed);
  EXPECT_EQ(a.to_vector<float>(), versioned.values);
  EXPECT_EQ(b.to_vector<float>(), legacy.values);
  Tensor view = a.narrow_view(0, 1, 1);
  a = b = {};
  EXPECT_EQ(versioned.deleted, 0);
  EXPECT_EQ(legacy.deleted, 1);
  view = {};
  EXPECT_EQ(versioned.deleted, 1);
}

TEST_F(Dlpack, Import_UsesByteOffsetAndStrides) {
  Foreign<dlpack::ManagedVersioned> foreign;
  foreign.managed.tensor.byte_offset = sizeof(float);
  foreign.shape = {2, 2};
  EXPECT_EQ(dlpack::from_dlpack(&foreign.managed).to_vector<float>(),
            (std::vector<float>{1, 2, 4, 5}));
}

TEST_F(Dlpack, Import_ReadOnlyMemory_IsCopied) {
  Foreign<dlpack::ManagedVersioned> foreign;
  foreign.managed.flags = dlpack::kFlagReadOnly;
  Tensor tensor = dlpack::from_dlpack(&foreign.managed);
  EXPECT_EQ(foreign.deleted, 1);
  tensor.fill(9);
  EXPECT_EQ(foreign.values[0], 0.0f);
}

TEST_F(Dlpack, Import_OfWhatCannotBeUsed_ThrowsAndLeavesItToTheCaller) {
  const auto refused = [](auto change) {
    Foreign<dlpack::ManagedVersioned> foreign;
    change(foreign);
    EXPECT_THROW(dlpack::from_dlpack(&foreign.managed), InvalidArgument);
    EXPECT_EQ(foreign.deleted, 0);
  };
  refused([](auto& f) { f.managed.version.major = 2; });
  refused([](auto& f) { f.managed.tensor.device.type = dlpack::kDeviceCuda; });
  refused([](auto& f) { f.managed.tensor.dtype.lanes = 2; });
  refused([](auto& f) { f.managed.tensor.dtype.code = 5; });
  refused([](auto& f) { f.strides = {1, 2}; });
  refused([](auto& f) { f.strides = {-3, 1}; });
  refused([](auto& f) { f.managed.tensor.data = nullptr; });
  refused([](auto& f) { f.managed.tensor.ndim = kMaxRank + 1; });
}

TEST_F(Dlpack, Import_WithoutElementsAndMemory_Works) {
  Foreign<dlpack::ManagedVersioned> foreign;
  foreign.shape = {0, 3};
  foreign.managed.tensor.data = nullptr;
  EXPECT_EQ(dlpack::from_dlpack(&foreign.managed).shape(), (Shape{0, 3}));
  EXPECT_EQ(foreign.deleted, 1);
}

class SomeHistory : public GradientHistory {};

TEST_F(Dlpack, Export_OfHistoryOrMeta_Throws) {
  Tensor tensor = Tensor::zeros(Shape{1});
  tensor.set_history(std::make_shared<SomeHistory>());
  EXPECT_THROW(dlpack::to_dlpack(tensor), InvalidArgument);
  Context meta({.device = {.meta = true}});
  const ContextScope scope(meta);
  EXPECT_THROW(dlpack::to_dlpack(Tensor::zeros(Shape{1})), InvalidArgument);
}

// Foreign memory may not go while queued work still reads it.
TEST_F(Dlpack, Import_DroppedWhileWorkIsQueued_DeletesAfterTheWork) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Context context({.execution = ContextOptions::Execution::shuffled, .shuffle_seed = seed});
    const ContextScope scope(context);
    Foreign<dlpack::ManagedVersioned> foreign;
    foreign.managed.deleter = [](dlpack::ManagedVersioned* self) {
      static_cast<Foreign<dlpack::ManagedVersioned>*>(self->manager_context)
          ->values.assign(6, -1.0f);
    };
    const Tensor copy = dlpack::from_dlpack(&foreign.managed).clone();
    EXPECT_EQ(copy.to_vector<float>(), (std::vector<float>{0, 1, 2, 3, 4, 5})) << "seed " << seed;
    EXPECT_EQ(foreign.values[0], -1.0f);
  }
}

// The owner outlives the context that it was made in.
TEST_F(Dlpack, Import_DroppedAfterItsContext_StillDeletes) {
  Foreign<dlpack::ManagedVersioned> foreign;
  Tensor tensor;
  {
    Context context;
    const ContextScope scope(context);
    tensor = dlpack::from_dlpack(&foreign.managed);
  }
  tensor = {};
  EXPECT_EQ(foreign.deleted, 1);
}

}  // namespace dlpack_test
}  // namespace zinc
