// apps/hardware_file.h: where the figures of this machine lie.
#pragma once

#include <optional>
#include <string>

#include "plan/hardware.h"

namespace zinc::apps {

// $ZINC_HARDWARE, or zinc/hardware.json in $XDG_CONFIG_HOME, or in ~/.config; empty where no
// variable says where that is.
std::string own_hardware_path();

// Reads the file at `path`. If that is empty, reads the machine's own file; absent if there is
// none, or if it is about another kind of device. Throws DataError and IoError as
// plan::read_hardware does, also for the machine's own file, and ConfigError if the file at `path`
// is about another kind.
std::optional<plan::Hardware> find_hardware(const std::string& path, DeviceKind device);

// How to get the times that a plan without a hardware file does not have.
std::string how_to_get_hardware();

}  // namespace zinc::apps
