// train/export_checkpoint.h: the weights of a checkpoint, for use.
#pragma once

#include <optional>
#include <string>

#include "core/dtype.h"
#include "files/safetensors/folder.h"
#include "train/checkpoint/checkpoint.h"

namespace zinc::train {

struct ExportOptions {
  // f32 or 16 bits; absent: the one that the model was trained in. An adapter's weights are f32.
  std::optional<DType> dtype{};
  bool merge_lora = false;  // adapters are added to the weights, and not written by themselves
  int64_t max_shard_bytes = files::kDefaultShardBytes;
};

// Writes the checkpoint's WeightsForUse, its config.json and its tokenizer as a folder that
// transformers loads: the files that save_model() writes for the same weights. For a run that
// trains adapters: the folder that save_adapter() writes, or with `merge_lora` the whole model, by
// MergedWeights. The folder must not exist. Works piece by piece, in some megabytes of memory for
// any model. ConfigError for options that do not fit the run, and as WeightsForUse.
void export_weights(const Checkpoint& checkpoint, const std::string& folder,
                    const ExportOptions& options = {});

}  // namespace zinc::train
