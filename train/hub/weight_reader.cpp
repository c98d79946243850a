#include "train/hub/weight_reader.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "core/error.h"

namespace zinc::train {
namespace {

constexpr std::array<std::string_view, 2> kBasePrefixes = {"transformer.", "model."};
constexpr std::string_view kHead = "lm_head.weight";

bool is_buffer(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         name.ends_with("rotary_emb.inv_freq");
}

void append_list(std::string& text, std::string_view title, const std::vector<std::string>& names) {
  constexpr size_t kShown = 10;
  if (names.empty()) return;
  text += concat("\n  ", title, " (", names.size(), "):");
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) text += concat("\n    ", names[i]);
  if (names.size() > kShown) text += concat("\n    and ", names.size() - kShown, " more");
}

}  // namespace

WeightReader::WeightReader(WeightFolder files)
    : files_(std::make_shared<const WeightFolder>(std::move(files))) {}

const WeightFolder::Location* WeightReader::locate(std::string_view parameter) const {
  if (const auto* exact = files_->find(parameter)) return exact;
  for (const std::string_view prefix : kBasePrefixes) {
    if (parameter.starts_with(prefix)) {
      if (const auto* found = files_->find(parameter.substr(prefix.size()))) return found;
    } else if (const auto* found = files_->find(concat(prefix, parameter))) {
      return found;
    }
  }
  return nullptr;
}

std::optional<Shape> WeightReader::shape_of(std::string_view parameter) const {
  const WeightFolder::Location* location = locate(parameter);
  if (location == nullptr) return std::nullopt;
  return location->tensor().shape;
}

WeightMatch WeightReader::match(std::span<const WeightSpec> parameters) const {
  WeightMatch match;
  std::set<const StoredTensor*> used;
  bool has_head = false;
  for (const WeightSpec& parameter : parameters) {
    has_head = has_head || parameter.name == kHead;
    const WeightFolder::Location* location = locate(parameter.name);
    if (location == nullptr) {
      match.missing.push_back(parameter.name);
      continue;
    }
    used.insert(&location->tensor());
    if (location->tensor().shape != parameter.shape) {
      match.mismatched.push_back(concat(parameter.name, ": ", location->tensor().shape,
                                        " in the file, ", parameter.shape, " in the model"));
    }
  }
  for (const auto& [name, location] : files_->tensors()) {
    const bool tied_head = name == kHead && !has_head;
    if (!used.contains(&location.tensor()) && !is_buffer(name) && !tied_head) {
      match.unexpected.push_back(name);
    }
  }
  return match;
}

void WeightReader::require_match(std::span<const WeightSpec> parameters) const {
  const WeightMatch found = match(parameters);
  if (found.complete()) return;
  std::string text = concat(files_->path(), ": the weights do not fit the model");
  append_list(text, "missing in the files", found.missing);
  append_list(text, "unknown to the model", found.unexpected);
  append_list(text, "of another shape", found.mismatched);
  throw DataError(text);
}

void WeightReader::require_tied_head(std::string_view embedding) const {
  const WeightFolder::Location* head = files_->find(kHead);
  const WeightFolder::Location* table = locate(embedding);
  if (head == nullptr || table == nullptr) return;
  const auto differ = [&] {
    if (head->tensor().shape != table->tensor().shape ||
        head->tensor().dtype != table->tensor().dtype) {
      return true;
    }
    const DType dtype = head->tensor().dtype.value_or(DType::u8);
    const int64_t count = head->tensor().shape.numel(), chunk = int64_t{1} << 18;
    std::vector<std::byte> first(static_cast<size_t>(chunk * size_of(dtype))), second(first);
    for (int64_t begin = 0; begin < count; begin += chunk) {
      const int64_t n = std::min(chunk, count - begin);
      head->read(begin, View(first.data(), dtype, Shape{n}));
      table->read(begin, View(second.data(), dtype, Shape{n}));
      if (std::memcmp(first.data(), second.data(), static_cast<size_t>(n * size_of(dtype))) != 0) {
        return true;
      }
    }
    return false;
  };
  if (differ()) {
    throw DataError(concat(files_->path(), ": ", kHead, " and ", embedding,
                           " differ, but tie_word_embeddings makes them one; set it to false in "
                           "config.json"));
  }
}

void WeightReader::read(std::string_view parameter, const Shape& shape, int64_t begin,
                        View out) const {
  const WeightFolder::Location* location = locate(parameter);
  if (location == nullptr) {
    throw DataError(concat(files_->path(), ": there is no tensor for ", parameter));
  }
  if (location->tensor().shape != shape) {
    throw DataError(concat(location->file->path(), ": ", location->tensor().name, " has shape ",
                           location->tensor().shape, ", the model's ", parameter, " has ", shape));
  }
  location->read(begin, out);
}

}  // namespace zinc::train
