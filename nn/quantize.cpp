#include "nn/quantize.h"

#include "core/error.h"
#include "nn/linear.h"
#include "nn/lora.h"
#include "nn/model.h"

namespace zinc::nn {

std::vector<std::string> quantize_base(Module& model, BlockFormat format) {
  auto* whole = dynamic_cast<Model*>(&model);
  Linear* logits = whole == nullptr ? nullptr : whole->logits_layer();
  std::vector<std::string> paths;
  for (Module* module : model.modules()) {
    auto* linear = dynamic_cast<Linear*>(module);
    if (linear == nullptr || linear == logits) continue;
    LoraAdapter* adapter = linear->adapter();
    if (adapter != nullptr && adapter->magnitude() != nullptr) {
      throw ConfigError(str("a base in ", name_of(format), " under DoRA (", linear->path(),
                            ") is not supported: leave dora out"));
    }
    Parameter& weight = adapter == nullptr ? linear->weight() : adapter->weight();
    if (weight.requires_grad()) continue;
    weight.set_block_format(format);
    paths.push_back(linear->path());
  }
  if (paths.empty()) {
    throw ConfigError(
        str("nothing to keep in ", name_of(format), ": no linear layer is frozen; give LoRA"));
  }
  return paths;
}

}  // namespace zinc::nn
