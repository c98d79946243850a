// hub/tuning.h: chooses the trained part of a model: all of it, some parameters, or adapters beside
// it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/block_format.h"
#include "nn/lora.h"
#include "nn/module.h"

namespace zinc::hub {

// Patterns are those of nn::Module::freeze(): "transformer.h.*.attn.*".
struct TuningOptions {
  // If not empty, nothing else is trained. Not together with adapters.
  std::vector<std::string> train{};
  std::vector<std::string> freeze{};  // parameters that are not trained
  std::optional<nn::LoraOptions> lora{};
  std::string adapter{};  // folder of an adapter to continue; `lora` then has its options
  // The format of the frozen weights of linear layers while adapters train: nn/quantize.h.
  std::optional<BlockFormat> quantize{};
  std::string base_model{};          // the base of adapters, for their adapter_config.json
  bool has_default_targets = false;  // nobody named the targets of `lora`; not of text_of()

  bool is_all() const { return train.empty() && freeze.empty() && !has_adapters(); }
  bool has_adapters() const { return lora.has_value(); }
};

// "r=8,alpha=32,dropout=0.1,targets=q_proj,v_proj": keys r, alpha, dropout, rslora and dora (true,
// false), targets, exclude and modules_to_save; a word without "=" belongs to the list before it.
// Without targets the list of them is empty. ConfigError with the nearest key.
nn::LoraOptions parse_lora(std::string_view text);

// peft's default targets of adapters, by the family's model_type; empty for a family that peft does
// not know.
std::vector<std::string> default_lora_targets(std::string_view model_type);
// Gives `tuning` these targets where its LoRA has none. ConfigError if the defaults are empty.
void settle_lora_targets(TuningOptions& tuning, std::string_view model_type);

// "nf4" or "int8". ConfigError for any other word.
BlockFormat parse_quantize(std::string_view text);

// The options with which an adapter was trained, from its folder, to continue it. Throws as
// read_adapter_config().
TuningOptions tuning_of_adapter(const std::string& folder);

// The options as text. A run that continues must have the same text as its checkpoint. The
// adapter's folder is not part of it.
std::string text_of(const TuningOptions& tuning);

// Freezes and adapts `model`, whose parameters must have no values yet. Throws ConfigError for a
// pattern or target that matches nothing, and if nothing is left to train.
void apply_tuning(nn::Module& model, const TuningOptions& tuning);

// "trainable params: 294,912 || all params: 124,734,720 || trainable%: 0.2364", as peft says it.
std::string describe_trainable(nn::Module& model);

}  // namespace zinc::hub
