#include "zero/run/recorded_passes.h"

#include <utility>

#include "autograd/mode.h"
#include "core/error.h"

namespace zinc::zero {
namespace {

// Puts the batch's tensors where the graph reads them.
void place(const nn::NamedTensors& from, nn::NamedTensors& to) {
  const bool first = to.empty();
  for (const auto& [name, tensor] : from) {
    if (first) to.set(name, Tensor::empty(tensor.shape(), tensor.dtype()));
    Tensor place = to.find(name);
    require(place.defined() && place.shape() == tensor.shape(),
            "\"cuda_graph\": true needs batches of one shape: ", name, " was ",
            place.defined() ? to_string(place.shape()) : "absent", " and is ", tensor.shape());
    place.copy_from(tensor);
  }
  for (const auto& [name, tensor] : to) {
    require(from.find(name).defined(), "\"cuda_graph\": true needs batches of one shape: ", name,
            " was ", tensor.shape(), " and is absent");
  }
}

}  // namespace

RecordedPasses::RecordedPasses(Context& context, GradientStore& gradients,
                               comm::Communicator& communicator)
    : context_(context),
      gradients_(gradients),
      communicator_(communicator),
      memory_(context.allocator()),
      step_{.norm = {context, memory_},
            .update = {context, memory_, [&communicator](StreamRef stream, const auto& work) {
                         return communicator.record(stream, work);
                       }}} {}

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
  place(batch.tensors, inputs_.tensors);
  draws_->set_position(context_.random());
  auto found = graphs_.find(kind);
  if (found == graphs_.end()) {
    found = graphs_.emplace(kind, record(passes)).first;
  } else if (context_.device().meta) {
    record(passes);  // takes the same memory; a plan's log has to see the passes
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

RecordedPasses::Recorded RecordedPasses::record(const Passes& passes) {
  Recorded made;
  const auto run = [&] { made.loss = passes(inputs_, seed_).detach(); };
  const autograd::DrawScope draws(&*draws_);
  memory_.keep([&] {
    if (context_.device().meta) {
      run();
    } else {
      made.graph = communicator_.record(context_.compute(), run);
    }
    require_same_draws();
    if (draws_->were_all_placed()) return;
    throw ConfigError(
        "\"cuda_graph\": true works with the random numbers of dropout and attention alone: the "
        "model draws others, which every launch would repeat; leave cuda_graph out");
  });
  made.progress = gradients_.progress();
  ++num_recorded_;
  return made;
}

void RecordedPasses::require_same_draws() const {
  if (draws_->are_those_of(context_.random())) return;
  throw ConfigError(
      "\"cuda_graph\": true needs a model that draws as many random numbers at the same places in "
      "every micro-batch; this one does not: leave cuda_graph out");
}

std::unique_ptr<RecordedPasses> make_recorded_passes(const EngineConfig& config, comm::World& world,
                                                     GradientStore& gradients) {
  if (!config.cuda_graph) return nullptr;
  return std::make_unique<RecordedPasses>(world.context(), gradients, world.communicator());
}

}  // namespace zinc::zero
