#include "train/config/findings.h"

#include "core/error.h"

namespace zinc::train {

void Findings::problem(const files::json::Value& at, std::string_view message) {
  problems_.push_back(at.source() == nullptr ? std::string(message)
                                             : at.source()->describe(at.span(), message));
}

void Findings::problem(const files::json::Member& at, std::string_view message) {
  problems_.push_back(at.value.source()->describe(at.key_span, message));
}

void Findings::throw_problems() const {
  if (problems_.empty()) return;
  std::string text;
  for (const std::string& problem : problems_) text += (text.empty() ? "" : "\n") + problem;
  if (problems_.size() > 1) text = str(problems_.size(), " problems\n", text);
  throw ConfigError(text);
}

}  // namespace zinc::train
