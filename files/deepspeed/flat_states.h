// files/deepspeed/flat_states.h: a row of elements with its weights and moments, wherever they lie.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/view.h"
#include "files/torch/torch_file.h"

namespace zinc::files {

enum class StateKind : uint8_t { weights, exp_avg, exp_avg_sq };
inline constexpr std::array kStateKinds = {StateKind::weights, StateKind::exp_avg,
                                           StateKind::exp_avg_sq};
std::string_view name_of(StateKind kind);  // "weights", "exp_avg", "exp_avg_sq"

class FlatStates {
 public:
  virtual ~FlatStates() = default;
  virtual bool has(StateKind kind) const = 0;
  // Elements of a kind that it has; kinds may be padded differently.
  virtual int64_t size(StateKind kind) const = 0;
  // Reads as TorchFile::read() does.
  virtual void read(StateKind kind, int64_t begin, View out) const = 0;
};

// The tensors of one file of a rank, by kind; null where the file lacks the kind.
using FlatTensors = std::array<const torch::TensorRecord*, kStateKinds.size()>;
std::unique_ptr<const FlatStates> make_flat_states(std::shared_ptr<const torch::TorchFile> file,
                                                   const FlatTensors& tensors);

// A parameter's folder of a universal checkpoint: fp32.pt, exp_avg.pt, exp_avg_sq.pt. A file is
// opened for each read, because there are more files than parameters. DataError where the moments
// have another shape than the weights, or one of them is missing.
struct UniversalStates {
  std::unique_ptr<const FlatStates> states;
  Shape shape;
};
UniversalStates open_universal_states(const std::string& folder);

}  // namespace zinc::files
