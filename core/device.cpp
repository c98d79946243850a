#include "core/device.h"

#include <charconv>

#include "core/error.h"

namespace zinc {

std::string to_string(const Device& device) {
  const std::string name = device.is_cpu() ? "cpu" : str("cuda:", device.index);
  return device.meta ? str("meta(", name, ")") : name;
}

Device parse_device(std::string_view text) {
  if (text == "cpu") return kCpu;
  if (text == "cuda") return {.kind = DeviceKind::cuda};
  if (text.starts_with("cuda:")) {
    const std::string_view digits = text.substr(5);
    int16_t index = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (error == std::errc() && end == digits.data() + digits.size() && index >= 0) {
      return {.kind = DeviceKind::cuda, .index = index};
    }
  }
  throw InvalidArgument(str("device must be cpu, cuda or cuda:<index>, not '", text, "'"));
}

std::string_view name_of(Tier tier) {
  switch (tier) {
    case Tier::device:
      return "device";
    case Tier::pinned_host:
      return "pinned_host";
    case Tier::nvme:
      return "nvme";
  }
  return "?";
}

std::string_view name_of(Label label) {
  switch (label) {
    case Label::parameters:
      return "parameters";
    case Label::gradients:
      return "gradients";
    case Label::optimizer:
      return "optimizer";
    case Label::activations:
      return "activations";
    case Label::workspace:
      return "workspace";
    case Label::communication:
      return "communication";
    case Label::staging:
      return "staging";
  }
  return "?";
}

}  // namespace zinc
