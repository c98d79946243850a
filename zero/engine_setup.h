// zero/engine_setup.h: what an engine checks and decides before it lays anything out.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "comm/world.h"
#include "nn/model.h"
#include "optim/optimizer.h"
#include "zero/engine.h"
#include "zero/lockstep.h"
#include "zero/recorded_passes.h"
#include "zero/shard_group.h"

namespace zinc::zero {

// The configuration, once it is checked, with the model's longest sequence where it names none.
// Throws ConfigError.
EngineConfig validated(EngineConfig config, const nn::Model& model);
// InvalidArgument where a batch that goes forward is not of the configuration's shape.
void require_shape(const nn::Batch& batch, const EngineConfig& config);
// The world itself, where the configuration can be run in it. Throws ConfigError.
comm::World& checked(comm::World& world, const EngineConfig& config);

// InvalidArgument where an update that began with run_passes() works on the weights.
void require_weights_at_rest(bool updating);

// InvalidArgument where backward() cannot add to sums that no other rank sees yet.
void require_sums_without_sync(const EngineConfig& config);

// Gradients are kept divided by this, so that native sums in 16 bits stay in range.
double wire_divisor(const GradientConfig& gradient, int world);
// The same, and by what Note [Loss scale] takes from the scale of a loss.
double gradient_divisor(const EngineConfig& config, int world);

// A client's own, taken out of the options, or the configured one. Throws ConfigError.
std::unique_ptr<optim::Optimizer> choose_optimizer(const EngineConfig& config,
                                                   EngineOptions& options);

// Sets the model's dtype and recomputation, and cuts it into groups. Throws ConfigError where the
// configuration asks for what the model cannot do.
std::vector<ShardGroup> prepare_groups(nn::Model& model, const EngineConfig& config, int world);

// Null without "cuda_graph". Throws ConfigError for a dynamic model.
std::unique_ptr<RecordedPasses> make_recorded_passes(const EngineConfig& config, bool dynamic_model,
                                                     comm::World& world, GradientStore& gradients);

// What an engine says of them; nothing where they are null.
GraphUse graph_use(const RecordedPasses* passes);

// The number of a state by its name; throws InvalidArgument with all names.
int state_index(const optim::Optimizer& optimizer, std::string_view state);

// NumericsError after that many skipped steps in a row; `culprit` was not finite in the last.
void require_progress(int64_t skipped, int64_t allowed, std::string_view culprit);

// Transformer blocks: what recomputation counts.
int64_t num_blocks(nn::Model& model);

// True, or CommError where the ranks' hashes differ. Collective.
bool agrees(comm::World& world, uint64_t schedule, uint64_t parameter_groups);

// Null unless ranks need it to stay together.
std::unique_ptr<Lockstep> make_lockstep(bool needed, const std::vector<ShardGroup>& groups,
                                        comm::World& world);

// Absent where it is not known.
std::optional<int64_t> run_length(const EngineOptions& options);
// Host memory of the parameter's shape in the optimizer's dtype.
Tensor host_tensor(const nn::Parameter& parameter);

}  // namespace zinc::zero
