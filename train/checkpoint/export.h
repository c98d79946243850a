// train/checkpoint/export.h: the weights of a checkpoint, for use.
#pragma once

#include <optional>
#include <string>

#include "core/dtype.h"
#include "train/checkpoint/checkpoint.h"
#include "train/safetensors/folder.h"

namespace zinc::train {

// Writes the checkpoint's weights, its config.json and its tokenizer as a folder that transformers
// loads: the files that save_model() writes of the same weights. `dtype`: f32 or 16 bits; absent:
// the one that the model was trained in. The folder must not exist. Piece by piece: takes some
// megabytes whatever the model has.
void export_weights(const Checkpoint& checkpoint, const std::string& folder,
                    std::optional<DType> dtype = {}, int64_t max_shard_bytes = kDefaultShardBytes);

}  // namespace zinc::train
