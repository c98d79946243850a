// apps/tuning_options.h: the options that say what of a model is trained.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "hub/tuning.h"

namespace zinc::apps {

struct TuningArguments {
  std::vector<std::string> train, freeze;
  std::string lora;
  std::string adapter;
  std::string quantize;
};

void add_tuning_options(CLI::App& verb, TuningArguments& arguments);
// `model_type`: the family whose default targets in peft count if --lora names none. Throws
// ConfigError.
hub::TuningOptions tuning_of(const TuningArguments& arguments, std::string_view model_type);

}  // namespace zinc::apps
