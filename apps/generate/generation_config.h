// apps/generate/generation_config.h: how a model's folder says that it should write.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "generate/generate.h"

namespace zinc::apps {

// Sets `options` from the folder's generation_config.json as transformers' generate() does, except
// the tokens that end a text. If "do_sample" is true, this includes the options for drawing a
// token; if it is false, the most likely token is taken. Options that the user has given (`given`)
// stay; options for drawing are left out for a beam search. Returns a line for the user; empty:
// nothing was taken, or there is no file. DataError with its place for an invalid value.
std::string take_generation_config(const std::string& folder,
                                   const std::function<bool(std::string_view option)>& given,
                                   generate::GenerateOptions& options);

}  // namespace zinc::apps
