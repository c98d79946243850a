#include "nn/named_tensors.h"

#include <algorithm>

#include "core/edit_distance.h"
#include "core/error.h"

namespace zinc::nn {

NamedTensors::NamedTensors(std::initializer_list<Entry> entries) {
  for (const auto& [name, tensor] : entries) {
    require(entry(name) == nullptr, "named tensors: \"", name, "\" comes twice");
    set(name, tensor);
  }
}

NamedTensors::Entry* NamedTensors::entry(std::string_view name) {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.first == name; });
  return found == entries_.end() ? nullptr : &*found;
}

void NamedTensors::set(std::string_view name, Tensor tensor) {
  Entry* const present = entry(name);
  if (!tensor.defined()) {
    if (present != nullptr) entries_.erase(entries_.begin() + (present - entries_.data()));
  } else if (present != nullptr) {
    present->second = std::move(tensor);
  } else {
    entries_.emplace_back(name, std::move(tensor));
  }
}

Tensor NamedTensors::find(std::string_view name) const {
  for (const auto& [present, tensor] : entries_) {
    if (present == name) return tensor;
  }
  return {};
}

const Tensor& NamedTensors::operator[](std::string_view name) const {
  std::vector<std::string> names;
  for (const auto& [present, tensor] : entries_) {
    if (present == name) return tensor;
    names.push_back(present);
  }
  const std::string near = nearest_name(name, names);
  throw InvalidArgument(
      str("there is no tensor \"", name, "\"; ",
          near.empty() ? "" : str("did you mean \"", near, "\"? "),
          names.empty() ? "there are none" : str("there are ", to_string(*this))));
}

std::string to_string(const NamedTensors& tensors) {
  std::string text;
  for (const auto& [name, tensor] : tensors) {
    text += str(text.empty() ? "" : ", ", name, " ", tensor.shape(), " ", tensor.dtype());
  }
  return text;
}

}  // namespace zinc::nn
