// zero/evaluation_scope.h: a model that evaluates while the scope lives: dropout is off.
#pragma once

#include <vector>

#include "comm/world.h"
#include "zero/engine.h"

#include "nn/model.h"

namespace zinc::zero {

class EvaluationScope {
 public:
  explicit EvaluationScope(nn::Model& model) : model_(model), training_(model.is_training()) {
    model_.train(false);
  }
  ~EvaluationScope() { model_.train(training_); }
  EvaluationScope(const EvaluationScope&) = delete;
  EvaluationScope& operator=(const EvaluationScope&) = delete;

 private:
  nn::Model& model_;
  bool training_;
};

// One from every rank, by rank. Collective.
std::vector<Evaluation> gather_evaluations(comm::World& world, const Evaluation& part);

}  // namespace zinc::zero
