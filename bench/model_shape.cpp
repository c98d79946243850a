#include <array>
#include <string>

#include "bench/registry.h"
#include "core/error.h"
#include "nn/models/gpt2_config.h"
#include "nn/models/llama_config.h"

namespace zinc::bench {

ModelShape shape_of_preset(std::string_view preset) {
  if (preset == "gpt2-124m" || preset == "gpt2-1.5b") {
    const nn::Gpt2Config c = nn::Gpt2Config::preset(preset);
    return {.name = std::string(preset),
            .hidden = c.hidden_size,
            .intermediate = c.mlp_size(),
            .heads = c.num_heads,
            .kv_heads = c.num_heads,
            .head_dim = c.hidden_size / c.num_heads,
            .vocabulary = c.vocab_size};
  }
  if (preset == "llama-1b" || preset == "llama-8b") {
    const nn::LlamaConfig c = nn::LlamaConfig::preset(preset);
    return {.name = std::string(preset),
            .hidden = c.hidden_size,
            .intermediate = c.intermediate_size,
            .heads = c.num_heads,
            .kv_heads = c.kv_heads(),
            .head_dim = c.head_dim(),
            .vocabulary = c.vocab_size,
            .seq = 2048,
            .gated = true};
  }
  throw ConfigError(concat("the bench has no shapes of \"", preset,
                           "\"; it has gpt2-124m, gpt2-1.5b, llama-1b, llama-8b"));
}

}  // namespace zinc::bench
