#include "core/graphed_work.h"

namespace zinc {

void GraphedWork::run(const std::function<void()>& work) {
  if (!is_warm_) {
    work();
    is_warm_ = true;
    return;
  }
  if (context_.device().meta) {
    memory_.keep(work);
  } else if (graph_ == nullptr) {
    memory_.keep([&] { graph_ = record_(context_.compute(), work); });
  }
  if (graph_ != nullptr) graph_->launch(context_.compute());
  ++num_launched_;
}

void GraphedWork::forget() {
  if (graph_ != nullptr) context_.compute()->synchronize();
  graph_.reset();
}

}  // namespace zinc
