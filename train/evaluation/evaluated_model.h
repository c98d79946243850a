// train/evaluation/evaluated_model.h: weights of a Hugging Face folder that are asked, not trained.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/world.h"
#include "core/dtype.h"
#include "generate/generate.h"
#include "hub/model.h"
#include "nn/model.h"
#include "zero/engine.h"

namespace zinc::train {

struct EvaluatedModelOptions {
  DType dtype = DType::f32;
  // The weights are spread over the ranks (ZeRO stage 3); false: each rank has all of them.
  bool sharded = false;
  int64_t sequences = 1;  // in the largest batch; `positions` are those of its texts
  int64_t positions = 0;  // 0: as many as the model has
  std::string adapter{};  // folder of an adapter of the model; empty: none
};

// An engine that only computes (zero::EngineOptions::computes_only), on the world's device. Where
// weights are sharded, a rank's call waits for the same call of all others: every rank has to make
// as many, in the same order.
class EvaluatedModel {
 public:
  // `world` must outlive it. Collective. Throws as FolderWeights does.
  EvaluatedModel(const std::string& folder, const hub::ModelConfig& config, comm::World& world,
                 const EvaluatedModelOptions& options = {});
  ~EvaluatedModel();

  nn::Model& model() { return *model_; }
  comm::World& world() { return world_; }

  // The summed loss of a batch of this rank.
  zero::Evaluation evaluate(const nn::Batch& batch);
  // The likeliest class of each row of a batch, by an nn::HasOutputs that has logits [B, classes].
  // NumericsError where logits are no numbers.
  std::vector<int32_t> classify(const nn::Batch& batch);
  // Texts for this rank's prompts: generate::write_texts().
  std::vector<generate::GeneratedTexts> generate(std::vector<std::vector<int32_t>> prompts,
                                                 const generate::GenerateOptions& options,
                                                 const generate::OnToken& on_token = {});

 private:
  comm::World& world_;
  std::unique_ptr<nn::Model> model_;
  std::unique_ptr<zero::Engine> engine_;
};

// Work on `count` items that the ranks share: rank r does items r, r + W, ... `work` is called
// equally often on every rank: with -1 if no item is left, and after it has thrown on this rank. At
// the end that rank throws its exception, and the others PeerFailed. Collective.
void for_each_of_rank(comm::World& world, int64_t count,
                      const std::function<void(int64_t item)>& work);
// Brings one value of each item to every rank, in the order of the items: `mine` are this rank's,
// in the order of for_each_of_rank(). Collective.
std::vector<double> gather_items(comm::World& world, int64_t count, std::span<const double> mine);
// The same of lists of tokens.
std::vector<std::vector<int32_t>> gather_items(comm::World& world, int64_t count,
                                               std::span<const std::vector<int32_t>> mine);

}  // namespace zinc::train
