#include "zero/update/groupwise_update.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace zinc::zero {

GroupwiseUpdate::GroupwiseUpdate(std::vector<int> order, WeightStore& weights,
                                 GradientStore& gradients, OptimizerStep& step, StreamRef compute)
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
void GroupwiseUpdate::guarded(const Work& work) {
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  if (!args_) return;
  try {
    work();
  } catch (...) {
    failure_ = std::current_exception();
    throw;
  }
}

void GroupwiseUpdate::begin(const StepArguments& args, Kind kind) {
  finish();
  args_.emplace(args);
  guarded([&] {
    next_publish_ = 0;
    next_join_ = 0;
    // During backward passes still use the old weights.
    if (kind != Kind::during_backward) weights_.expect_updates(kind == Kind::skipped);
    is_under_way_ = kind == Kind::in_step || kind == Kind::during_backward;
    if (is_under_way_) step_.begin(args, kind == Kind::during_backward);
  });
}

void GroupwiseUpdate::update(int group) {
  guarded([&] {
    if (is_under_way_) step_.update(group);
  });
}

void GroupwiseUpdate::publish_until(size_t end) {
  for (; next_publish_ < std::min(end, order_.size()); ++next_publish_) {
    const int group = order_[next_publish_];
    std::vector<Event>& events = published_[next_publish_];
    if (is_under_way_) events = step_.finish(group);
    events.push_back(weights_.publish(group, events));
  }
}

void GroupwiseUpdate::publish(int group) {
  guarded([&] { publish_until(places_[static_cast<size_t>(group)] + 1); });
}

void GroupwiseUpdate::join(int group) {
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

void GroupwiseUpdate::advance() {
  guarded([&] {
    if (is_under_way_) step_.advance();
  });
}

void GroupwiseUpdate::end_step() {
  if (next_join_ < order_.size()) return gradients_.discard_all_but_host();
  finish_own();
  gradients_.discard();
}

void GroupwiseUpdate::finish_own() {
  guarded([&] {
    if (std::exchange(is_under_way_, false)) {
      step_.end();
      weights_.settle_updates();
    }
    // This rank needs these gradients no more. Groups before next_join_ may already have new ones.
    for (size_t place = next_join_; place < order_.size(); ++place) {
      gradients_.discard_host(order_[place]);
    }
    end_where_done();
  });
}

void GroupwiseUpdate::end_where_done() {
  if (is_under_way_ || next_join_ < order_.size()) return;
  args_.reset();
}

void GroupwiseUpdate::finish() {
  if (!order_.empty()) join(order_.back());
  finish_own();
}

}  // namespace zinc::zero
