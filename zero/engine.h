// zero/engine.h: trains a model: forward, backward, step.
//
//   zinc::zero::Engine engine(model, config, world);
//   for (const Batch& batch : loader) {
//     zinc::zero::Loss loss = engine.forward(batch);
//     engine.backward(loss);
//     zinc::zero::StepResult result = engine.step();
//   }
//
// step() follows every backward(); it does nothing but count until `accumulation` micro-batches
// have come together. Ranks call in lockstep: construction, step() and the calls marked collective.
//
// Note [Losses are summed]
// A micro-batch's loss is a sum over its target tokens and is never divided before backward. One
// f32 factor, made of the loss scale, the number of targets of the whole step and the clipping,
// multiplies the summed gradient inside the optimizer's update. So the mean is over all targets of
// the global batch, however they are spread over micro-batches and ranks. With
// LossReduction::micro_batch each micro-batch is divided by its own targets first, and the step is
// the mean of those means.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "comm/world.h"
#include "nn/model.h"
#include "optim/optimizer.h"
#include "optim/parameter_groups.h"
#include "zero/engine_config.h"
#include "zero/own_values.h"
#include "zero/passes/step_program.h"
#include "zero/tiers/swap_traffic.h"
#include "zero/trace/phase_clock.h"
#include "zero/training_state.h"
#include "zero/update/step_result.h"

namespace zinc::zero {

// The loss of one micro-batch on this rank. Where ranks share sequences, `sum` is over the rank's
// own tokens, and so mean() is the rank's share of the mean.
struct Loss {
  Tensor sum;               // f32 scalar with its graph: sum over targets
  int64_t num_targets = 0;  // of the micro-batch
  double mean() const;      // waits for the compute stream; NaN without targets
};

// Sum of losses over batches and ranks; mean() is the evaluation figure. What ranks that share
// sequences have of a batch are shares of its loss, each with all of its targets.
struct Evaluation {
  double loss_sum = 0.0;
  int64_t num_targets = 0;
  double mean() const;  // NaN without targets
  Evaluation& operator+=(const Evaluation& other) {
    loss_sum += other.loss_sum;
    num_targets += other.num_targets;
    return *this;
  }
};

// Of the passes of micro-batches, with "cuda_graph": zero/run/recorded_passes.h.
struct GraphUse {
  int64_t recorded = 0;
  int64_t launched = 0;
  int64_t step_parts = 0;  // launched: two of each step but the first, where steps are recorded
};

struct EngineUsage {
  SwapTraffic swap;  // since construction began; on a meta device what would have been moved
  GraphUse graphs;   // of run_passes(); forward() and backward() record nothing
  // What read_own() hands out of weights and states, with padding: the same on every rank.
  OwnBytes own;
  int64_t values_set = 0;     // calls of set_parameter(), edit() and import_state()
  bool can_hold_own = false;  // those of trained parameters: none of them is on the device
};

struct EngineOptions {
  // First values. Null: values that the model's parameters hold already, and their initialisers for
  // the rest, with the world's seed.
  const nn::WeightSource* weights = nullptr;
  // A client's own update rule instead of config.optimizer.
  std::unique_ptr<optim::Optimizer> optimizer;
  // Parameters with hyper-parameters of their own, each trained one in one group; empty: with those
  // of config.optimizer, and no weight decay where Parameter::decays() says so. A schedule moves
  // the groups' learning rates in proportion.
  std::vector<optim::ParameterGroup> parameter_groups;
  // Length of the run in optimizer steps, for schedules that end; 0: not known.
  int64_t total_steps = 0;
  // Called at the end of every step that was applied or skipped: by a program's own trace.
  std::function<void()> after_step;
  // True: the model may use its parameters in another order in every step; nothing is checked
  // against a record. Where parameters are sharded (stage 3), every rank has to use
  // the same shard groups in the same order: this is checked, and takes a round between the ranks
  // per use; and gradients are whole until the end of a backward pass.
  bool dynamic_model = false;
  // A client's own rewrites of the step program, after the engine's: zero/program/pass.h. They have
  // to be the same on all ranks.
  std::vector<Pass> passes;
  // Passes of the engine that are left out, by name: "prefetch".
  std::vector<std::string> without_passes;
  // A batch of the shapes that the run trains on, with which the model is recorded. Empty:
  // what nn::Model::example() gives.
  ExampleBatch example;
  // Called behind every place of the step program but releases: by a program's own look at a step.
  OnPlace on_place;
};

class Engine {
 public:
  // Collective. Sets the model's dtype, lays out the arenas, records the model and makes the step
  // program, loads the weights, and becomes the source of the model's parameters until it is
  // destroyed. Model and world must outlive it. At its end the model holds the trained values, in
  // its dtype, on stages 0 to 2; on stage 3 after release_to_model() alone, otherwise a use of its
  // parameters throws. The end is collective while an update is under way (finish_update()). Throws
  // ConfigError for a configuration that cannot be run, and where the ranks do not agree on model,
  // layout or program.
  Engine(nn::Model& model, const EngineConfig& config, comm::World& world,
         EngineOptions options = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  Loss forward(const nn::Batch& batch);
  void backward(const Loss& loss);
  // Collective at the end of an accumulation. The update is deferred if the host updates states
  // beside passes (EngineConfig::overlap_update) and clipping or the overflow check decides over
  // the step: it ends beside the next forward pass. On stages 1 to 3 that pass is collective then,
  // and so is every call that reads or writes weights or states, or evaluates: these wait for the
  // end. If a deferred update fails, the call that waits for it throws. A disk failure: IoError.
  StepResult step();
  // Waits for the end of the last step's update. Collective.
  void finish_update();
  // Gives the model all weights, whole and in its dtype, on every rank and stage: room for all of
  // them. The engine trains no further; what it keeps can still be read. Collective; between steps.
  void release_to_model();

  // forward() and backward() of as many batches as config().batches_per_call() says: of one, or
  // with PassOrder::vertical and in a pipeline of all micro-batches of the step, which pass in no
  // other way. Collective among the ranks of a pipeline, each of which has all of the batches.
  // Where nothing can stop the step (no clipping, no overflow check) and the host updates states
  // beside passes, the update begins during the last of them: learning rate and weights are out of
  // reach then until step().
  void run_passes(std::span<const nn::Batch> batches);

  // The summed loss of a batch without a graph, dropout off; this rank's part. Collective among the
  // ranks of a pipeline, with one batch.
  Evaluation evaluate(const nn::Batch& batch);
  // The parts of all data ranks, by rank, in which shares are added up. Collective.
  std::vector<Evaluation> gather(const Evaluation& part);

  // ids [B, T] i32 -> logits [B, V], float, of the token that follows, dropout off, without a
  // graph. Every rank calls with the same ids where parameters are sharded. InvalidArgument for a
  // model that is no nn::CausalLm.
  // Not in a pipeline, nor predict().
  Tensor next_logits(const Tensor& ids);

  // Gives what `work` gives: it may call any function of the model and of its modules, with dropout
  // off and without a graph. What it throws has to come on all ranks. Collective where parameters
  // are sharded (stage 3): every rank has to use the same shard groups in the same order, which is
  // checked; each is gathered for its use.
  template <class Work>
  auto predict(Work&& work) {
    if constexpr (std::is_void_v<std::invoke_result_t<Work&>>) {
      run_prediction([&] { work(); });
    } else {
      std::optional<std::invoke_result_t<Work&>> result;
      run_prediction([&] { result.emplace(work()); });
      return std::move(*result);
    }
  }

  const EngineConfig& config() const;
  nn::Model& model();
  comm::World& world();
  // What the next step goes on from, beside values. Between steps.
  TrainingState state() const;
  // Of the next update. A set value holds for it and all later ones, until it is nullopt and the
  // schedule goes on.
  double learning_rate() const;
  void set_learning_rate(std::optional<double> value);

  // The values that the optimizer works on (master weights), f32 (f64 for f64 models), as a tensor
  // of the parameter's shape; collective where parameters are sharded. Throws InvalidArgument with
  // the nearest names.
  Tensor parameter(std::string_view name);
  // By the optimizer's own state name: "exp_avg".
  Tensor optimizer_state(std::string_view name, std::string_view state);
  // On every rank, with the same values; between steps only, as edit(): gradients under way belong
  // to the old values. Throws InvalidArgument.
  void set_parameter(std::string_view name, const Tensor& values);

  // Hands out this rank's part of the weights, as parameter() gives them, or of weights and states,
  // piece by piece, in memory that is valid during the call. With `hold`, where can_hold_own,
  // trained values are held (OwnPiece::lease) instead of read. On every stage each element of the
  // model is in the part of exactly one rank. An empty `take` is allowed: the memory is taken and
  // nothing is handed out. Not collective; waits. While values are held all calls that read them
  // work on: InvalidArgument for a second `hold` of values in swap space alone.
  enum class Own : uint8_t { weights, weights_and_states };
  void read_own(Own what, const TakeOwn& take, bool hold = false);
  // Goes on from `source`: values and state of an engine whose model has the same parameters,
  // whatever its world, stage and tiers were. Collective; between steps only. Throws
  // InvalidArgument with the names of what is missing or has another shape, before anything
  // changes. What the source throws on one rank ends it on all (PeerFailed on the others): values
  // are mixed then, and nothing is trained, evaluated or handed out to be saved until an import has
  // succeeded.
  void import_state(const StateSource& source, const ImportOptions& options = {});

  // The gradient of the step's mean loss over all micro-batches and ranks, before clipping, f32
  // (f64 for f64 models); from the last backward() of a step to its step(). Collective: it reduces
  // what step() would reduce.
  Tensor gradient(std::string_view name);

  // Hands the values of `names` to `change` on every rank and writes back what it leaves on rank
  // `modifier`, on all ranks; nothing is written where it throws on any of them. Collective;
  // between steps only. The way to change parameters by hand, on any stage.
  using EditedParameters = std::map<std::string, Tensor, std::less<>>;
  void edit(const std::vector<std::string>& names,
            const std::function<void(EditedParameters&)>& change, int modifier = 0);

  // While it lives, backward() adds to this rank's gradients without counting towards the
  // accumulation, and step() is an error; the next counted micro-batches bring the sums together.
  // Stages 0 and 1 with reductions at the boundary; refused by name elsewhere.
  class NoSync {
   public:
    explicit NoSync(Engine& engine);
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    Engine& engine_;
  };

  EngineUsage usage() const;

  // What the engine is at, for heartbeats, plans and messages: "backward of micro-batch 2, at
  // transformer.h.3.mlp.c_fc.weight".
  std::string moment() const;

  // What a step does and when, as the passes left it: Note [The step program].
  const StepProgram& step_program() const;

 private:
  void run_prediction(const std::function<void()>& work);

  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace zinc::zero
