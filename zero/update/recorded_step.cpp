#include "zero/update/recorded_step.h"

#include <cstddef>

namespace zinc::zero {

void RecordedStep::run(Part part, const std::function<void()>& work) {
  Recorded& of = parts_[static_cast<size_t>(part)];
  if (!of.is_warm) {
    work();
    of.is_warm = true;
    return;
  }
  if (context_.device().meta) {
    memory_.keep(work);
  } else if (of.graph == nullptr) {
    memory_.keep([&] { of.graph = record_cuda_graph(context_.compute(), work); });
  }
  if (of.graph != nullptr) of.graph->launch(context_.compute());
  ++num_launched_;
}

void RecordedStep::forget() {
  for (Recorded& part : parts_) {
    if (part.graph != nullptr) context_.compute()->synchronize();
    part.graph.reset();
  }
}

}  // namespace zinc::zero
