// train/convert_checkpoint.h: checkpoints from and to other engines' files. Piece by piece: takes
// some megabytes whatever the model has.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/dtype.h"
#include "files/deepspeed/checkpoint.h"
#include "hub/model_config.h"
#include "train/checkpoint/checkpoint.h"

namespace zinc::train {

struct ConvertOptions {
  uint64_t seed = 1234;             // of the run that continues
  std::string optimizer = "AdamW";  // the optimizer's name in zinc
  // The model's config; null: not known, and zinc checkpoint export cannot write it.
  const hub::ModelConfigFile* model = nullptr;
};

// Writes <folder>/step-<steps> from a checkpoint of DeepSpeed: weights, moments where there are any
// (zeros elsewhere), and counters. The order of the data is zinc's. The states of the optimizer are
// Adam's. Returns the path. DataError as the reader; IoError.
std::string convert_deepspeed(const files::DeepSpeedCheckpoint& from, const std::string& folder,
                              const ConvertOptions& options = {});

// The weights as llm.c's model_*.bin. `dtype`: f32 or bf16. ConfigError where the model is no GPT-2
// that the format has a place for.
void export_llmc(const Checkpoint& checkpoint, const std::string& path, DType dtype);

}  // namespace zinc::train
