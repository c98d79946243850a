#include "hub/weight_reader.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "core/error.h"
#include "core/glob.h"

namespace zinc::hub {
namespace {

// A parameter, and its tensor's name where that is another.
std::string both_names(const std::string& ours, const std::string& theirs) {
  return ours == theirs ? ours : str(ours, " (", theirs, " in the files)");
}

void append_list(std::string& text, std::string_view title, const std::vector<std::string>& names) {
  constexpr size_t kShown = 10;
  if (names.empty()) return;
  text += str("\n  ", title, " (", names.size(), "):");
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) text += str("\n    ", names[i]);
  if (names.size() > kShown) text += str("\n    and ", names.size() - kShown, " more");
}

}  // namespace

WeightReader::WeightReader(WeightFolder files, NameMap names)
    : files_(std::make_shared<const WeightFolder>(std::move(files))), names_(std::move(names)) {}

const WeightFolder::Location* WeightReader::locate(std::string_view stored_name) const {
  if (const auto* found = locate_by_spelling(stored_name)) return found;
  for (const TiedName& tied : names_.tied) {
    if (tied.original != stored_name) continue;
    if (const auto* found = locate_by_spelling(tied.copy)) return found;
  }
  for (const TiedName& first : names_.first_values) {
    if (first.copy == stored_name) return locate(first.original);
  }
  return nullptr;
}

const WeightFolder::Location* WeightReader::locate_by_spelling(std::string_view stored_name) const {
  if (const auto* found = locate_as_written(stored_name)) return found;
  for (const OldEnding& ending : names_.old_endings) {
    if (const auto* found = locate_by_ending(stored_name, ending)) return found;
  }
  return nullptr;
}

const WeightFolder::Location* WeightReader::locate_by_ending(std::string_view stored_name,
                                                             const OldEnding& ending) const {
  if (!stored_name.ends_with(ending.now)) return nullptr;
  const std::string_view front = stored_name.substr(0, stored_name.size() - ending.now.size());
  return locate_as_written(str(front, ending.before));
}

const WeightFolder::Location* WeightReader::locate_as_written(std::string_view stored_name) const {
  if (const auto* exact = files_->find(stored_name)) return exact;
  for (const std::string& prefix : names_.prefixes) {
    if (stored_name.starts_with(prefix)) {
      if (const auto* found = files_->find(stored_name.substr(prefix.size()))) return found;
    } else if (const auto* found = files_->find(str(prefix, stored_name))) {
      return found;
    }
  }
  return nullptr;
}

std::optional<Shape> WeightReader::shape_of(std::string_view parameter, const Shape& shape) const {
  std::optional<Shape> other;
  for (const TensorPart& part : tensor_parts(names_, parameter, shape)) {
    const WeightFolder::Location* location = locate(part.name());
    if (location == nullptr) return std::nullopt;
    if (!other && location->tensor().shape != part.shape()) other = location->tensor().shape;
  }
  return other ? *other : shape;
}

WeightMatch WeightReader::match(std::span<const WeightSpec> parameters) const {
  WeightMatch match;
  std::set<const StoredTensor*> used;
  for (const WeightSpec& parameter : parameters) {
    for (const TensorPart& part : tensor_parts(names_, parameter.name, parameter.shape)) {
      const std::string name = both_names(parameter.name, part.name());
      const WeightFolder::Location* location = locate(part.name());
      if (location == nullptr) {
        match.missing.push_back(name);
        continue;
      }
      used.insert(&location->tensor());
      for (const OldEnding& ending : names_.old_endings) {
        if (!ending.may_repeat) continue;
        const auto* repeated = locate_by_ending(part.name(), ending);
        if (repeated != nullptr) used.insert(&repeated->tensor());
      }
      if (location->tensor().shape != part.shape()) {
        match.mismatched.push_back(str(name, ": ", location->tensor().shape, " in the file, ",
                                       part.shape(), " in the model"));
      }
    }
  }
  const auto is_left_aside = [&](std::string_view name) {
    return std::ranges::any_of(names_.buffers,
                               [&](const auto& glob) { return matches_glob(glob, name); });
  };
  for (const TiedName& tied : names_.tied) {
    if (const auto* location = locate(tied.copy)) used.insert(&location->tensor());
  }
  for (const auto& [name, location] : files_->tensors()) {
    if (!used.contains(&location.tensor()) && !is_left_aside(name)) {
      match.unexpected.push_back(name);
    }
  }
  return match;
}

void WeightReader::require_match(std::span<const WeightSpec> parameters) const {
  const WeightMatch found = match(parameters);
  if (found.complete()) return;
  std::string text = str(files_->path(), ": the weights do not fit the model");
  append_list(text, "missing in the files", found.missing);
  append_list(text, "unknown to the model", found.unexpected);
  append_list(text, "of another shape", found.mismatched);
  throw DataError(text);
}

void WeightReader::require_tied() const {
  for (const TiedName& tied : names_.tied) require_equal(tied);
}

void WeightReader::require_equal(const TiedName& tied) const {
  const WeightFolder::Location* copy = locate(tied.copy);
  const WeightFolder::Location* table = locate(tied.original);
  if (copy == nullptr || table == nullptr || copy == table) return;
  const auto differ = [&] {
    if (copy->tensor().shape != table->tensor().shape ||
        copy->tensor().dtype != table->tensor().dtype) {
      return true;
    }
    const DType dtype = copy->tensor().dtype.value_or(DType::f32);  // 8-bit floats have no dtype
    const int64_t count = copy->tensor().shape.numel(), chunk = int64_t{1} << 18;
    std::vector<std::byte> first(static_cast<size_t>(chunk * size_of(dtype))), second(first);
    for (int64_t begin = 0; begin < count; begin += chunk) {
      const int64_t n = std::min(chunk, count - begin);
      copy->read(begin, View(first.data(), dtype, Shape{n}));
      table->read(begin, View(second.data(), dtype, Shape{n}));
      if (std::memcmp(first.data(), second.data(), static_cast<size_t>(n * size_of(dtype))) != 0) {
        return true;
      }
    }
    return false;
  };
  if (differ()) {
    throw DataError(str(files_->path(), ": ", tied.copy, " and ", tied.original,
                        " differ, but tie_word_embeddings makes them one; set it to false in "
                        "config.json"));
  }
}

void WeightReader::read(std::string_view parameter, const Shape& shape, int64_t begin,
                        View out) const {
  require(begin >= 0 && begin + out.numel() <= shape.numel(), "weights: elements [", begin, ", ",
          begin + out.numel(), ") of ", parameter, " ", shape);
  const std::vector<TensorPart> parts = tensor_parts(names_, parameter, shape);
  std::vector<const WeightFolder::Location*> locations;
  for (const TensorPart& part : parts) {
    const WeightFolder::Location* location = locate(part.name());
    if (location == nullptr) {
      throw DataError(str(files_->path(), ": there is no tensor for ",
                          both_names(std::string(parameter), part.name())));
    }
    if (location->tensor().shape != part.shape()) {
      throw DataError(str(location->file->path(), ": ", location->tensor().name, " has shape ",
                          location->tensor().shape, ", the model's ", parameter, " needs ",
                          part.shape()));
    }
    locations.push_back(location);
  }
  read_parts(parts, begin, out, [&](const TensorPart& part, int64_t their_begin, View values) {
    locations[static_cast<size_t>(&part - parts.data())]->read(their_begin, values);
  });
}

}  // namespace zinc::hub
