#include "parallel/pipeline_cut.h"

#include <algorithm>
#include <utility>

#include "autograd/mode.h"
#include "comm/gather_values.h"
#include "core/context.h"
#include "core/error.h"
#include "core/glob.h"
#include "core/trace_span.h"
#include "kernels/accumulate.h"
#include "parallel/meta_source.h"
#include "parallel/pipeline.h"

namespace zinc::parallel {
namespace {

class UseSource final : public MetaSource {
 public:
  autograd::ParameterGuard acquire(autograd::Parameter& parameter) override {
    if (std::ranges::find(used_, &parameter) == used_.end()) used_.push_back(&parameter);
    return MetaSource::acquire(parameter);
  }
  // The parameters that were used since the last call.
  std::vector<const autograd::Parameter*> take() { return std::exchange(used_, {}); }

 private:
  std::vector<const autograd::Parameter*> used_;
};

nn::Staged& staged(nn::Model& model) {
  auto* const found = nn::find_interface<nn::Staged>(model);
  if (found != nullptr) return *found;
  throw ConfigError(str("zinc.mesh.pipe needs a model that says its stages, and ",
                        model.model_type(),
                        " does not: derive it from zinc::nn::Staged too, or take pipe 1"));
}

std::vector<StageTensor> look_of(const nn::TensorList& tensors) {
  std::vector<StageTensor> looks;
  for (const Tensor& tensor : tensors) {
    if (!tensor.defined()) {
      looks.push_back({.is_there = false});
      continue;
    }
    looks.push_back({.shape = tensor.shape(), .dtype = tensor.dtype()});
  }
  return looks;
}

// A batch of the same shapes on the current context's device, without values.
nn::Batch empty_like(const nn::Batch& batch) {
  nn::Batch empty = batch;
  for (const auto& [name, tensor] : batch.tensors) {
    empty.tensors.set(name, Tensor::empty(tensor.shape(), tensor.dtype()));
  }
  return empty;
}

// The parts of the model's segments that lie in [begin, end).
std::vector<nn::StageSegment> segments_between(const std::vector<nn::StageSegment>& all,
                                               int64_t begin, int64_t end) {
  std::vector<nn::StageSegment> inside;
  for (nn::StageSegment segment : all) {
    segment.begin = std::max(segment.begin, begin);
    segment.end = std::min(segment.end, end);
    if (segment.begin < segment.end) inside.push_back(segment);
  }
  return inside;
}

// How long kernels take on a machine of today. It is the same for every run and plan, and only
// ratios count: which stage a rank gets must not hang on a stopwatch.
struct TypicalMachine {
  double bytes_per_second;
  double short_products, long_products;  // FLOP/s of gemm and attention, 16 bits and f32
  double other_flops;
  double launch_seconds;
  bool fetches_beside;  // memory and arithmetic at once, as a GPU's blocks do

  double seconds(const WorkCost& cost) const {
    if (cost.kind == WorkKind::collective) return 0.0;
    const bool is_product = cost.kind != WorkKind::other;
    const double rate = !is_product                ? other_flops
                        : size_of(cost.dtype) == 2 ? short_products
                                                   : long_products;
    const double memory =
        static_cast<double>(cost.bytes_read + cost.bytes_written) / bytes_per_second;
    const double arithmetic = static_cast<double>(cost.flops) / rate;
    return launch_seconds + (fetches_beside ? std::max(memory, arithmetic) : memory + arithmetic);
  }
};

// An H200 by its data sheet, as in examples/hardware; two cores of an EPYC (Zen 5), measured.
constexpr TypicalMachine kTypicalGpu{4.8e12, 989e12, 67e12, 67e12, 3e-6, true};
constexpr TypicalMachine kTypicalCpu{60e9, 850e9, 400e9, 100e9, 0.0, false};

}  // namespace

PipelineCut::PipelineCut(nn::Model& model, const std::function<nn::Batch()>& example,
                         const PipelineConfig& config, comm::World& world)
    : context_(meta_context(&log_, /*index=*/1)),
      whole_(model),
      staged_(staged(model)),
      rank_(world.pipe()->rank()),
      size_(world.pipe()->size()) {
  int64_t blocks = 0;
  for (int64_t i = 0; i < staged_.num_stages(); ++i) blocks += staged_.is_block(i) ? 1 : 0;
  if (blocks < size_ * config.interleave) {
    const bool several = config.interleave > 1;
    throw ConfigError(str(
        "zinc.mesh.pipe ", size_,
        several ? str(", zinc.pipeline_interleave ", config.interleave) : std::string(),
        ": the model has ", blocks, " blocks, and every rank of the pipeline needs ",
        several ? str(config.interleave, " of them") : "one", "; take at most ",
        several ? str("pipeline_interleave ", std::max<int64_t>(1, blocks / size_)) : str(blocks)));
  }
  const std::vector<Use> uses = record_uses(example);
  cut(costs(uses, config, world), uses, config.interleave);
}

std::vector<PipelineCut::Use> PipelineCut::record_uses(const std::function<nn::Batch()>& example) {
  const ContextScope scope(context_);
  UseSource source;
  const SourceScope sources(whole_, source);
  size_t counted = 0;  // entries of the log
  const TypicalMachine& machine = context_.device().is_cuda() ? kTypicalGpu : kTypicalCpu;
  const auto new_seconds = [&] {
    double seconds = 0.0;
    for (; counted < log_.entries().size(); ++counted) {
      seconds += machine.seconds(log_.entries()[counted].cost);
    }
    return seconds;
  };
  const nn::Batch batch = example();
  const std::vector<nn::StageSegment> every_stage = nn::stage_segments(staged_, 0);
  std::vector<StagePass> passes(every_stage.size());
  std::vector<Use> uses;
  nn::TensorList x;
  for (size_t i = 0; i < passes.size(); ++i) {
    std::vector<StageTensor> looks = look_of(x);
    std::vector<bool>& wants = has_gradient_.emplace_back();
    for (size_t t = 0; t < x.size(); ++t) {
      looks[t].has_gradient = x[t].requires_grad();
      wants.push_back(looks[t].has_gradient);
      if (x[t].defined()) x[t] = x[t].detach();
    }
    x = passes[i].forward(staged_, std::span(&every_stage[i], 1), batch, std::move(x), looks);
    uses.push_back({.parameters = source.take(), .seconds = new_seconds()});
  }
  nn::detail::require_loss(x);
  nn::TensorList gradients{Tensor::empty(x.front().shape(), x.front().dtype())};
  x.clear();
  for (size_t i = passes.size(); i-- > 0;) {
    gradients = passes[i].backward(std::move(gradients));
    for (size_t t = 0; t < gradients.size(); ++t) has_gradient_[i][t] = gradients[t].defined();
    uses[i].seconds += new_seconds();
  }
  log_.stop();
  return uses;
}

double PipelineCut::cost_of(const Use& use, const PipelineConfig& config) const {
  if (!config.pattern.empty()) {
    const bool has_one = std::ranges::any_of(use.parameters, [&](const auto* parameter) {
      return matches_glob(parameter->name(), config.pattern);
    });
    return has_one ? 1.0 : 0.0;
  }
  switch (config.partition) {
    case PipelinePartition::best:
      return use.seconds;
    case PipelinePartition::uniform:
      return 1.0;
    case PipelinePartition::parameters:
      break;
  }
  double trained = 0.0;
  for (const autograd::Parameter* parameter : use.parameters) {
    if (parameter->requires_grad())
      trained += static_cast<double>(parameter->whole_shape().numel());
  }
  return trained;
}

// Slices of unequal sizes would have other costs on other ranks.
std::vector<double> PipelineCut::costs(const std::vector<Use>& uses, const PipelineConfig& config,
                                       comm::World& world) const {
  std::vector<double> costs;
  for (const Use& use : uses) costs.push_back(cost_of(use, config));
  if (!config.pattern.empty() &&
      std::ranges::all_of(costs, [](double cost) { return cost == 0; })) {
    throw ConfigError(str("zinc.pipeline_pattern \"", config.pattern,
                          "\": no stage of the model has a parameter of such a name"));
  }
  const auto count = static_cast<int64_t>(costs.size());
  const std::vector<double> all = comm::gather_values(world, costs);
  return {all.begin(), all.begin() + count};
}

void PipelineCut::cut(const std::vector<double>& costs, const std::vector<Use>& uses, int parts) {
  std::vector<bool> is_block;
  for (int64_t i = 0; i < staged_.num_stages(); ++i) is_block.push_back(staged_.is_block(i));
  first_ = cut_evenly(costs, is_block, size_ * parts, size_);
  for (int i = 0; i < parts; ++i) parts_.push_back(make_part(i * size_ + rank_));
  place_parameters(uses);
}

PipelinePart PipelineCut::make_part(int number) const {
  const auto at = static_cast<size_t>(number);
  PipelinePart part{.number = number,
                    .is_first = number == 0,
                    .is_last = at + 2 == first_.size(),
                    .output_gradients = {true}};  // of the loss
  part.segments = segments_between(
      nn::stage_segments(staged_, whole_.recompute_every(), whole_.most_recomputed()), first_[at],
      first_[at + 1]);
  if (!part.is_last) part.output_gradients = has_gradient_[static_cast<size_t>(first_[at + 1])];
  return part;
}

void PipelineCut::place_parameters(const std::vector<Use>& uses) {
  for (size_t part = 0; part + 1 < first_.size(); ++part) {
    for (int64_t stage = first_[part]; stage < first_[part + 1]; ++stage) {
      for (const autograd::Parameter* parameter : uses[static_cast<size_t>(stage)].parameters) {
        std::vector<int>& parts = parts_of_[parameter];
        const auto number = static_cast<int>(part);
        if (!parts.empty() && parts.back() == number) continue;
        parts.push_back(number);
        std::vector<int>& ranks = holders_[parameter];
        if (std::ranges::find(ranks, number % size_) != ranks.end()) {
          throw ConfigError(
              str("zinc.pipeline_interleave: two parts of rank ", number % size_,
                  " of the pipeline have ", parameter->name(),
                  ", whose gradient would come in two passes; take another pipeline_interleave or "
                  "mesh.pipe"));
        }
        ranks.push_back(number % size_);
      }
    }
  }
  for (auto& [parameter, ranks] : holders_) std::ranges::sort(ranks);
  for (const nn::Parameter* parameter : whole_.parameters()) {
    holders_.try_emplace(parameter, std::vector{0});
  }
}

const std::vector<int>& PipelineCut::holders(const autograd::Parameter& parameter) const {
  return holders_.at(&parameter);
}

bool PipelineCut::is_here(const autograd::Parameter& parameter) const {
  return std::ranges::binary_search(holders(parameter), rank_);
}

std::optional<std::vector<int>> PipelineCut::part_of(const autograd::Parameter& parameter) const {
  if (!is_here(parameter)) return std::nullopt;
  const auto found = parts_of_.find(&parameter);
  return found == parts_of_.end() ? std::vector{0} : found->second;
}

const StageInput& PipelineCut::input_of(const nn::Batch& batch, int of) {
  const auto [found, is_new] = inputs_.try_emplace(
      str(of, whole_.is_training() ? ": " : ", evaluation: ", to_string(batch.tensors)));
  StageInput& input = found->second;
  if (!is_new || part(of).is_first) return input;
  const ContextScope scope(context_);
  context_.random().set_position(0, 0);
  MetaSource source;
  const SourceScope sources(whole_, source);
  const autograd::NoGrad no_grad;
  const nn::Batch empty = empty_like(batch);
  nn::TensorList x;
  const int64_t begin = first_[static_cast<size_t>(part(of).number)];
  for (int64_t i = 0; i < begin; ++i) x = staged_.stage(i, empty, std::move(x));
  input.tensors = look_of(x);
  const std::vector<bool>& wants = has_gradient_[static_cast<size_t>(begin)];
  bug_check(wants.size() == x.size(), "pipeline: stage ", begin, " takes ", x.size(),
            " tensors, and took ", wants.size());
  for (size_t t = 0; t < x.size(); ++t) input.tensors[t].has_gradient = wants[t];
  input.draws = context_.random().snapshot().calls;
  return input;
}

void add_tied_gradient(const std::vector<int>& holders, comm::World& pipe, const View& sums) {
  constexpr int kTied = 2;  // tag of messages
  const StreamRef compute = pipe.context().compute();
  comm::Communicator& peers = pipe.communicator();
  const int first = holders.front();
  const auto others = static_cast<int64_t>(holders.size()) - 1;
  const TraceSpan span(pipe.context().trace(), TraceKind::exchange, compute, "tied gradients",
                       pipe.rank() == first ? others * sums.bytes() : sums.bytes());
  if (pipe.rank() != first) {
    peers.send(sums, first, kTied, compute).wait_on(compute);
    peers.receive(sums, first, kTied, compute).wait_on(compute);
    return;
  }
  const Tensor theirs = Tensor::empty(sums.shape(), sums.dtype(), Label::communication);
  for (const int holder : holders) {
    if (holder == first) continue;
    peers.receive(theirs.view(), holder, kTied, compute).wait_on(compute);
    kernels::accumulate({.x = theirs.view(), .accumulator = sums}, compute);
  }
  for (const int holder : holders) {
    if (holder != first) peers.send(sums, holder, kTied, compute).wait_on(compute);
  }
}

}  // namespace zinc::parallel
