// zero/program/meta_source.h: running a model on a device without memory, to see what it does.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "autograd/parameter.h"
#include "core/context.h"
#include "core/work_log.h"
#include "nn/model.h"

namespace zinc::zero {

// Like the current context, but on a meta device of its own, the index-th: what a model keeps for a
// device is not kept from it for the run, nor from one such context for another. `log` may be null.
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

// Serves meta views of the current context's device.
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
    return {&unreadable_, parameter.dtype(), parameter.shape(), Context::current().device()};
  }

  std::byte unreadable_{};  // gives the views an address; nothing reads through it on a meta device
};

// Puts every parameter under one source and back under its own when the scope ends.
class SourceScope {
 public:
  SourceScope(nn::Model& model, autograd::ParameterSource& source) {
    for (nn::Parameter* parameter : model.parameters()) {
      previous_.emplace_back(parameter, &parameter->source());
      parameter->set_source(source);
    }
  }
  ~SourceScope() {
    for (auto& [parameter, source] : previous_) parameter->set_source(*source);
  }
  SourceScope(const SourceScope&) = delete;
  SourceScope& operator=(const SourceScope&) = delete;

 private:
  std::vector<std::pair<nn::Parameter*, autograd::ParameterSource*>> previous_;
};

}  // namespace zinc::zero
