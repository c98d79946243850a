// parallel/pipeline_cut.h: which stages of a model each rank of a pipeline has, what travels
// between them, and which parameters lie where.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "comm/world.h"
#include "core/context.h"
#include "core/work_log.h"
#include "nn/model.h"
#include "nn/stages.h"
#include "parallel/pipeline.h"
#include "parallel/stage_pass.h"

namespace zinc::parallel {

// The input of a rank's stages.
struct StageInput {
  std::vector<StageTensor> tensors;
  // Draws of random numbers that the stages before make for a micro-batch, by site.
  std::unordered_map<uint64_t, uint64_t> draws;
};

// Stages of one part of the model: Note in parallel/pipeline.h.
struct PipelinePart {
  int number = 0;         // among those of all ranks
  bool is_first = false;  // the first part of the model
  bool is_last = false;
  std::vector<nn::StageSegment> segments{};  // the segments of stages that are recomputed together
  // For each tensor that the last stage gives: whether it has a gradient.
  std::vector<bool> output_gradients{};
};

// A parameter lies on every rank whose stages use it. If these are several, each has the values and
// states, and the gradient is summed over them. A parameter that no stage uses lies on the first
// rank.
class PipelineCut {
 public:
  // Runs the model on a meta device, stage by stage, and cuts it where rank 0 of `world` does,
  // whose ranks of the pipeline are world.pipe(). `model` must outlive this, and be set to its
  // dtype and recomputation. Collective. Throws ConfigError for a model without stages, and where
  // there are fewer blocks than parts, or where two parts of one rank have a parameter.
  PipelineCut(nn::Model& model, const std::function<nn::Batch()>& example,
              const PipelineConfig& config, comm::World& world);

  int rank() const { return rank_; }
  int size() const { return size_; }
  nn::Staged& model() const { return staged_; }
  // The parts of this rank.
  int num_parts() const { return static_cast<int>(parts_.size()); }
  const PipelinePart& part(int i) const { return parts_.at(static_cast<size_t>(i)); }

  // Ranks that have the parameter, ascending.
  const std::vector<int>& holders(const autograd::Parameter& parameter) const;
  bool is_here(const autograd::Parameter& parameter) const;
  // Whether this rank is the one of the parameter's holders that counts, in files, norms and
  // broadcasts.
  bool speaks_for(const autograd::Parameter& parameter) const {
    return holders(parameter).front() == rank_;
  }
  // The parts of the model that have the parameter; absent if this rank has none of them.
  // Parameters with the same parts may lie in one group.
  std::optional<std::vector<int>> part_of(const autograd::Parameter& parameter) const;

  // The input of a part of this rank, for a batch of these shapes. Remembers earlier shapes.
  const StageInput& input_of(const nn::Batch& batch, int part);

 private:
  struct Use {
    std::vector<const autograd::Parameter*> parameters;
    double seconds = 0.0;  // time of forward and backward on a typical machine
  };
  std::vector<Use> record_uses(const std::function<nn::Batch()>& example);
  double cost_of(const Use& use, const PipelineConfig& config) const;
  std::vector<double> costs(const std::vector<Use>& uses, const PipelineConfig& config,
                            comm::World& world) const;
  void cut(const std::vector<double>& costs, const std::vector<Use>& uses, int parts);
  void place_parameters(const std::vector<Use>& uses);
  PipelinePart make_part(int number) const;

  // Used for all meta passes, so that objects which the model keeps from one pass are there in the
  // next.
  WorkLog log_;
  Context context_;
  nn::Model& whole_;
  nn::Staged& staged_;
  const int rank_, size_;
  // By stage: whether each tensor of its input has a gradient.
  std::vector<std::vector<bool>> has_gradient_;
  std::vector<int64_t> first_;  // stage of each part of the model; the number of stages
  std::vector<PipelinePart> parts_;
  std::map<const autograd::Parameter*, std::vector<int>> holders_;
  // By parameter: the parts of the model that have it; empty: none does.
  std::map<const autograd::Parameter*, std::vector<int>> parts_of_;
  std::map<std::string, StageInput, std::less<>> inputs_;  // by part and the shapes of a batch
};

// The gradient of a parameter that several ranks of a pipeline have, as an embedding on the first
// and as the head on the last. `sums`: the gradient of this rank's stages, summed over all
// micro-batches and shards. The first of `holders` adds the sums of the others, in order of rank,
// and sends the result to all, so that weights and states stay the same on each of them. On the
// compute stream. Collective among the holders, of which there are several. `pipe`: the ranks of
// the pipeline.
void add_tied_gradient(const std::vector<int>& holders, comm::World& pipe, const View& sums);

}  // namespace zinc::parallel
