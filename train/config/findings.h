// train/config/findings.h: problems of a configuration, and notices for its user.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "files/json/value.h"

namespace zinc::train {

class Findings {
 public:
  // Adds a problem with the place of `at`, if it has one.
  void problem(const files::json::Value& at, std::string_view message);
  // Adds a problem with the place of the member's key.
  void problem(const files::json::Member& at, std::string_view message);
  void problem(std::string message) { problems_.push_back(std::move(message)); }
  void notice(std::string message) { notices_.push_back(std::move(message)); }
  // Throws ConfigError with all problems, if there are any.
  void throw_problems() const;
  std::vector<std::string> take_notices() { return std::move(notices_); }

 private:
  std::vector<std::string> problems_;
  std::vector<std::string> notices_;
};

}  // namespace zinc::train
