// parallel/meta_source.h: runs a model on a device without memory, to observe what the model does.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "autograd/parameter.h"
#include "core/context.h"
#include "core/work_log.h"
#include "kernels/finite_norm.h"
#include "nn/model.h"

namespace zinc::parallel {

// Options like the current context's, but for the index-th meta device. A model may keep objects
// per device; on a separate device they do not mix with those of the run, nor with those of another
// such context. `log` may be null.
inline ContextOptions meta_context(WorkLog* log, int index = 0) {
  constexpr int kRecordingDevice = 1 << 14;
  Device device = Context::current().device();
  device.meta = true;
  device.index = static_cast<int16_t>(kRecordingDevice + index);
  return {.device = device,
          .seed = Context::current().random().seed(),
          .num_threads = Context::current().num_threads(),
          .execution = ContextOptions::Execution::inline_all,
          .work_log = log};
}

// Serves meta views of the current context's device. Parameters lie as the engine lays them out, at
// multiples of a chunk, in the order of their first use, so that they can be joined: Note [Weights
// side by side] in autograd/weight.h.
class MetaSource : public autograd::ParameterSource {
 public:
  autograd::ParameterGuard acquire(autograd::Parameter& parameter) override {
    return {*this, parameter, view_of(parameter)};
  }
  autograd::GradientTarget gradient(autograd::Parameter& parameter) override {
    return {.view = view_of(parameter), .accumulate = false};
  }
  void gradient_done(autograd::Parameter&) override {}

 protected:
  void release(autograd::Parameter&) noexcept override {}

 private:
  View view_of(const autograd::Parameter& parameter) {
    const auto [place, is_new] = places_.try_emplace(&parameter, next_);
    if (is_new) {
      const int64_t chunks = (parameter.numel() + kernels::kNormChunk - 1) / kernels::kNormChunk;
      next_ += static_cast<uintptr_t>(chunks * kernels::kNormChunk * size_of(parameter.dtype()));
    }
    return {reinterpret_cast<void*>(place->second), parameter.dtype(), parameter.shape(),
            Context::current().device()};
  }

  // Addresses that nothing reads through on a meta device.
  std::unordered_map<const autograd::Parameter*, uintptr_t> places_;
  uintptr_t next_ = uintptr_t{1} << 40;
};

// Gives every parameter one source, and its old source back when the scope ends.
class SourceScope {
 public:
  SourceScope(nn::Model& model, autograd::ParameterSource& source) {
    for (nn::Parameter* parameter : model.parameters()) {
      previous_.push_back({parameter, &parameter->source(), parameter->index()});
      parameter->set_source(source);
    }
  }
  ~SourceScope() {
    for (const Previous& of : previous_) of.parameter->set_source(*of.source, of.index);
  }
  SourceScope(const SourceScope&) = delete;
  SourceScope& operator=(const SourceScope&) = delete;

 private:
  struct Previous {
    nn::Parameter* parameter;
    autograd::ParameterSource* source;
    autograd::ParameterIndex index;
  };
  std::vector<Previous> previous_;
};

}  // namespace zinc::parallel
