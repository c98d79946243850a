// optim/whole_optimizer.h: an optimizer whose whole rule takes every parameter.
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "optim/optimizer.h"

namespace zinc::optim {

class WholeOptimizer final : public Optimizer {
 public:
  // `rule` takes every trained parameter. `states`, `weights`: state_dtype(), weights_dtype().
  WholeOptimizer(std::string_view name, std::unique_ptr<WholeRule> rule, DType states = DType::f32,
                 DType weights = DType::f32)
      : name_(name), rule_(std::move(rule)), states_(states), weights_(weights) {
    require(rule_->asked() == WholeRule::Asked::all, name,
            ": its rule takes no more than matrices");
  }
  std::string_view name() const override { return name_; }
  const WholeRule* whole_rule() const override { return rule_.get(); }
  DType state_dtype() const override { return states_; }
  DType weights_dtype() const override { return weights_; }
  int num_states() const override { return 0; }
  std::string_view state_name(int i) const override {
    throw InvalidArgument(str(name_, ": there is no state ", i));
  }
  void update(const Update&, const HyperParameters&, StreamRef) const override {
    bug_check(false, name_, ": a parameter is left to update()");
  }

 private:
  const std::string_view name_;
  const std::unique_ptr<WholeRule> rule_;
  const DType states_;
  const DType weights_;
};

}  // namespace zinc::optim
