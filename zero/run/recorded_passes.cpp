#include "zero/run/recorded_passes.h"

#include <utility>

#include "autograd/mode.h"
#include "core/error.h"

namespace zinc::zero {
namespace {

// Puts `batch`'s tensor where the graph reads it.
void place_tensor(const char* name, const Tensor& from, Tensor& to, bool first) {
  if (first && from.defined()) to = Tensor::empty(from.shape(), from.dtype());
  require(from.defined() == to.defined() && (!from.defined() || from.shape() == to.shape()),
          "\"cuda_graph\": true needs batches of one shape: ", name, " was ",
          to.defined() ? to_string(to.shape()) : "absent", " and is ",
          from.defined() ? to_string(from.shape()) : "absent");
  if (from.defined()) to.copy_from(from);
}

}  // namespace

RecordedPasses::RecordedPasses(Context& context, GradientStore& gradients,
                               comm::Communicator& communicator)
    : context_(context),
      gradients_(gradients),
      communicator_(communicator),
      memory_(context.allocator()) {}

RecordedPasses::~RecordedPasses() {
  try {
    context_.compute()->synchronize();
  } catch (...) {
    // The stream's failure is thrown where it is waited for; graphs go in any case.
  }
}

Tensor RecordedPasses::run(const nn::Batch& batch, const MicroBatchKind& kind, double seed,
                           const Passes& passes) {
  seed_.set(seed);
  if (!is_warm_) {
    Tensor loss = run_first(batch, passes);
    is_warm_ = kind.last;
    return loss;
  }
  place(batch);
  draws_->set_position(context_.random());
  auto found = graphs_.find(kind);
  if (found == graphs_.end()) {
    found = graphs_.emplace(kind, record(passes)).first;
  } else if (context_.device().meta) {
    record(passes);  // what it takes is the same; a plan's log wants to see it
  } else {
    gradients_.resume(found->second.progress);
  }
  Recorded& recorded = found->second;
  if (recorded.graph != nullptr) recorded.graph->launch(context_.compute());
  ++num_launched_;
  return recorded.loss;
}

Tensor RecordedPasses::run_first(const nn::Batch& batch, const Passes& passes) {
  Tensor loss = passes(batch, seed_).detach();
  if (!draws_) draws_.emplace(context_.random());
  require_same_draws();
  return loss;
}

void RecordedPasses::place(const nn::Batch& batch) {
  const bool first = !inputs_.input_ids.defined();
  place_tensor("input_ids", batch.input_ids, inputs_.input_ids, first);
  place_tensor("labels", batch.labels, inputs_.labels, first);
  place_tensor("lengths", batch.lengths, inputs_.lengths, first);
  place_tensor("document_starts", batch.document_starts, inputs_.document_starts, first);
}

RecordedPasses::Recorded RecordedPasses::record(const Passes& passes) {
  Recorded made;
  const auto run = [&] { made.loss = passes(inputs_, seed_).detach(); };
  const autograd::DrawScope draws(&*draws_);
  memory_.open();
  try {
    if (context_.device().meta) {
      run();
    } else {
      made.graph = communicator_.record(context_.compute(), run);
    }
    require_same_draws();
    if (!draws_->were_all_placed()) {
      throw ConfigError(
          "\"cuda_graph\": true works with the random numbers of dropout and attention alone: the "
          "model draws others, which every launch would repeat; leave cuda_graph out");
    }
  } catch (...) {
    memory_.close();
    throw;
  }
  memory_.close();
  made.progress = gradients_.progress();
  ++num_recorded_;
  return made;
}

void RecordedPasses::run_step(StepPart part, const std::function<void()>& work) {
  RecordedPart& of = step_parts_[static_cast<size_t>(part)];
  if (!of.is_warm) {
    work();
    of.is_warm = true;
    return;
  }
  const bool meta = context_.device().meta;
  if (meta || of.graph == nullptr) {
    memory_.open();
    try {
      if (meta) {
        work();
      } else {
        of.graph = record_cuda_graph(context_.compute(), work);
      }
    } catch (...) {
      memory_.close();
      throw;
    }
    memory_.close();
  }
  if (of.graph != nullptr) of.graph->launch(context_.compute());
  ++num_step_parts_launched_;
}

void RecordedPasses::forget_step() {
  for (RecordedPart& part : step_parts_) {
    if (part.graph != nullptr) context_.compute()->synchronize();
    part.graph.reset();
  }
}

void RecordedPasses::require_same_draws() const {
  if (draws_->are_those_of(context_.random())) return;
  throw ConfigError(
      "\"cuda_graph\": true needs a model that draws as many random numbers at the same places in "
      "every micro-batch; this one does not: leave cuda_graph out");
}

std::unique_ptr<RecordedPasses> make_recorded_passes(const EngineConfig& config, bool dynamic_model,
                                                     comm::World& world, GradientStore& gradients) {
  if (!config.cuda_graph) return nullptr;
  if (dynamic_model) {
    throw ConfigError(
        "\"cuda_graph\": true does not work with a dynamic model: its code would not run again");
  }
  return std::make_unique<RecordedPasses>(world.context(), gradients, world.communicator());
}

}  // namespace zinc::zero
