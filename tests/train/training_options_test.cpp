#include "train/training_options.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace zinc::train {
namespace training_options_test {

TEST(TrainingOptions, TheTextThatRanksCompare_HasEveryOptionButThePlaces) {
  const std::vector<TrainingOptions> all{
      {},
      {.steps = 3},
      {.eval_every = 3},
      {.eval_each_epoch = true},
      {.eval_on_start = true},
      {.eval_delay = 0.5},
      {.best = {.metric = "perplexity"}},
      {.best = {.greater_is_better = true}},
      {.best = {.patience = 3}},
      {.best = {.threshold = 3.0}},
      {.best = {.load_at_end = true}},
      {.export_every = 3},
      {.sample_every = 3},
      {.histogram_every = 3},
      {.reset_optimizer = true},
      {.reset_errors = true},
      {.allow_damaged = true},
  };
  std::set<std::string> texts;
  for (const TrainingOptions& options : all) texts.insert(text_of(options));
  EXPECT_EQ(texts.size(), all.size());
  EXPECT_EQ(text_of({.out = "/scratch/run", .force = true, .resume = "auto"}), text_of({}));
}

}  // namespace training_options_test
}  // namespace zinc::train
