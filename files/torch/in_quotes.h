// files/torch/in_quotes.h: quotes unchecked text of a file, for messages.
#pragma once

#include <string>
#include <string_view>

namespace zinc::files::torch {

// The text in quotes, at most 100 bytes of it; bytes outside printable ASCII as "\xNN".
std::string in_quotes(std::string_view text);

}  // namespace zinc::files::torch
