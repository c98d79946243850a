#include "apps/hardware_file.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "core/error.h"

namespace zinc::apps {

std::string own_hardware_path() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (const std::string path = variable("ZINC_HARDWARE"); !path.empty()) return path;
  constexpr const char* kName = "/zinc/hardware.json";
  if (const std::string folder = variable("XDG_CONFIG_HOME"); !folder.empty()) {
    return folder + kName;
  }
  if (const std::string home = variable("HOME"); !home.empty()) return home + "/.config" + kName;
  return "";
}

std::optional<plan::Hardware> find_hardware(const std::string& path, DeviceKind device) {
  if (!path.empty()) {
    plan::Hardware given = plan::read_hardware(path);
    if (given.device != device) {
      throw ConfigError(fmt::format(
          "--hardware {} is about the device '{}', the run about '{}': give another file, or "
          "--device",
          path, to_string(Device{.kind = given.device}), to_string(Device{.kind = device})));
    }
    return given;
  }
  const std::string own = own_hardware_path();
  std::error_code ignored;
  if (own.empty() || !std::filesystem::exists(own, ignored)) return std::nullopt;
  plan::Hardware hardware = plan::read_hardware(own);
  if (hardware.device != device) return std::nullopt;
  return hardware;
}

std::string how_to_get_hardware() {
  const std::string own = own_hardware_path();
  return fmt::format(
      "no times without a hardware file: --hardware FILE, or `zinc bench ceilings --save` once{}\n",
      own.empty() ? "" : fmt::format(", which writes {}", own));
}

}  // namespace zinc::apps
