#include "hub/weight_file.h"

#include <algorithm>
#include <array>
#include <set>

#include "core/error.h"
#include "files/input_file.h"
#include "files/other_content.h"
#include "files/safetensors/reader.h"
#include "files/torch/in_quotes.h"
#include "files/torch/torch_file.h"
#include "hub/llmc_file.h"

namespace zinc::hub {
namespace {

class SafetensorsWeightFile final : public WeightFile {
 public:
  explicit SafetensorsWeightFile(const std::string& path)
      : WeightFile(path), file_(files::SafetensorsFile::open(path)) {
    for (const files::TensorEntry& entry : file_.header().tensors) {
      tensors_.push_back(
          {.name = entry.name, .type = entry.type, .dtype = entry.dtype, .shape = entry.shape});
    }
  }

  void read(size_t index, int64_t begin, View out) const override {
    file_.read(file_.header().tensors[index], begin, out);
  }

 private:
  files::SafetensorsFile file_;
};

class TorchWeightFile final : public WeightFile {
 public:
  explicit TorchWeightFile(const std::string& path)
      : WeightFile(path), file_(files::torch::TorchFile::open(path)) {
    const files::torch::Value root = file_.root();
    if (!root.is_dict()) {
      root.fail(str("the file holds ", name_of(root.kind()),
                    ", not a dict of tensors: save model.state_dict() alone"));
    }
    std::set<std::string_view> names;
    for (size_t i = 0; i < root.size(); ++i) {
      const std::string_view name = root.key(i).as_name();
      const files::torch::Value value = root.value(i);
      if (!value.is_tensor()) {
        value.fail(str("the entry ", files::torch::in_quotes(name), " is ", name_of(value.kind()),
                       ", not a tensor: save model.state_dict() alone"));
      }
      if (!names.insert(name).second)
        value.fail(str("two tensors ", files::torch::in_quotes(name)));
      const files::torch::TensorRecord& record = value.as_tensor();
      tensors_.push_back({.name = std::string(name),
                          .type = record.type.name,
                          .dtype = record.type.dtype,
                          .shape = record.shape});
      records_.push_back(&record);
    }
  }

  void read(size_t index, int64_t begin, View out) const override {
    file_.read(*records_[index], begin, out);
  }

 private:
  files::torch::TorchFile file_;
  std::vector<const files::torch::TensorRecord*> records_;  // in the file's document, which stays
};

constexpr std::array<std::string_view, 3> kOtherSuffixes = {".bin", ".pt", ".pth"};

}  // namespace

std::unique_ptr<const WeightFile> open_weight_file(const std::string& path) {
  const bool other_name =
      std::any_of(kOtherSuffixes.begin(), kOtherSuffixes.end(),
                  [&](std::string_view suffix) { return path.ends_with(suffix); });
  files::InputFile file = files::InputFile::open(path);
  files::require_downloaded(file);
  if (!other_name) return std::make_unique<const SafetensorsWeightFile>(path);
  if (is_llmc_file(file)) return std::make_unique<const LlmcFile>(std::move(file));
  return std::make_unique<const TorchWeightFile>(path);
}

}  // namespace zinc::hub
