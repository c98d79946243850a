#include "nn/lora.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "autograd/ops/binary.h"
#include "autograd/ops/gelu.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/scale.h"
#include "autograd/ops/unary.h"
#include "core/edit_distance.h"
#include "core/error.h"
#include "nn/model.h"

namespace zinc::nn {
namespace {

constexpr std::string_view kAllLinear = "all-linear";

bool ends_path(std::string_view path, std::string_view end) {
  if (!path.ends_with(end)) return false;
  return path.size() == end.size() || path[path.size() - end.size() - 1] == '.';
}

// Linear layers that an adapter may go to.
std::vector<Linear*> adaptable(Module& model) {
  std::vector<Linear*> layers;
  for (Module* module : model.modules()) {
    if (auto* linear = dynamic_cast<Linear*>(module)) layers.push_back(linear);
  }
  return layers;
}

// What `end` could have meant: last names of paths, each once.
template <class Modules>
[[noreturn]] void throw_no_match(std::string_view what, const std::string& end,
                                 const Modules& modules) {
  std::set<std::string> names;
  for (const Module* module : modules) names.insert(module->name());
  names.erase("");
  const std::vector<std::string> candidates(names.begin(), names.end());
  const std::string near = nearest_name(end, candidates);
  std::string known;
  for (const std::string& name : candidates) {
    if (name.find_first_not_of("0123456789") == std::string::npos) continue;
    known += concat(known.empty() ? "" : ", ", name);
  }
  throw ConfigError(concat(what, " \"", end, "\" matches no ",
                           what == "LoRA target" ? "linear layer" : "module", " of the model",
                           near.empty() ? "" : concat("; did you mean \"", near, "\"?"),
                           " There are ", known));
}

Tensor activated(const Tensor& x, autograd::Activation activation) {
  switch (activation) {
    case autograd::Activation::none:
      return x;
    case autograd::Activation::gelu_tanh:
      return autograd::gelu(x, autograd::GeluKind::tanh);
    case autograd::Activation::gelu_erf:
      return autograd::gelu(x, autograd::GeluKind::erf);
    case autograd::Activation::silu:
      return autograd::silu(x);
  }
  return x;
}

}  // namespace

double LoraOptions::scale() const {
  const auto r = static_cast<double>(rank);
  return alpha / (rank_stabilized ? std::sqrt(r) : r);
}

void LoraOptions::validate() const {
  if (rank < 1) throw ConfigError(concat("LoRA: the rank (r) must be positive, not ", rank));
  if (!(alpha > 0.0) || !std::isfinite(alpha))
    throw ConfigError(concat("LoRA: alpha must be positive, not ", alpha));
  if (!(dropout >= 0.0 && dropout < 1.0)) {
    throw ConfigError(concat("LoRA: dropout must be in [0, 1), not ", dropout));
  }
  if (targets.empty()) {
    throw ConfigError("LoRA: targets are missing; name linear layers, or \"all-linear\"");
  }
}

LoraAdapter::LoraAdapter(Linear& layer, const LoraOptions& options)
    : layer_(layer),
      scale_(options.scale()),
      dropout_(layer, "lora_dropout", options.dropout),
      down_(layer, "lora_A", {.in = layer.options().in, .out = options.rank, .bias = false}),
      up_(layer, "lora_B",
          {.in = options.rank,
           .out = layer.options().out,
           .bias = false,
           .initializer = autograd::Initializer::zeros()}) {}

Tensor LoraAdapter::forward(const Tensor& x) {
  const LinearOptions& options = layer_.options_;
  const Tensor base =
      autograd::linear(x, layer_.weight_, layer_.bias(), {.layout = options.layout});
  const Tensor low = autograd::scale(down_.forward(dropout_.forward(x)), scale_);
  return activated(autograd::add(base, up_.forward(low)), options.activation);
}

void LoraAdapter::attach(Linear& layer, const LoraOptions& options) {
  require(layer.adapter_ == nullptr, layer.path(), ": has an adapter already");
  layer.adapter_ = std::make_unique<LoraAdapter>(layer, options);
}

std::vector<std::string> add_lora(Module& model, const LoraOptions& options) {
  options.validate();
  const std::vector<Linear*> layers = adaptable(model);
  auto* whole = dynamic_cast<Model*>(&model);
  const Linear* logits_layer = whole == nullptr ? nullptr : whole->logits_layer();
  std::set<Linear*> chosen;
  for (const std::string& target : options.targets) {
    const size_t before = chosen.size();
    bool matched = false;
    for (Linear* layer : layers) {
      const bool fits =
          target == kAllLinear ? layer != logits_layer : ends_path(layer->path(), target);
      if (fits) chosen.insert(layer);
      matched = matched || fits;
    }
    if (!matched && chosen.size() == before) throw_no_match("LoRA target", target, layers);
  }
  model.freeze("*");
  std::vector<std::string> adapted;
  for (Linear* layer : layers) {
    if (!chosen.contains(layer)) continue;
    LoraAdapter::attach(*layer, options);
    adapted.push_back(layer->path());
  }
  for (const std::string& end : options.modules_to_save) {
    bool matched = false;
    for (Module* module : model.modules()) {
      if (module->path().empty() || !ends_path(module->path(), end)) continue;
      matched = true;
      module->unfreeze("*");
    }
    if (!matched) throw_no_match("LoRA module to save", end, model.modules());
  }
  return adapted;
}

bool is_lora_parameter(std::string_view name) {
  return name.ends_with(".lora_A.weight") || name.ends_with(".lora_B.weight");
}

}  // namespace zinc::nn
