#include "zero/update/late_update.h"

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
      next_join_(order_.size()),
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
    next_join_ = 0;
    arrived_ = false;
    skipped_ = skipped;
    weights_.expect_updates(skipped);
    if (!skipped) step_.defer(args);
    gradients_.discard_all_but_host();
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

void LateUpdate::publish(int group) {
  if (!args_) return;
  guarded([&] { publish_until(places_[static_cast<size_t>(group)] + 1); });
}

void LateUpdate::join(int group) {
  if (!args_) return;
  guarded([&] {
    for (const size_t place = places_[static_cast<size_t>(group)]; next_join_ <= place;
         ++next_join_) {
      publish_until(next_join_ + 1);
      for (const Event& event : published_[next_join_]) compute_->wait(event);
      published_[next_join_].clear();
      gradients_.discard_host(order_[next_join_]);
    }
    end_where_done();
  });
}

void LateUpdate::advance() {
  if (!args_) return;
  guarded([&] {
    if (!arrived_ && !skipped_) step_.advance();
  });
}

void LateUpdate::finish_own() {
  if (!args_) return;
  guarded([&] {
    if (!arrived_ && !skipped_) {
      step_.run(*args_);
      weights_.settle_updates();
    }
    arrived_ = true;
    // This rank needs these gradients no more. Groups before next_join_ may already have new ones.
    for (size_t place = next_join_; place < order_.size(); ++place) {
      gradients_.discard_host(order_[place]);
    }
    end_where_done();
  });
}

void LateUpdate::end_where_done() {
  if (!arrived_ || next_join_ < order_.size()) return;
  args_.reset();
}

void LateUpdate::finish() {
  if (!order_.empty()) join(order_.back());
  finish_own();
}

}  // namespace zinc::zero
