// zero/engine.h: trains a model: forward, backward, step; or only computes with it.
//
//   zinc::zero::Engine engine(model, config, world);
//   for (const Batch& batch : loader) {
//     zinc::zero::Loss loss = engine.forward(batch);
//     engine.backward(loss);
//     zinc::zero::StepResult result = engine.step();
//   }
//
// Call step() after every backward(). It only counts until `accumulation` micro-batches have come
// together. Then it updates the weights. With EngineOptions::computes_only an engine evaluates and
// predicts, and has no step. All ranks make the collective calls in the same order:
// construction, step(), and those that say so.
//
// Note [Losses are summed]
// A micro-batch's loss is the sum over its target tokens. It is not divided before backward. The
// optimizer's update multiplies the summed gradient with one f32 factor. The factor is made of the
// loss scale, the number of targets of the whole step, and the clipping. So the mean is over all
// targets of the global batch, however they are spread over micro-batches and ranks. With
// LossReduction::micro_batch each micro-batch is divided by its own targets first, and the step is
// the mean of those means.
//
// Note [Weights for use]
// A schedule-free optimizer trains with other weights than those that the model is used with
// (optim::Optimizer::evaluates_apart()). evaluate(), next_logits(), predict(), release_to_model(),
// evaluated_parameter() and read_own(Own::weights) use the latter, as does the model at the
// engine's end. No bit of training depends on these calls. Weights that are set (set_parameter(),
// edit(), an import of weights alone) are used as they are until the next step. The first
// evaluation behind a step, the first pass of training behind an evaluation, and the engine's end
// are then collective on all stages.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "comm/world.h"
#include "core/phase_clock.h"
#include "nn/model.h"
#include "offload/swap_traffic.h"
#include "optim/optimizer.h"
#include "optim/parameter_groups.h"
#include "zero/engine_config.h"
#include "zero/group/group_sums.h"
#include "zero/rewrites/step_program.h"
#include "zero/update/step_result.h"
#include "zero/update/training_state.h"
#include "zero/values/own_values.h"

namespace zinc::zero {

// The loss of one micro-batch on this rank. Where ranks share sequences, `sum` is over the rank's
// own tokens, and so mean() is the rank's share of the mean.
struct Loss {
  Tensor sum;               // f32 scalar with its graph: sum over targets
  int64_t num_targets = 0;  // in the micro-batch
  double mean() const;      // waits for the compute stream; NaN without targets
};

// Losses summed over batches and ranks. mean() is the figure of an evaluation. Ranks that share
// sequences each have a share of a batch's loss, and count all of its targets.
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

// CUDA graphs of the passes of micro-batches, with "cuda_graph": zero/run/recorded_passes.h.
struct GraphUse {
  int64_t recorded = 0;
  int64_t launched = 0;
  int64_t step_parts = 0;  // launched: two of each step but the first, where steps are recorded
};

struct EngineUsage {
  // Since construction began; on a meta device, bytes that would have been moved.
  offload::SwapTraffic swap;
  GraphUse graphs;  // in run_passes(); forward() and backward() record nothing
  // Bytes of weights and states that read_own() hands out, with padding: the same on every rank.
  OwnBytes own;
  int64_t values_set = 0;  // calls of set_parameter(), edit() and import_state()
  // The bytes of trained parameters can be held: none of them is on the device.
  bool can_hold_own = false;
};

struct EngineOptions {
  // True: the engine computes and does not train: evaluate(), next_logits(), predict(), and reads
  // and writes of weights. It has no gradients, optimizer states, master weights and update, and
  // takes no memory for them. Every parameter is treated as frozen. What the configuration says of
  // steps has no effect: optimizer, schedule, gradients, accumulation, offload_optimizer,
  // recomputation, the order of micro-batches, CUDA graphs. A call that belongs to training throws
  // InvalidArgument.
  bool computes_only = false;
  // The first values. Null: the values that the model's parameters hold already, and for the rest
  // their initialisers with the world's seed.
  const nn::WeightSource* weights = nullptr;
  // A client's own update rule instead of config.optimizer.
  std::unique_ptr<optim::Optimizer> optimizer;
  // Parameters with hyper-parameters of their own. Each trained parameter is in one group. Empty:
  // all have those of config.optimizer, without weight decay if Parameter::decays() is false. A
  // schedule moves the groups' learning rates in proportion.
  std::vector<optim::ParameterGroup> parameter_groups;
  // Length of the run in optimizer steps, for schedules that end; 0: not known.
  int64_t total_steps = 0;
  // Called at the end of every step that was applied or skipped: by a program's own trace.
  std::function<void()> after_step;
  // True: the model may use its parameters in another order in every step, and follows no program.
  // On stage 3 every rank has to use the same shard groups in the same order. That is checked, by a
  // round between the ranks per use, and gradients are whole until the end of a backward pass.
  bool dynamic_model = false;
  // How the gradients of each group are summed over micro-batches and ranks: a class of the
  // client's (zero/README.md, "A gradient policy"). Empty: as the configuration says. With states
  // off the device it is a ConfigError.
  MakeGroupSums gradient_sums;
  // A client's own rewrites of the step program: zero/program/rewrite.h. They run after the
  // engine's, and are the same on all ranks.
  std::vector<Rewrite> rewrites;
  // Names of rewrites of the engine that do not run: "prefetch".
  std::vector<std::string> without_rewrites;
  // Makes the batch with which the model is recorded. It must have the shapes that the run trains
  // on. Empty: nn::Model::example().
  ExampleBatch example;
  // Called behind every place of the step program but releases, the step's begin and end included.
  OnPlace on_place;
};

class Engine {
 public:
  // Sets the model's dtype, lays out the arenas, records the model, makes the step program, and
  // loads the weights. The engine is the source of the model's parameters until it is destroyed.
  // Model and world must outlive it. Collective. Throws ConfigError for a configuration that cannot
  // be run, and if the ranks do not agree on model, layout or program.
  //
  // At the engine's end the model holds the trained values in its dtype on stages 0 to 2. On stage
  // 3 it does only after release_to_model(); otherwise a use of its parameters throws. The end is
  // collective while an update is under way: finish_update().
  Engine(nn::Model& model, const EngineConfig& config, comm::World& world,
         EngineOptions options = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  Loss forward(const nn::Batch& batch);
  void backward(const Loss& loss);
  // Collective at the end of an accumulation.
  //
  // A step's update may end beside the next forward pass: if the host updates states beside passes
  // (EngineConfig::overlap_update), and clipping or the overflow check decides over the step. Every
  // call that evaluates, or reads or writes weights or states, then waits for the end. On stages 1
  // to 3 such a call is collective, and so is the next forward pass. If the update fails, the call
  // that waits for it throws. A disk failure is an IoError.
  StepResult step();
  // Waits for the end of the last step's update. Collective.
  void finish_update();
  // Gives the model all weights, whole and in its dtype, on every rank and stage. Allocates memory
  // for all of them. The engine cannot train afterwards; its values can still be read. Collective;
  // between steps.
  void release_to_model();

  // forward() and backward() of config().batches_per_call() batches. That is one, or all
  // micro-batches of the step with PassOrder::vertical and in a pipeline, where forward() and
  // backward() are refused. Collective among the ranks of a pipeline, each of which gives all of
  // the batches.
  //
  // If nothing can stop the step (no clipping, no overflow check) and the host updates states
  // beside passes, the update begins during the last backward pass. Learning rate and weights
  // cannot be changed or read then until step().
  void run_passes(std::span<const nn::Batch> batches);

  // This rank's part of the summed loss of a batch. Dropout is off, and there is no graph.
  // Collective among the ranks of a pipeline, which give the same batch.
  Evaluation evaluate(const nn::Batch& batch);

  // ids [B, T] i32 -> logits [B, V], float, of the token that follows. Dropout is off, and there is
  // no graph. If parameters are sharded, every rank calls with the same ids. Throws InvalidArgument
  // for a model that is no nn::CausalLm, and in a pipeline.
  Tensor next_logits(const Tensor& ids);

  // Returns what `work` returns. `work` may call any function of the model and of its modules, with
  // dropout off and without a graph. If it throws, it has to throw on all ranks. On stage 3
  // collective: a group is gathered for its use, and every rank has to use the same shard groups in
  // the same order, which is checked. Throws InvalidArgument in a pipeline.
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
  // The part of the training state beside values. Between steps.
  TrainingState state() const;
  // The learning rate of the next update. A value that was set holds for all later updates too.
  // nullopt gives the rate back to the schedule.
  double learning_rate() const;
  void set_learning_rate(std::optional<double> value);

  // The values that the optimizer updates (master weights): f32 (f64 models: f64), in the
  // parameter's shape. Collective if they are sharded. Throws InvalidArgument with the nearest
  // names.
  Tensor parameter(std::string_view name);
  // The weights that the model evaluates, generates and is saved with. Those of parameter(), unless
  // the optimizer has others: Note [Weights for use].
  Tensor evaluated_parameter(std::string_view name);
  // `state`: the optimizer's own name for it: "exp_avg".
  Tensor optimizer_state(std::string_view name, std::string_view state);
  // Call on every rank with the same values, between steps only. Throws InvalidArgument.
  void set_parameter(std::string_view name, const Tensor& values);

  // Hands this rank's part of the weights, or of weights and states, to `take`, piece by piece.
  // Weights alone are as evaluated_parameter() gives them, those beside states as parameter() does.
  // On every stage each element of the model is in the part
  // of exactly one rank. The memory of a piece is valid during the call of `take`. An empty `take`:
  // the memory is taken, and nothing is handed out. Not collective; waits.
  //
  // `hold`, if EngineUsage::can_hold_own: trained values are held (OwnPiece::lease) instead of
  // read. Other calls can read held values. Throws InvalidArgument if values in swap space are held
  // twice.
  using Own = zero::Own;
  void read_own(Own what, const TakeOwn& take, bool hold = false);
  // Takes over the values and state of another engine, whose model has the same parameters. The
  // other engine's world, stage and tiers do not matter. Collective; between steps only. Throws
  // InvalidArgument with the names of parameters that are missing or have another shape, before
  // anything changes. If the source throws on one rank, the others throw PeerFailed. The engine
  // then holds values of two states: it cannot train, evaluate or save until an import has
  // succeeded.
  void import_state(const StateSource& source, const ImportOptions& options = {});

  // The gradient of the step's mean loss over all micro-batches and ranks, before clipping: f32
  // (f64 models: f64). Call between the last backward() of a step and its step(). Collective: it
  // reduces what step() would reduce.
  Tensor gradient(std::string_view name);

  // Changes parameters by hand, on any stage. Hands the values of `names` to `change` on every
  // rank. Writes what `change` leaves on rank `modifier` back on all ranks. If `change` throws on
  // any rank, nothing is written. Collective; between steps only.
  using EditedParameters = zero::EditedParameters;
  void edit(const std::vector<std::string>& names,
            const std::function<void(EditedParameters&)>& change, int modifier = 0);

  // While a NoSync lives, backward() adds to this rank's gradients and does not count towards the
  // accumulation; step() is an error. The next counted micro-batches bring the sums together. Only
  // on stages 0 and 1 with reductions at the boundary; elsewhere InvalidArgument.
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

  // The engine's current activity, for heartbeats, plans and messages: "backward of micro-batch 2,
  // at transformer.h.3.mlp.c_fc.weight".
  std::string moment() const;

  // The program of a step, after all rewrites: Note [The step program].
  const StepProgram& step_program() const;

 private:
  void run_prediction(const std::function<void()>& work);

  class Impl;
  std::unique_ptr<Impl> impl_;
};

// The evaluations of all data ranks, by rank. Shares of ranks that have parts of one batch are
// added up. Collective; ends an update that is under way.
std::vector<Evaluation> gather(Engine& engine, const Evaluation& part);

}  // namespace zinc::zero
