#include "kernels/device_notes.h"

#include <algorithm>
#include <utility>

#include "core/context.h"

namespace zinc::kernels {

void DeviceNotes::add(std::string line) {
  if (lines_.size() > kMaxLines) return;
  if (std::find(lines_.begin(), lines_.end(), line) != lines_.end()) return;
  if (lines_.size() == kMaxLines)
    line = "more kernels stand in for faster ones; they are not listed";
  lines_.push_back(std::move(line));
}

void note_of_device(std::string line) {
  Context* context = Context::current_or_null();
  if (context != nullptr) context->slot<DeviceNotes>().add(std::move(line));
}

}  // namespace zinc::kernels
