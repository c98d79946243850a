#include "hub/tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "core/edit_distance.h"
#include "core/error.h"
#include "hub/adapter.h"
#include "nn/quantize.h"

namespace zinc::hub {
namespace {

double number(std::string_view key, std::string_view text) {
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw ConfigError(str("LoRA: ", key, "=", text, " is no number"));
  }
  return value;
}

int64_t whole_number(std::string_view key, std::string_view text) {
  const double value = number(key, text);
  if (value != static_cast<double>(static_cast<int64_t>(value))) {
    throw ConfigError(str("LoRA: ", key, "=", text, " is no whole number"));
  }
  return static_cast<int64_t>(value);
}

bool truth(std::string_view key, std::string_view text) {
  if (text != "true" && text != "false") {
    throw ConfigError(str("LoRA: ", key, "=", text, " is neither true nor false"));
  }
  return text == "true";
}

// Throws ConfigError if a pattern matches nothing: patterns come from a user's command.
void set_trainable(nn::Module& model, const std::vector<std::string>& patterns, bool trainable) {
  for (const std::string& pattern : patterns) {
    try {
      trainable ? model.unfreeze(pattern) : model.freeze(pattern);
    } catch (const InvalidArgument&) {
      std::vector<std::string> names;
      for (const auto& [name, parameter] : model.named_parameters()) names.push_back(name);
      const std::string near = nearest_name(pattern, names);
      throw ConfigError(str("no parameter matches \"", pattern, "\"",
                            near.empty() ? "" : str("; did you mean \"", near, "\"?"),
                            "; * stands for any characters, as in \"", names.front(), "\""));
    }
  }
}

}  // namespace

nn::LoraOptions parse_lora(std::string_view text) {
  nn::LoraOptions lora;
  std::vector<std::string>* list = nullptr;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view word = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos) {
      if (list == nullptr || word.empty()) {
        throw ConfigError(str("LoRA: \"", word, "\" is no key=value, as in r=8,alpha=32,",
                              "targets=q_proj,v_proj"));
      }
      list->emplace_back(word);
      continue;
    }
    const std::string_view key = word.substr(0, equals), value = word.substr(equals + 1);
    list = nullptr;
    if (key == "r") {
      lora.rank = whole_number(key, value);
    } else if (key == "alpha") {
      lora.alpha = number(key, value);
    } else if (key == "dropout") {
      lora.dropout = number(key, value);
    } else if (key == "rslora") {
      lora.rank_stabilized = truth(key, value);
    } else if (key == "dora") {
      lora.dora = truth(key, value);
    } else if (key == "targets" || key == "exclude" || key == "modules_to_save") {
      list = key == "targets"   ? &lora.targets
             : key == "exclude" ? &lora.exclude
                                : &lora.modules_to_save;
      list->emplace_back(value);
    } else {
      const std::vector<std::string> keys{"r",    "alpha",   "dropout", "rslora",
                                          "dora", "targets", "exclude", "modules_to_save"};
      const std::string near = nearest_name(key, keys);
      throw ConfigError(str("LoRA: there is no key \"", key, "\"",
                            near.empty() ? "" : str("; did you mean \"", near, "\"?"),
                            " Keys: r, alpha, dropout, rslora, dora, targets, exclude, "
                            "modules_to_save"));
    }
  }
  nn::LoraOptions with_targets = lora;
  if (lora.targets.empty()) with_targets.targets = {"all-linear"};
  with_targets.validate();
  return lora;
}

std::vector<std::string> default_lora_targets(std::string_view model_type) {
  struct Defaults {
    std::string_view model_type;
    std::vector<std::string> targets;
  };
  static const std::vector<Defaults> kDefaults = {
      {"gpt2", {"c_attn"}},
      {"llama", {"q_proj", "v_proj"}},
      {"mistral", {"q_proj", "v_proj"}},
      {"qwen2", {"q_proj", "v_proj"}},
      {"qwen3", {"q_proj", "v_proj"}},
      {"gpt_neox", {"query_key_value"}},
      {"bloom", {"query_key_value"}},
      {"chatglm", {"query_key_value"}},
      {"t5", {"q", "v"}},
      {"bert", {"query", "value"}},
      {"roberta", {"query", "value"}},
  };
  const auto found = std::ranges::find(kDefaults, model_type, &Defaults::model_type);
  return found == kDefaults.end() ? std::vector<std::string>{} : found->targets;
}

void settle_lora_targets(TuningOptions& tuning, std::string_view model_type) {
  if (!tuning.lora || !tuning.lora->targets.empty() || !tuning.lora->target_pattern.empty()) return;
  tuning.lora->targets = default_lora_targets(model_type);
  tuning.has_default_targets = true;
  tuning.lora->validate();
}

BlockFormat parse_quantize(std::string_view text) {
  if (const auto format = block_format_named(text)) return *format;
  throw ConfigError(str("quantize: \"", text, "\" is no format; there are nf4 and int8"));
}

TuningOptions tuning_of_adapter(const std::string& folder) {
  return {.lora = read_adapter_config(folder).lora, .adapter = folder};
}

std::string text_of(const TuningOptions& tuning) {
  std::string text;
  const auto add = [&](std::string_view what, const std::vector<std::string>& words) {
    for (const std::string& word : words) text += str(what, word, '\n');
  };
  add("train ", tuning.train);
  add("freeze ", tuning.freeze);
  if (tuning.quantize) text += str("quantize ", name_of(*tuning.quantize), '\n');
  if (!tuning.lora) return text;
  const nn::LoraOptions& lora = *tuning.lora;
  text +=
      str("lora ", lora.rank, ' ', lora.alpha, ' ', lora.dropout, ' ', lora.rank_stabilized, '\n');
  if (lora.dora) text += "dora\n";
  add("target ", lora.targets);
  if (!lora.target_pattern.empty()) add("targets like ", {lora.target_pattern});
  add("but ", lora.exclude);
  for (const int64_t block : lora.layers) text += str("block ", block, '\n');
  add("blocks behind ", lora.block_names);
  for (const auto& [pattern, r] : lora.rank_pattern) text += str("r ", r, ' ', pattern, '\n');
  for (const auto& [pattern, a] : lora.alpha_pattern) {
    text += str("alpha ", a, ' ', pattern, '\n');
  }
  add("whole ", lora.modules_to_save);
  return text;
}

void apply_tuning(nn::Module& model, const TuningOptions& tuning) {
  if (tuning.quantize && !tuning.has_adapters()) {
    throw ConfigError(str("a base in ", name_of(*tuning.quantize),
                          " is frozen: it takes adapters to train beside it (--lora or "
                          "--adapter)"));
  }
  if (tuning.is_all()) return;
  if (tuning.lora) {
    if (!tuning.train.empty() || !tuning.freeze.empty()) {
      throw ConfigError(
          "beside adapters nothing is frozen or trained by pattern: what is trained with them is "
          "named by modules_to_save");
    }
    nn::add_lora(model, *tuning.lora,
                 tuning.adapter.empty() ? nn::NamesNothing::refused : nn::NamesNothing::ignored);
    if (tuning.quantize) nn::quantize_base(model, *tuning.quantize);
    return;
  }
  if (!tuning.train.empty()) model.freeze("*");
  set_trainable(model, tuning.train, true);
  set_trainable(model, tuning.freeze, false);
  if (model.num_trainable_parameters() == 0) {
    throw ConfigError("nothing is left to train: every parameter is frozen");
  }
}

std::string describe_trainable(nn::Module& model) {
  const auto with_commas = [](int64_t count) {
    const std::string digits = fmt::format("{}", count);
    std::string text;
    for (size_t i = 0; i < digits.size(); ++i) {
      if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
      text += digits[i];
    }
    return text;
  };
  const int64_t all = model.num_parameters(), trained = model.num_trainable_parameters();
  return fmt::format("trainable params: {} || all params: {} || trainable%: {:.4f}",
                     with_commas(trained), with_commas(all),
                     100.0 * static_cast<double>(trained) / static_cast<double>(all));
}

}  // namespace zinc::hub
