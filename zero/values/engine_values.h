// zero/values/engine_values.h: the values of a model under an engine: its weights, gradients and
// optimizer states, by name and as a whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "comm/world.h"
#include "nn/model.h"
#include "optim/optimizer.h"
#include "parallel/pipeline_cut.h"
#include "tensor/tensor.h"
#include "zero/engine_config.h"
#include "zero/tiers/swapped_reader.h"
#include "zero/update/stores.h"
#include "zero/update/training_state.h"
#include "zero/update/update_rules.h"
#include "zero/update/whole_step.h"
#include "zero/values/own_values.h"

namespace zinc::zero {

// The calls do what Engine's calls of the same names do. No update is under way, and unless a call
// says otherwise the engine is between steps.
class EngineValues {
 public:
  // All must outlive this.
  struct Parts {
    const EngineConfig& config;
    nn::Model& model;
    comm::World& world;                          // all ranks
    const parallel::PipelineCut* cut = nullptr;  // null: this rank has all of the model
    const ShardGroups& groups;
    const optim::Optimizer& optimizer;
    const std::set<const autograd::Parameter*>& whole;  // each updated as a whole, on any rank
    Stores& stores;
    UpdateRules& rules;
    WholeStep* step;  // null: the engine only computes
  };
  explicit EngineValues(const Parts& parts) : parts_(parts) {}

  // Names of the planes: weights, then the optimizer's states, then, once there are any, errors of
  // signs.
  std::vector<std::string_view> kinds() const;
  // In the shape of the whole parameter. `state`: one of the optimizer's; absent: the weights.
  // Collective where ranks share the values.
  Tensor read(std::string_view name, std::optional<std::string_view> state = {});
  // Engine::evaluated_parameter().
  Tensor read_for_use(std::string_view name);
  void write(std::string_view name, const Tensor& values);
  void edit(const std::vector<std::string>& names,
            const std::function<void(EditedParameters&)>& change, int modifier);
  // The gradient of the step's mean loss; call before the step. `divisor` reduces the gradients,
  // and returns the number that their sum is divided by.
  Tensor gradient(std::string_view name, const std::function<double()>& divisor);
  // Pieces pass through one staging buffer of at most 4 MiB (f64 models: 8 MiB).
  void read_own(Own what, const TakeOwn& take, bool hold);
  bool can_hold() const;       // EngineUsage::can_hold_own
  OwnBytes own_bytes() const;  // EngineUsage::own
  void import_state(const StateSource& source, const ImportOptions& options);
  // Gives the model its values, whole, and takes them from the engine. Collective. If it throws,
  // nothing has changed.
  void release_to_model();
  // The engine ends: the parameters get the values that Engine's constructor promises. A parameter
  // whose values are gone throws when it is used, with its name and the reason. An update beside
  // the next forward pass is ended first, which is collective; not if an exception ends the engine.
  // `may_use`: false if the model's copy has not the weights for its use.
  void leave(bool may_use) noexcept;

  // Mixed values would train on without a word. Throws InvalidArgument.
  void require_one_state() const;
  int64_t num_set() const { return num_set_; }  // EngineUsage::values_set

 private:
  WeightValues& weights() { return *parts_.stores.values; }
  Context& context() { return parts_.world.context(); }
  // Whether this rank keeps values of the kind, an index in kinds(), of the parameter.
  bool has_kind(const nn::Parameter& parameter, int plane) const;
  // The shape of a vector of any parameter; absent: it has none.
  std::optional<Shape> vector_shape(const nn::Parameter& parameter, int plane) const;
  bool is_vector(int plane) const {
    return plane >= first_vector(parts_.optimizer.states()) && !is_error(plane);
  }
  // Behind the vectors, an error of signs.
  int first_error() const {
    return kFirstStatePlane + static_cast<int>(parts_.optimizer.state_names().size());
  }
  bool is_error(int plane) const { return plane >= first_error(); }
  const WholePhase& phase() const { return *parts_.stores.update->whole_phase(); }
  bool is_here(const nn::Parameter& parameter) const {
    return parts_.cut == nullptr || parts_.cut->is_here(parameter);
  }
  // In a pipeline: throws InvalidArgument for a frozen parameter on all ranks, before one of them
  // waits for another.
  void require_trained_in_pipeline(const nn::Parameter& parameter) const;
  // The plane of a state. Throws InvalidArgument, on all ranks, if the parameter has no such state.
  int plane_of(const nn::Parameter& parameter, std::string_view state) const;
  // The values of the parameter, or of this rank's slice of it, on all ranks of a pipeline.
  Tensor read_here(const nn::Parameter& parameter, std::optional<std::string_view> state);
  // A vector of a parameter, from its owner. Collective.
  Tensor read_vector(const nn::Parameter& parameter, int plane);
  void read_own_vectors(ParameterIndex index, const TakeOwn& take, std::vector<std::byte>& in_host);
  void load_vectors(const StateSource& source, const std::vector<std::string_view>& kinds,
                    bool strict);
  // An error of a parameter, from the ranks that have it. Collective.
  Tensor read_error(const nn::Parameter& parameter, int plane);
  void read_own_errors(ParameterIndex index, const TakeOwn& take, std::vector<std::byte>& in_host);
  // Whether an import takes errors of signs. Throws InvalidArgument for those of another number of
  // ranks.
  bool takes_errors(const StateSource& source, const ImportOptions& options) const;
  void load_errors(const StateSource& source, const std::vector<std::string_view>& kinds);
  // Whether a parameter's weights for use are made from its weights and states: Note [Weights
  // apart] in zero/update/weight_update.h.
  bool is_made(const autograd::Parameter& parameter) const;
  // Makes those of `range` of the parameter's group from `planes`, each [range.size()]: the
  // weights, then the states. On the compute stream.
  void make_for_use(ParameterIndex index, Range range, const std::vector<View>& planes,
                    const View& out);
  Tensor read_for_use_here(const nn::Parameter& parameter);
  // The values that the rank which speaks for the parameter has, on all ranks of a pipeline.
  Tensor on_all_stages(const nn::Parameter& parameter, const Tensor& values);
  // The whole parameter, from the parts of all ranks that share it. Collective where ranks do.
  Tensor whole_of(const nn::Parameter& parameter, const Tensor& here);
  // Whether this rank is the one that hands out a parameter that other ranks may have too.
  bool hands_out(const autograd::Parameter& parameter) const;
  // Gives `own` its values, or a way to read them: from where they are, or by way of `room` and, on
  // a GPU, `in_host` (null: they stay on it).
  void find_own(OwnPiece& own, ParameterIndex index, int plane, Range range, const View& room,
                std::vector<std::byte>* in_host, bool is_held);
  // Gives `own` its weights for use, by way of `rooms`: of the result, and of every plane.
  void find_used(OwnPiece& own, ParameterIndex index, Range range, const std::vector<View>& rooms,
                 std::vector<std::byte>* in_host);
  // Gives `own` values on the device: where they are, or on a GPU from `in_host`, if it is given.
  void bring_to_host(OwnPiece& own, const View& values, std::vector<std::byte>* in_host);
  void load_from(const StateSource& source, const std::vector<std::string_view>& kinds,
                 const ImportOptions& options);

  const Parts parts_;
  std::optional<SwappedReader> own_reader_;  // once somebody holds what is in swap space
  int64_t num_set_ = 0;
  bool is_mixed_ = false;  // an import has failed behind its begin
};

}  // namespace zinc::zero
