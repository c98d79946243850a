// apps/evaluate/evaluate_model.h: figures of a model on data, for `zinc evaluate --model`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/run_data.h"
#include "generate/generate.h"
#include "text/scores/score_pairs.h"

namespace CLI {
class App;
}

namespace zinc::apps {

struct ModelEvaluation {
  std::string model;
  std::string tokenizer;
  RunDataArguments data;
  // perplexity; choice; names of text/scores/score_pairs.h.
  std::vector<std::string> metrics;
  text::ScoreOptions scores{};
  generate::GenerateOptions generate{.sampling = {.temperature = 0.0}};
  int stop_token = -1;
  std::string stop_text;
  std::string predictions;  // file that the answers are written to; empty: none
  std::string dtype = "f32";
  std::string device = "cpu";
  int64_t seq = 0;    // 0: kDefaultSequence, or the model's positions
  int64_t batch = 4;  // sequences, of perplexity
  int64_t limit = 0;  // examples; 0: all
  int num_threads = 0;
  bool sharded = false;
  bool json = false;
};

void add_model_evaluation_options(CLI::App& verb, ModelEvaluation& options);

// Called on all ranks; the first one prints. Returns the exit code.
int evaluate_model(const ModelEvaluation& options);

}  // namespace zinc::apps
