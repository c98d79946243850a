#include "files/torch/in_quotes.h"

namespace zinc::files::torch {

std::string in_quotes(std::string_view text) {
  constexpr size_t kShown = 100;
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) {
      out += "\\x";
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    } else {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
  }
  if (text.size() > kShown) out += "...";
  return out + '"';
}

}  // namespace zinc::files::torch
