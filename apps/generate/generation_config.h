// apps/generate/generation_config.h: how a model's folder says that it should write.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "generate/generate.h"

namespace zinc::apps {

// Sets in `options` what generation_config.json of the folder says, but for what ends a text, as
// transformers' generate() takes it: where "do_sample" is true also how a token is drawn, where it
// is false the most likely token. What `given` says the user did say stays, and drawing is left out
// where the user asked for a beam search. Gives a line for the user; empty: nothing was taken. No
// file, no change. DataError with its place for a value that cannot be.
std::string take_generation_config(const std::string& folder,
                                   const std::function<bool(std::string_view option)>& given,
                                   generate::GenerateOptions& options);

}  // namespace zinc::apps
