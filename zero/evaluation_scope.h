// zero/evaluation_scope.h: a model that evaluates while the scope lives: dropout is off.
#pragma once

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

}  // namespace zinc::zero
