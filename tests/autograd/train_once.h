// tests/autograd/train_once.h: one forward and backward pass of the tiny model, and what must not
// depend on how activations are kept.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "autograd/backward.h"
#include "autograd/remade.h"
#include "tests/autograd/rank.h"
#include "tests/autograd/recording_source.h"
#include "tests/autograd/tiny_model.h"

namespace zinc::testing {

struct TrainedOnce {
  double loss = 0;
  std::vector<std::string> done;  // parameters, in the order in which their gradients were
  std::vector<std::vector<double>> gradients;
  int64_t peak = 0;  // bytes of activations; does not count for equality
  friend bool operator==(const TrainedOnce& a, const TrainedOnce& b) {
    return a.loss == b.loss && a.done == b.done && a.gradients == b.gradients;
  }
};

inline TrainedOnce train_once(TinyModelOptions options, ContextOptions context = {},
                              bool remakes = false) {
  Rank rank(std::move(context));
  RecordingSource source;
  options.source = &source;
  TinyModel model(options);
  rank.context.random().set_position(3, 1);
  {
    const autograd::NoGrad no_grad;  // makes the values, so that the peak is that of the pass
    model.loss();
  }
  rank.context.random().set_position(3, 1);
  rank.context.allocator().reset_peaks();
  source.events.clear();
  const autograd::RemakeScope scope(remakes);
  TrainedOnce outcome;
  const Tensor loss = model.loss();
  autograd::backward(loss);
  outcome.loss = loss.item();
  outcome.done = source.done();
  for (const auto& [name, gradient] : source.gradients) {
    outcome.gradients.push_back(gradient.to_vector<double>());
  }
  outcome.peak = rank.context.allocator().report().at(Tier::device, Label::activations).peak;
  EXPECT_EQ(source.num_guards, 0);
  return outcome;
}

}  // namespace zinc::testing
