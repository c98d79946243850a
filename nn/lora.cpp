#include "nn/lora.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <regex>
#include <set>

#include "autograd/mode.h"
#include "autograd/ops/binary.h"
#include "autograd/ops/cast.h"
#include "autograd/ops/embedding.h"
#include "autograd/ops/gelu.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/matmul.h"
#include "autograd/ops/permute.h"
#include "autograd/ops/reduce.h"
#include "autograd/ops/scale.h"
#include "autograd/ops/unary.h"
#include "autograd/ops/value.h"
#include "core/edit_distance.h"
#include "core/error.h"
#include "nn/model.h"
#include "nn/tensor_ranks.h"

namespace zinc::nn {
namespace {

constexpr std::string_view kAllLinear = "all-linear";

bool ends_path(std::string_view path, std::string_view end) {
  if (!path.ends_with(end)) return false;
  return path.size() == end.size() || path[path.size() - end.size() - 1] == '.';
}

bool is_among(std::string_view path, const std::vector<std::string>& ends) {
  return std::ranges::any_of(ends, [&](const auto& end) { return ends_path(path, end); });
}

// std::regex recurses into groups and tries every way to share a path among repetitions. Neither
// may run away for a pattern from an unchecked file.
void require_modest(const std::string& pattern) {
  constexpr size_t kLongest = 500;
  constexpr int kDeepest = 8, kMostRepetitions = 4;
  int depth = 0, deepest = 0, repetitions = 0;
  bool repeats_group = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '\\') {
      ++i;
    } else if (pattern[i] == '(') {
      deepest = std::max(deepest, ++depth);
    } else if (pattern[i] == ')') {
      --depth;
    } else if (pattern[i] == '*' || pattern[i] == '+' || pattern[i] == '{') {
      ++repetitions;
      repeats_group = repeats_group || (i > 0 && pattern[i - 1] == ')');
    }
  }
  if (pattern.size() <= kLongest && deepest <= kDeepest && repetitions <= kMostRepetitions &&
      !repeats_group) {
    return;
  }
  throw ConfigError(str("LoRA: the pattern \"", pattern.substr(0, 60),
                        pattern.size() > 60 ? "..." : "", "\" is not taken: at most ", kLongest,
                        " characters, ", kDeepest, " groups in each other and ", kMostRepetitions,
                        " of *, + and {} are, none of them behind a group; name the layers in a "
                        "list instead"));
}

std::regex compiled(const std::string& pattern) {
  require_modest(pattern);
  try {
    return std::regex(pattern);
  } catch (const std::regex_error& error) {
    throw ConfigError(str("LoRA: \"", pattern, "\" is no regular expression that is known here (",
                          error.what(), "); name the layers in a list instead"));
  }
}

// The number of the block that a module lies in: the first number in its path, behind at least two
// names.
std::optional<int64_t> block_of(std::string_view path) {
  for (int names = 0;; ++names) {
    const size_t dot = path.find('.');
    if (dot == std::string_view::npos) return std::nullopt;
    const std::string_view name = path.substr(0, dot);
    const bool is_number = name.find_first_not_of("0123456789") == std::string_view::npos;
    if (names >= 2 && is_number && name.size() < 10) return std::stoll(std::string(name));
    path.remove_prefix(dot + 1);
  }
}

// The number of the block behind one of the names: the last such number where a path has several.
std::optional<int64_t> block_behind(const std::string& path,
                                    const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    std::smatch found;
    const std::regex pattern = compiled(str("^.*\\.", name, "\\.([0-9]{1,9})\\."));
    if (std::regex_search(path, found, pattern) && found.size() > 1) return std::stoll(found[1]);
  }
  return std::nullopt;
}

// Layers that an adapter may go to.
std::vector<Module*> adaptable(Module& model) {
  std::vector<Module*> layers;
  for (Module* module : model.modules()) {
    if (dynamic_cast<Linear*>(module) != nullptr || dynamic_cast<Embedding*>(module) != nullptr) {
      layers.push_back(module);
    }
  }
  return layers;
}

// Names the modules that `end` could have meant: last names of paths, each once.
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
    known += str(known.empty() ? "" : ", ", name);
  }
  throw ConfigError(str(what, " \"", end, "\" matches no ",
                        what == "LoRA module to save" ? "module" : "linear layer or embedding",
                        " of the model", near.empty() ? "" : str("; did you mean \"", near, "\"?"),
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
  const auto require_rank = [](int64_t r) {
    constexpr int64_t kLargest = 65'536;
    if (r >= 1 && r <= kLargest) return;
    throw ConfigError(
        str("LoRA: the rank (r) must be positive and at most ", kLargest, ", not ", r));
  };
  const auto require_alpha = [](double a) {
    if (!(a > 0.0) || !std::isfinite(a))
      throw ConfigError(str("LoRA: alpha must be positive, not ", a));
  };
  require_rank(rank);
  require_alpha(alpha);
  for (const auto& [pattern, r] : rank_pattern) require_rank(r);
  for (const auto& [pattern, a] : alpha_pattern) require_alpha(a);
  if (!(dropout >= 0.0 && dropout < 1.0)) {
    throw ConfigError(str("LoRA: dropout must be in [0, 1), not ", dropout));
  }
  if (targets.empty() && target_pattern.empty()) {
    throw ConfigError("LoRA: targets are missing; name linear layers, or \"all-linear\"");
  }
  if (!block_names.empty() && layers.empty()) {
    throw ConfigError("LoRA: names of blocks (layers_pattern) go with the numbers of blocks");
  }
  if (!target_pattern.empty() && (!targets.empty() || !layers.empty())) {
    throw ConfigError("LoRA: a pattern of targets names the layers alone: without a list of them");
  }
}

LoraOptions LoraOptions::at(const std::string& path) const {
  LoraOptions here = *this;
  const auto choose = [&](const auto& patterns, auto& value) {
    for (const auto& [pattern, special] : patterns) {
      if (!std::regex_match(path, compiled(str("(.*\\.)?(", pattern, ")")))) continue;
      value = special;
      return;
    }
  };
  choose(rank_pattern, here.rank);
  choose(alpha_pattern, here.alpha);
  return here;
}

LoraAdapter::LoraAdapter(Linear& layer, const LoraOptions& options)
    : layer_(layer),
      scale_(options.scale()),
      dropout_(layer, "lora_dropout", options.dropout,
               layer.options().spread || layer.options().split == Split::rows),
      down_(layer, "lora_A",
            {.in = layer.options().in,
             .out = options.rank,
             .bias = false,
             .split = layer.options().split == Split::rows ? Split::rows : Split::none}),
      up_(layer, "lora_B",
          {.in = options.rank,
           .out = layer.options().out,
           .bias = false,
           .initializer = autograd::Initializer::zeros(),
           .split = layer.options().split == Split::columns ? Split::columns : Split::none,
           .sections = layer.options().sections,
           .spread = layer.options().spread}) {
  if (!options.dora) return;
  magnitude_.emplace(layer, "lora_magnitude_vector", Shape{layer.options().out},
                     autograd::Initializer::ones());
}

Tensor LoraAdapter::forward(const Tensor& x) {
  const LinearOptions& options = layer_.options_;
  if (magnitude_) return activated(decomposed(x), options.activation);
  const Tensor base = layer_.plain(x, autograd::Activation::none);
  const Tensor low = autograd::scale(narrowed(dropout_.forward(x)), scale_);
  return activated(autograd::add(base, up_.forward(low)), options.activation);
}

// x A^T. Where x was spread to slices, each rank has a part of the gradient of A.
Tensor LoraAdapter::narrowed(const Tensor& x) {
  TensorRanks* ranks = layer_.tensor_ranks();
  const bool is_spread = layer_.options_.split == Split::columns && layer_.options_.spread;
  if (ranks == nullptr || !is_spread || ranks->fixes_slices()) return down_.forward(x);
  return autograd::linear(x, ranks->spread(autograd::value(down_.weight())));
}

Tensor LoraAdapter::decomposed(const Tensor& x) {
  const auto product = [&](const Tensor& input) {
    return autograd::linear(input, layer_.weight_, {}, {.layout = layer_.options_.layout});
  };
  const Tensor norms = row_norms();
  const Tensor lengths = autograd::cast(autograd::value(*magnitude_), norms.dtype());
  const Tensor factors = autograd::cast(autograd::div(lengths, norms), x.dtype());
  const Tensor dropped = dropout_.forward(x);
  const Tensor base = product(dropped);
  const Tensor low = autograd::scale(down_.forward(dropped), scale_);
  Tensor y = autograd::mul(autograd::add(base, up_.forward(low)), factors);
  // The term is added in evaluation too, where it is zero, so that the uses of weights are the same
  // in every pass.
  if (dropout_.probability() > 0.0) y = autograd::add(y, autograd::sub(product(x), base));
  return layer_.bias() == nullptr ? y : autograd::add(y, autograd::value(*layer_.bias()));
}

Tensor LoraAdapter::row_norms() {
  const autograd::NoGrad no_grad;
  const bool in_out = layer_.options_.layout == autograd::WeightLayout::in_out;
  const DType dtype = layer_.weight_.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const auto value_of = [&](Parameter& parameter) {
    return autograd::cast(autograd::value(parameter), dtype);
  };
  const Tensor a = value_of(down_.weight()), b = value_of(up_.weight());
  const Tensor change =
      in_out ? autograd::matmul(a, b, {.transpose_a = true, .transpose_b = true, .alpha = scale_})
             : autograd::matmul(b, a, {.alpha = scale_});
  const Tensor whole = autograd::add(value_of(layer_.weight_), change);
  return autograd::sqrt(autograd::sum(autograd::square(whole), in_out ? 0 : 1));
}

void LoraAdapter::attach(Linear& layer, const LoraOptions& options) {
  require(layer.adapter_ == nullptr, layer.path(), ": has an adapter already");
  layer.adapter_ = std::make_unique<LoraAdapter>(layer, options);
}

EmbeddingAdapter::EmbeddingAdapter(Embedding& layer, const LoraOptions& options)
    : scale_(options.scale()),
      a_(layer, "lora_embedding_A", Shape{options.rank, layer.weight().shape()[0]},
         autograd::Initializer::zeros()),
      b_(layer, "lora_embedding_B", Shape{layer.weight().shape()[1], options.rank},
         autograd::Initializer::normal(1.0)) {}

Tensor EmbeddingAdapter::add_to(const Tensor& rows, const Tensor& ids) {
  const Tensor low = autograd::embedding(ids, autograd::transpose(autograd::value(a_)));
  return autograd::add(rows, autograd::scale(autograd::linear(low, b_), scale_));
}

void EmbeddingAdapter::attach(Embedding& layer, const LoraOptions& options) {
  require(layer.adapter_ == nullptr, layer.path(), ": has an adapter already");
  layer.adapter_ = std::make_unique<EmbeddingAdapter>(layer, options);
}

namespace {

// The layers that a target (an end of a path) or the pattern names. `logits`: left out of
// "all-linear".
std::set<Module*> targets_of(const std::vector<Module*>& layers, const LoraOptions& options,
                             const Linear* logits, NamesNothing names_nothing) {
  std::set<Module*> chosen;
  std::string unmatched;
  const auto choose = [&](const std::string& target, const auto& fits) {
    bool matched = false;
    for (Module* layer : layers) {
      if (!fits(*layer)) continue;
      chosen.insert(layer);
      matched = true;
    }
    if (!matched && unmatched.empty()) unmatched = target;
  };
  if (!options.target_pattern.empty()) {
    const std::regex pattern = compiled(options.target_pattern);
    choose(options.target_pattern,
           [&](const Module& layer) { return std::regex_match(layer.path(), pattern); });
  }
  for (const std::string& target : options.targets) {
    choose(target, [&](const Module& layer) {
      if (target != kAllLinear) return ends_path(layer.path(), target);
      return &layer != logits && dynamic_cast<const Linear*>(&layer) != nullptr;
    });
  }
  if (!unmatched.empty() && (chosen.empty() || names_nothing == NamesNothing::refused)) {
    throw_no_match("LoRA target", unmatched, layers);
  }
  std::erase_if(chosen, [&](const Module* layer) {
    const std::optional<int64_t> block = options.block_names.empty()
                                             ? block_of(layer->path())
                                             : block_behind(layer->path(), options.block_names);
    return is_among(layer->path(), options.exclude) ||
           (!options.layers.empty() &&
            (!block || std::ranges::find(options.layers, *block) == options.layers.end()));
  });
  return chosen;
}

void attach(Module& layer, const LoraOptions& options) {
  const LoraOptions here = options.at(layer.path());
  if (auto* linear = dynamic_cast<Linear*>(&layer)) return LoraAdapter::attach(*linear, here);
  auto& embedding = dynamic_cast<Embedding&>(layer);
  if (!embedding.is_adaptable()) {
    throw ConfigError(str("LoRA: adapters of ", layer.path(),
                          " are not supported: it is read together with others; name it in "
                          "modules_to_save, to train it whole"));
  }
  if (options.dora) {
    throw ConfigError(str("LoRA: DoRA is of linear layers; leave ", layer.path(),
                          " out of the targets, or name it in modules_to_save"));
  }
  EmbeddingAdapter::attach(embedding, here);
}

}  // namespace

std::vector<std::string> add_lora(Module& model, const LoraOptions& options,
                                  NamesNothing names_nothing) {
  options.validate();
  const std::vector<Module*> layers = adaptable(model);
  auto* whole = dynamic_cast<Model*>(&model);
  std::set<Module*> chosen = targets_of(
      layers, options, whole == nullptr ? nullptr : whole->logits_layer(), names_nothing);
  std::set<Module*> saved;
  std::vector<Module*> trained_whole;
  for (const std::string& end : options.modules_to_save) {
    bool matched = false;
    for (Module* module : model.modules()) {
      if (module->path().empty() || !ends_path(module->path(), end)) continue;
      matched = true;
      trained_whole.push_back(module);
      for (Module* inside : module->modules()) saved.insert(inside);
    }
    if (!matched && names_nothing == NamesNothing::refused) {
      throw_no_match("LoRA module to save", end, model.modules());
    }
  }
  std::erase_if(chosen, [&](Module* layer) { return saved.contains(layer); });
  if (chosen.empty()) {
    throw ConfigError(
        "LoRA: of what the targets name nothing is left; look at exclude, layers and "
        "modules_to_save");
  }
  model.freeze("*");
  for (Module* module : trained_whole) module->unfreeze("*");
  std::vector<std::string> adapted;
  for (Module* layer : layers) {
    if (!chosen.contains(layer)) continue;
    attach(*layer, options);
    adapted.push_back(layer->path());
  }
  return adapted;
}

std::vector<LoraTerms> lora_terms(Module& model) {
  std::vector<LoraTerms> terms;
  for (Module* module : model.modules()) {
    auto* linear = dynamic_cast<Linear*>(module);
    auto* embedding = dynamic_cast<Embedding*>(module);
    if (linear != nullptr && linear->adapter() != nullptr) {
      LoraAdapter& adapter = *linear->adapter();
      terms.push_back({.weight = &adapter.weight(),
                       .a = &adapter.down().weight(),
                       .b = &adapter.up().weight(),
                       .magnitude = adapter.magnitude(),
                       .scale = adapter.scale(),
                       .transposed = linear->options().layout == autograd::WeightLayout::in_out});
    } else if (embedding != nullptr && embedding->adapter() != nullptr) {
      EmbeddingAdapter& adapter = *embedding->adapter();
      terms.push_back({.weight = &embedding->weight(),
                       .a = &adapter.a(),
                       .b = &adapter.b(),
                       .scale = adapter.scale(),
                       .transposed = true,
                       .is_embedding = true});
    }
  }
  return terms;
}

bool is_lora_parameter(std::string_view name) {
  constexpr std::string_view kEnds[] = {".lora_A.weight", ".lora_B.weight", ".lora_embedding_A",
                                        ".lora_embedding_B", ".lora_magnitude_vector"};
  return std::ranges::any_of(kEnds, [&](std::string_view end) { return name.ends_with(end); });
}

}  // namespace zinc::nn
