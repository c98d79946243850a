// nn/models/config_check.h: checks of a model's config, with messages that name the JSON key.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.h"

namespace zinc::nn {

// Each throws ConfigError "<model_type> model: <key> ..." where the check fails.
class ConfigCheck {
 public:
  explicit ConfigCheck(std::string_view model_type) : model_type_(model_type) {}

  template <class... Parts>
  void that(bool condition, const Parts&... message) const {
    if (!condition) throw ConfigError(str(model_type_, " model: ", message...));
  }
  template <class Number>
  void positive(std::string_view key, Number value) const {
    that(value > 0, key, " must be positive, not ", value);
  }
  // The value is a probability below one.
  void rate(std::string_view key, double value) const {
    that(value >= 0.0 && value < 1.0, key, " must lie in [0, 1), not ", value);
  }

 private:
  std::string_view model_type_;
};

}  // namespace zinc::nn
