// text/tokenizer_folder.h: the tokenizer that a model folder brings with it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "text/tokenizer.h"

namespace zinc::text {

// Names of the files that make up a tokenizer in a Hugging Face folder. All files of these names
// belong to the tokenizer and are copied with a model.
std::span<const std::string_view> tokenizer_file_names();

// The folder holds something that load_tokenizer reads.
bool has_tokenizer(const std::string& folder);

// `path`: a folder, a tokenizer.json, a vocab.json beside its merges.txt, a vocab.txt, or a
// sentencepiece model (spiece.model, tokenizer.model). In a folder the first of these counts, in
// this order. tokenizer_config.json and special_tokens_map.json beside it name the token that ends
// a text, and for sentencepiece the additional tokens: T5's <extra_id_..>, ChatGLM's, listed ones.
// DataError where there is no tokenizer, and as the readers of the formats throw.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path);

}  // namespace zinc::text
