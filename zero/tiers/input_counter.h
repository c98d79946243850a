// zero/tiers/input_counter.h: how much room the saved inputs of a step need, known before the first
// step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "autograd/saved_tensor_store.h"
#include "tensor/tensor.h"

namespace zinc::zero {

// Places for saved inputs, all of one size.
struct InputRoom {
  int64_t count = 0;  // inputs that are kept at once
  int64_t bytes = 0;  // of the largest; 0: not known
};

// Keeps inputs as they are, and counts them: for autograd::RecomputeInputScope while a step is
// recorded. Must outlive its slots.
class InputCounter final : public autograd::SavedTensorStore {
 public:
  // `ranks`: so many keep equal parts of an input: parallel::share_saved().
  explicit InputCounter(int64_t ranks) : ranks_(ranks) {}

  std::unique_ptr<autograd::SavedSlot> save(const Tensor& tensor) override {
    return std::make_unique<Slot>(*this, tensor);
  }
  // For all inputs that came.
  InputRoom room() const { return room_; }

 private:
  class Slot final : public autograd::SavedSlot {
   public:
    Slot(InputCounter& counter, Tensor tensor) : counter_(counter), tensor_(std::move(tensor)) {
      InputRoom& room = counter_.room_;
      room.count = std::max(room.count, ++counter_.kept_);
      const int64_t part = (tensor_.numel() + counter_.ranks_ - 1) / counter_.ranks_;
      room.bytes = std::max(room.bytes, part * size_of(tensor_.dtype()));
    }
    ~Slot() override { --counter_.kept_; }
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;
    Tensor restore() override { return tensor_; }

   private:
    InputCounter& counter_;
    Tensor tensor_;
  };

  const int64_t ranks_;
  int64_t kept_ = 0;
  InputRoom room_;
};

}  // namespace zinc::zero
