#include "apps/tuning_options.h"

#include "core/error.h"

namespace zinc::apps {

void add_tuning_options(CLI::App& verb, TuningArguments& arguments) {
  verb.add_option("--freeze", arguments.freeze,
                  "Parameters that are not trained, by pattern, as in 'transformer.h.*.mlp.*'");
  verb.add_option("--train", arguments.train,
                  "Parameters that are trained, by pattern; nothing else is");
  verb.add_option("--lora", arguments.lora,
                  "Trains adapters alone, as in r=8,alpha=32,dropout=0.1,targets=q_proj,v_proj "
                  "(without targets peft's own of the family; also targets=all-linear, "
                  "exclude=..., rslora=true, dora=true, "
                  "modules_to_save=score)");
  verb.add_option("--adapter", arguments.adapter,
                  "Folder of an adapter, zinc's or peft's, to go on from");
  verb.add_option("--quantize", arguments.quantize,
                  "Under adapters: keeps the weights of the base's linear layers in nf4 or int8");
}

hub::TuningOptions tuning_of(const TuningArguments& arguments, std::string_view model_type) {
  hub::TuningOptions tuning;
  if (!arguments.adapter.empty()) {
    if (!arguments.lora.empty()) {
      throw ConfigError("--adapter brings its own LoRA: leave --lora out");
    }
    tuning = hub::tuning_of_adapter(arguments.adapter);
  }
  if (!arguments.lora.empty()) tuning.lora = hub::parse_lora(arguments.lora);
  if (!arguments.quantize.empty()) {
    tuning.quantize = hub::parse_quantize(arguments.quantize);
    if (!tuning.has_adapters()) {
      throw ConfigError(
          "--quantize keeps a frozen base: give --lora or --adapter, to train beside it");
    }
  }
  hub::settle_lora_targets(tuning, model_type);
  tuning.train = arguments.train;
  tuning.freeze = arguments.freeze;
  return tuning;
}

}  // namespace zinc::apps
