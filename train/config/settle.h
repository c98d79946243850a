// train/config/settle.h: what follows from several keys of a configuration together.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "files/json/value.h"
#include "train/config/config.h"
#include "train/config/findings.h"

namespace zinc::train {

// A configuration whose keys were read one by one.
struct Reading {
  Config& config;
  const Overrides& flags;
  int64_t world_size;
  // Checked values that the file gives; not null, not "auto".
  const std::map<std::string, const files::json::Value*, std::less<>>& given;
  Findings& findings;

  const files::json::Value* find(std::string_view path) const {
    const auto found = given.find(path);
    return found == given.end() ? nullptr : found->second;
  }
};

// Settles what several keys decide together: the batch from any two of its three numbers, the
// dtype, the optimizer and the schedule. Keys that contradict each other (key_rules.h), and flags
// that contradict keys, are problems; keys without an effect are notices.
void settle(const Reading& reading);

// Problems with values that are good one by one: the rows of zero/config_rules.h, and what the
// optimizer, the schedule and the loss scale find.
void check_together(const Reading& reading);

}  // namespace zinc::train
