// autograd/mode.h: the state of autograd in a Context: whether ops record their history, and where
// they save.
#pragma once

#include <cstdint>

#include "core/context.h"
#include "core/stream.h"

namespace zinc::autograd {

class RecordedDraws;
class RecordedSeed;
class SavedTensorStore;

// The gradient that a loss is expected to receive: a value, or a place on the device while work is
// recorded.
struct LossGradient {
  double value = 1.0;
  const RecordedSeed* recorded = nullptr;  // used in place of the value, unless null
};

// Lives in a slot of the Context. Scopes change it; ops read it.
struct Mode {
  bool gradients_enabled = true;
  // The store in which ops save activations; null: activations stay where they are.
  SavedTensorStore* store = nullptr;
  // The store in which recompute() saves its inputs while `store` is null; null: inputs stay where
  // they are.
  SavedTensorStore* recompute_store = nullptr;
  // Backward makes cheap results again instead of keeping them: Note [Remade results]. Only while
  // `store` is null.
  bool remakes = false;
  // The engine's loss scale. See ops/linear_cross_entropy.h.
  LossGradient expected_loss_gradient;
  // The stream for the kernels of ops; null: the compute stream. Only a replay that has saved
  // everything sets it, to a stream that drops work.
  Stream* stream = nullptr;
  // The keys of random numbers on the device, while work is recorded (CUDA graphs); null: kernels
  // take keys by value.
  RecordedDraws* draws = nullptr;
  int64_t last_sequence = 0;  // sequence number of the newest node

  static Mode& current() { return Context::current().slot<Mode>(); }
};

inline bool gradients_enabled() { return Mode::current().gradients_enabled; }

// The stream of every op's kernels, forward and backward.
StreamRef compute_stream();

namespace detail {

// Sets one member of the current context's mode until the end of the scope.
template <class T>
class ModeScope {
 public:
  ModeScope(T Mode::*member, T value) : mode_(Mode::current()), member_(member) {
    previous_ = mode_.*member_;
    mode_.*member_ = value;
  }
  ~ModeScope() { mode_.*member_ = previous_; }
  ModeScope(const ModeScope&) = delete;
  ModeScope& operator=(const ModeScope&) = delete;

 private:
  Mode& mode_;
  T Mode::*member_;
  T previous_;
};

}  // namespace detail

// Ops record no history until the end of the scope. Scopes nest.
class NoGrad : detail::ModeScope<bool> {
 public:
  NoGrad() : ModeScope(&Mode::gradients_enabled, false) {}
};

// Ops record again inside a NoGrad scope.
class EnableGrad : detail::ModeScope<bool> {
 public:
  EnableGrad() : ModeScope(&Mode::gradients_enabled, true) {}
};

// The gradient with which backward will be called on the loss that is computed inside the scope.
class ExpectedLossGradient : detail::ModeScope<LossGradient> {
 public:
  explicit ExpectedLossGradient(const LossGradient& gradient)
      : ModeScope(&Mode::expected_loss_gradient, gradient) {}
  explicit ExpectedLossGradient(double value) : ExpectedLossGradient(LossGradient{value}) {}
};

// Ops draw random numbers through `draws` inside the scope.
class DrawScope : detail::ModeScope<RecordedDraws*> {
 public:
  explicit DrawScope(RecordedDraws* draws) : ModeScope(&Mode::draws, draws) {}
};

}  // namespace zinc::autograd
