// nn/quantize.h: a frozen base in 4 or 8 bits under adapters (T. Dettmers et al., QLoRA, 2023).
//
//   zinc::nn::add_lora(model, {.rank = 8, .targets = {"all-linear"}});
//   zinc::nn::quantize_base(model, zinc::BlockFormat::nf4);
//
// The engine keeps a quantized weight in the format of core/block_format.h, on every stage and
// tier, and decodes it to the model's dtype for each use. Adapters and other trained parameters
// keep their dtype.
#pragma once

#include <string>
#include <vector>

#include "core/block_format.h"
#include "nn/module.h"

namespace zinc::nn {

// Sets the block format of the frozen weights of all linear layers but Model::logits_layer(), and
// returns the paths of these layers. Embeddings, norms and biases keep their dtype. Call after
// add_lora() and before the parameters have values. Throws ConfigError if no linear layer is
// frozen, and with DoRA, whose magnitudes begin as norms of the whole weight.
std::vector<std::string> quantize_base(Module& model, BlockFormat format);

}  // namespace zinc::nn
