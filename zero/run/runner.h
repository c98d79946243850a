// zero/run/runner.h: runs the step program under a model.
//
// The runner is the source of the model's parameters while an engine has them. Every use, release
// and finished gradient is an event of the program. When an event arrives, the runner issues the
// ops ahead of it, lets the event take place, and issues the ops behind it. A pass that leaves its
// program is an InvalidArgument that names both sides. The step follows the program too:
// run_step().
//
// A dynamic model (EngineOptions::dynamic_model) has no program of its passes. A group is gathered
// when it is used, and stays until the passes end. Gradients are reduced in the recorded order as
// they are complete. A prediction has no program either: it gives a group back when it uses another
// one and nothing holds the first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "autograd/parameter.h"
#include "zero/group/gathered_weights.h"
#include "zero/group/gradient_store.h"
#include "zero/layout/shard_group.h"
#include "zero/program/policy.h"
#include "zero/program/program.h"
#include "zero/run/lockstep.h"
#include "zero/update/weight_update.h"
#include "zero/update/whole_step.h"

namespace zinc::zero {

class Runner final : public autograd::ParameterSource {
 public:
  // The objects that a program works on; all of them outlive the runner.
  struct Training {
    const std::vector<int>& reduce_order;
    GradientStore& gradients;
    WholeStep& step;
    WeightUpdate& update;
  };
  struct Parts {
    const ShardGroups& groups;
    const Program& program;
    const StepPolicy& policy;
    bool is_dynamic = false;  // nothing is known of a pass in advance
    GatheredWeights& weights;
    std::optional<Training> training;  // absent: all passes are without a backward pass
    Lockstep* lockstep = nullptr;      // null: ranks need not be kept together
    OnPlace on_place{};                // behind every place but releases; may be empty
  };
  explicit Runner(const Parts& parts);

  // A pass that the engine runs. Parameters can be used while one lives, and nowhere else.
  class Pass {
   public:
    explicit Pass(Runner& runner) : runner_(runner) { ++runner_.passes_; }
    ~Pass() { --runner_.passes_; }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;
    void end() const { runner_.end(); }

   private:
    Runner& runner_;
  };

  // The order of a pass without a backward pass. program: that of the evaluation's program. uses:
  // not known in advance; a group is gathered when it is used, and given back when another one is
  // used.
  enum class Follows : uint8_t { program, uses };

  // A pass begins. An evaluation ends the update that is under way first.
  void begin_evaluation(Follows follows = Follows::program);
  void begin_forward(const MicroBatchKind& kind);
  // `of_weights`: the pass makes the gradients that a backward pass has left for later, where the
  // program makes those of weights apart.
  void begin_backward(const MicroBatchKind& kind, bool of_weights = false);
  // After the pass: parameters without a gradient count as zero, and the reductions that were not
  // issued before are. Also where the pass was launched as a graph, without its begin.
  void end_backward(const MicroBatchKind& kind, bool of_weights = false);
  // After the last backward pass of a step: runs norm, decision and the part of the update that the
  // program puts into the step. Gives the step's result. Collective. Throws NumericsError.
  StepResult run_step();

  // The model has its values back: see Engine::release_to_model().
  void close() { open_ = false; }
  // Throws InvalidArgument after close().
  void require_open() const;

  // The parameter that the model touched last; empty before the first.
  std::string_view last_used() const {
    return last_used_ != nullptr ? last_used_->name() : std::string_view();
  }

  autograd::ParameterGuard acquire(autograd::Parameter& parameter) override;
  autograd::GradientTarget gradient(autograd::Parameter& parameter) override;
  void gradient_done(autograd::Parameter& parameter) override;
  bool defers(const autograd::Parameter& parameter) const override;

 protected:
  void release(autograd::Parameter& parameter) noexcept override;

 private:
  const Training& training() const;
  void require_pass(const autograd::Parameter& parameter) const;
  // What the pass under way makes.
  enum class PassKind : uint8_t { forward, backward, weights };
  static const char* name_of(PassKind kind);
  void begin(const Phase& phase, PassKind kind, bool follows_program = true);
  bool goes_back() const { return kind_ != PassKind::forward; }  // it makes gradients
  void end();
  void end_phase(const Phase& phase);
  // The event is the next one; its ops ahead, and behind.
  void arrive(EventKind kind, ParameterIndex parameter);
  void leave();
  void skip_releases();
  // InvalidArgument: the event is not the next one.
  [[noreturn]] void leave_record(const StepEvent& event) const;
  void run(const std::vector<Op>& ops, bool ahead_of_use);
  void run(const Op& op, bool ahead_of_use);
  // Runs the ops behind the end of a backward pass: reductions and updates.
  void run_late(const std::vector<Op>& ops);
  // Without a program: reduces the groups that are complete and next in order.
  void reduce_in_turn();

  const Parts parts_;
  int passes_ = 0;
  bool open_ = true;
  const autograd::Parameter* last_used_ = nullptr;
  bool is_free_ = false;  // the pass under way follows no program
  int used_group_ = -1;   // in a prediction: the last one
  const Phase* phase_ = nullptr;
  PassKind kind_ = PassKind::forward;
  size_t next_ = 0;       // place of the phase
  bool is_last_ = false;  // the backward pass under way brings the step's gradients together
  // Updates that had their place in backward and wait for the norm: see WholeStep::decide().
  std::vector<Op> held_;
  size_t next_group_ = 0;  // without a program: whose reduction comes next
  int64_t next_micro_batch_ = 0;
};

}  // namespace zinc::zero
