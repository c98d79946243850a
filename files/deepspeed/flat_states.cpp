#include "files/deepspeed/flat_states.h"

#include <utility>

#include "core/error.h"
#include "files/input_file.h"

namespace zinc::files {
namespace {

size_t slot_of(StateKind kind) { return static_cast<size_t>(kind); }

class FlatStatesOfFile final : public FlatStates {
 public:
  FlatStatesOfFile(std::shared_ptr<const torch::TorchFile> file, const FlatTensors& tensors)
      : file_(std::move(file)), tensors_(tensors) {}

  bool has(StateKind kind) const override { return tensors_[slot_of(kind)] != nullptr; }
  int64_t size(StateKind kind) const override { return tensors_[slot_of(kind)]->shape.numel(); }
  void read(StateKind kind, int64_t begin, View out) const override {
    file_->read(*tensors_[slot_of(kind)], begin, out);
  }

 private:
  std::shared_ptr<const torch::TorchFile> file_;
  FlatTensors tensors_;
};

// A file of a universal checkpoint: {"param": tensor, ...}, or the tensor itself.
const torch::TensorRecord& universal_tensor(const torch::TorchFile& file) {
  const torch::Value root = file.root();
  return (root.is_dict() ? root.at("param") : root).as_tensor();
}

class FlatStatesOfFolder final : public FlatStates {
 public:
  FlatStatesOfFolder(std::string folder, int64_t size, bool has_moments)
      : folder_(std::move(folder)), size_(size), has_moments_(has_moments) {}

  static std::string path(const std::string& folder, StateKind kind) {
    return str(folder, '/', kind == StateKind::weights ? "fp32" : name_of(kind), ".pt");
  }

  bool has(StateKind kind) const override { return kind == StateKind::weights || has_moments_; }
  int64_t size(StateKind) const override { return size_; }
  void read(StateKind kind, int64_t begin, View out) const override {
    const torch::TorchFile file = torch::TorchFile::open(path(folder_, kind));
    const torch::TensorRecord& tensor = universal_tensor(file);
    if (tensor.shape.numel() != size_) {
      throw DataError(str(file.path(), ": was changed while in use"));
    }
    file.read(tensor, begin, out);
  }

 private:
  std::string folder_;
  int64_t size_;
  bool has_moments_;
};

}  // namespace

std::string_view name_of(StateKind kind) {
  constexpr std::array<std::string_view, kStateKinds.size()> kNames = {"weights", "exp_avg",
                                                                       "exp_avg_sq"};
  return kNames[slot_of(kind)];
}

std::unique_ptr<const FlatStates> make_flat_states(std::shared_ptr<const torch::TorchFile> file,
                                                   const FlatTensors& tensors) {
  return std::make_unique<const FlatStatesOfFile>(std::move(file), tensors);
}

UniversalStates open_universal_states(const std::string& folder) {
  const auto shape_of = [&](StateKind kind) {
    const auto file = torch::TorchFile::open(FlatStatesOfFolder::path(folder, kind));
    return universal_tensor(file).shape;
  };
  const Shape shape = shape_of(StateKind::weights);
  const bool has_moments = file_exists(FlatStatesOfFolder::path(folder, StateKind::exp_avg)) ||
                           file_exists(FlatStatesOfFolder::path(folder, StateKind::exp_avg_sq));
  for (const StateKind kind : {StateKind::exp_avg, StateKind::exp_avg_sq}) {
    if (!has_moments) continue;
    if (const Shape moment = shape_of(kind); moment != shape) {
      throw DataError(str(folder, ": ", name_of(kind), " has shape ", moment, ", fp32 has ", shape,
                          ": files of different runs?"));
    }
  }
  return {std::make_unique<const FlatStatesOfFolder>(folder, shape.numel(), has_moments), shape};
}

}  // namespace zinc::files
