#include "zero/late_update.h"

#include <utility>

#include "core/error.h"

namespace zinc::zero {

LateUpdate::LateUpdate(std::vector<int> order, WeightStore& weights, GradientStore& gradients,
                       OptimizerStep& step)
    : order_(std::move(order)),
      places_(order_.size()),
      weights_(weights),
      gradients_(gradients),
      step_(step),
      next_use_(order_.size()) {
  for (size_t place = 0; place < order_.size(); ++place) {
    places_[static_cast<size_t>(order_[place])] = place;
  }
}

template <class Work>
void LateUpdate::guarded(const Work& work) {
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  try {
    work();
  } catch (...) {
    failure_ = std::current_exception();
    throw;
  }
}

void LateUpdate::begin(const StepArguments& args, Tensor factor) {
  finish();
  guarded([&] {
    args_.emplace(args);
    factor_ = std::move(factor);
    next_use_ = 0;
    arrived_ = false;
    gradients_.discard_all_but_host();
    weights_.expect_updates();
    step_.defer(args);
  });
}

void LateUpdate::use(int group) {
  if (!args_) return;
  guarded([&] {
    const size_t place = places_[static_cast<size_t>(group)];
    for (; next_use_ <= place; ++next_use_) {
      const int next = order_[next_use_];
      if (!arrived_) step_.finish(next);
      gradients_.discard_host(next);
      weights_.publish_group(next);
    }
    if (!arrived_) step_.advance();
    end_where_done();
  });
}

void LateUpdate::use_all() {
  if (!order_.empty()) use(order_.back());
}

void LateUpdate::finish_own() {
  if (!args_ || arrived_) return;
  guarded([&] {
    step_.run(*args_);
    weights_.settle_updates();
    arrived_ = true;
    end_where_done();
  });
}

void LateUpdate::end_where_done() {
  if (!arrived_ || next_use_ < order_.size()) return;
  args_.reset();
  factor_ = {};
}

void LateUpdate::finish() {
  use_all();
  finish_own();
}

}  // namespace zinc::zero
