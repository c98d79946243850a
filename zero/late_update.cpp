#include "zero/late_update.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace zinc::zero {

LateUpdate::LateUpdate(std::vector<int> order, WeightStore& weights, GradientStore& gradients,
                       OptimizerStep& step, StreamRef compute)
    : order_(std::move(order)),
      places_(order_.size()),
      weights_(weights),
      gradients_(gradients),
      step_(step),
      compute_(compute),
      next_publish_(order_.size()),
      next_use_(order_.size()),
      published_(order_.size()) {
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

void LateUpdate::begin(const StepArguments& args, bool skipped) {
  finish();
  guarded([&] {
    args_.emplace(args);
    next_publish_ = 0;
    next_use_ = 0;
    arrived_ = false;
    skipped_ = skipped;
    weights_.expect_updates(skipped);
    if (!skipped) step_.defer(args);
    gradients_.discard_all_but_host();
    publish_until(step_.groups_ahead());
  });
}

void LateUpdate::publish_until(size_t end) {
  for (; next_publish_ < std::min(end, order_.size()); ++next_publish_) {
    const int group = order_[next_publish_];
    std::vector<Event>& events = published_[next_publish_];
    if (!arrived_ && !skipped_) events = step_.finish(group);
    events.push_back(weights_.publish_group(group, events));
  }
}

void LateUpdate::use(int group) {
  if (!args_) return;
  guarded([&] {
    const size_t place = places_[static_cast<size_t>(group)];
    for (; next_use_ <= place; ++next_use_) {
      publish_until(next_use_ + 1);
      for (const Event& event : published_[next_use_]) compute_->wait(event);
      published_[next_use_].clear();
      gradients_.discard_host(order_[next_use_]);
    }
    publish_until(place + 1 + step_.groups_ahead());
    if (!arrived_ && !skipped_) step_.advance();
    end_where_done();
  });
}

void LateUpdate::use_all() {
  if (!order_.empty()) use(order_.back());
}

void LateUpdate::finish_own() {
  if (!args_) return;
  guarded([&] {
    if (!arrived_ && !skipped_) {
      step_.run(*args_);
      weights_.settle_updates();
    }
    arrived_ = true;
    // Nothing of this rank needs them any more. Of groups that were used there may be new ones.
    for (size_t place = next_use_; place < order_.size(); ++place) {
      gradients_.discard_host(order_[place]);
    }
    end_where_done();
  });
}

void LateUpdate::end_where_done() {
  if (!arrived_ || next_use_ < order_.size()) return;
  args_.reset();
}

void LateUpdate::finish() {
  use_all();
  finish_own();
}

}  // namespace zinc::zero
