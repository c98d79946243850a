// kernels/device_notes.h: notes for a person on the kernels that a context's device runs: a plain
// kernel stands in for a fast one, with shape and reason. The library prints nothing; a command
// shows the lines. The lines depend on shapes, dtypes, strides, device and build.
#pragma once

#include <string>
#include <vector>

namespace zinc::kernels {

// The context's slot.
class DeviceNotes {
 public:
  static constexpr size_t kMaxLines = 32;  // then one more says that there are others

  // Each text once, in the order in which they came.
  void add(std::string line);
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::vector<std::string> lines_;
};

// Adds a line to the notes of the current context; without a context the line is lost.
void note_of_device(std::string line);

}  // namespace zinc::kernels
