#include "train/checkpoint/checkpoint.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/convert.h"
#include "core/crc32c.h"
#include "core/error.h"
#include "files/safetensors/reader.h"
#include "hub/model_config.h"

namespace zinc::train {
namespace {

constexpr int64_t kMaxTextBytes = int64_t{1} << 30;  // of the model's and the tokenizer's files
constexpr int64_t kMaxHeaderBytes = int64_t{256} << 20;
constexpr int64_t kVerifiedAtOnce = int64_t{4} << 20;

std::string file_of(const std::string& folder, std::string_view name) {
  return str(folder, '/', name);
}

void require_size(const files::InputFile& file, int64_t bytes) {
  if (file.size() == bytes) return;
  throw DataError(str(file.path(), ": it has ", file.size(),
                      " bytes, the checkpoint was written "
                      "with ",
                      bytes, ": damaged, or a file of another checkpoint"));
}

uint32_t crc_of(const files::InputFile& file, int64_t begin, int64_t end,
                const std::function<void(int64_t)>& read = {}) {
  std::vector<std::byte> bytes;
  uint32_t crc = 0;
  for (int64_t at = begin; at < end; at += static_cast<int64_t>(bytes.size())) {
    bytes.resize(static_cast<size_t>(std::min(kVerifiedAtOnce, end - at)));
    file.read(at, bytes);
    crc = crc32c(bytes, crc);
    if (read) read(static_cast<int64_t>(bytes.size()));
  }
  return crc;
}

[[noreturn]] void fail_damaged(const std::string& path, const std::string& what) {
  throw DataError(str(path, ": damaged: ", what,
                      " is not what was written; take an older "
                      "checkpoint"));
}

}  // namespace

Checkpoint Checkpoint::open(const std::string& folder) {
  Checkpoint checkpoint(folder);
  const std::string path = file_of(folder, "manifest.json");
  checkpoint.manifest_ = parse_manifest(files::read_text_file(path, kMaxManifestBytes), path);
  std::map<std::string_view, const StoredFile*> stored;
  for (const StoredFile& file : checkpoint.manifest_.files) stored[file.name] = &file;
  for (const std::string& index : checkpoint.manifest_.indices) {
    checkpoint.open_state_file(*stored.at(index));
  }
  checkpoint.add_parts();
  checkpoint.require_whole();
  return checkpoint;
}

std::string Checkpoint::read_file(const StoredFile& stored, int64_t limit_bytes) const {
  const std::string path = file_of(path_, stored.name);
  std::string text = files::read_text_file(path, limit_bytes);
  if (static_cast<int64_t>(text.size()) != stored.bytes ||
      crc32c(std::as_bytes(std::span(text))) != stored.crc) {
    fail_damaged(path, "its content");
  }
  return text;
}

void Checkpoint::open_state_file(const StoredFile& stored) {
  const std::string index_path = file_of(path_, stored.name);
  const std::string file_name = state_file_of(stored.name);
  files::InputFile file = files::InputFile::open(file_of(path_, file_name));
  StateIndex index = parse_state_index(read_file(stored, max_index_bytes(file.size())), index_path);
  if (index.file != file_name) {
    throw DataError(str(index_path, ": the index of ", index.file, ", not of ", file_name));
  }
  require_size(file, index.bytes);
  if (index.header_bytes > std::min(index.bytes, kMaxHeaderBytes) ||
      crc_of(file, 0, index.header_bytes) != index.header_crc) {
    fail_damaged(file.path(), "its header");
  }
  files_.push_back({std::move(file), std::move(index)});
}

// The place of a part among those of its parameter. Slices stand in their order.
Checkpoint::Parts& Checkpoint::parts_of(const StoredPart& part, Whole& whole) {
  if (!part.slice) {
    if (whole.parts.empty()) whole.parts.emplace_back();
    return whole.parts.front();
  }
  const auto at =
      std::ranges::lower_bound(whole.slices, part.slice->index, {}, &TensorSlice::index);
  const auto place = at - whole.slices.begin();
  if (at == whole.slices.end() || *at != *part.slice) {
    whole.slices.insert(at, *part.slice);
    whole.parts.emplace(whole.parts.begin() + place);
  }
  return whole.parts[static_cast<size_t>(place)];
}

// The data of an index's parts lies in their order behind the header.
void Checkpoint::add_parts() {
  for (size_t i = 0; i < files_.size(); ++i) {
    const StateIndex& index = files_[i].index;
    int64_t offset = index.header_bytes;
    for (const StoredPart& part : index.parts) {
      const int64_t room = (index.bytes - offset) / size_of(index.dtype);
      if (part.count > room) {
        throw DataError(str(file_of(path_, index.file), ": it has no room for ", part.count,
                            " elements of ", part.kind, " of ", part.name));
      }
      Whole& whole = wholes_[{part.name, part.kind}];
      if (whole.parts.empty()) whole.shape = part.shape;
      const bool is_other = !whole.parts.empty() && part.slice.has_value() == whole.slices.empty();
      if (whole.shape != part.shape || is_other) {
        throw DataError(str(path_, ": ", part.name, " has shape ", whole.shape, " and ", part.shape,
                            ": files of several checkpoints"));
      }
      parts_of(part, whole).push_back({.file = i, .stored = &part, .offset = offset});
      offset += part.count * size_of(index.dtype);
    }
    if (offset != index.bytes) {
      throw DataError(str(file_of(path_, index.file), ": ", index.bytes - offset,
                          " bytes belong to no parameter"));
    }
  }
  for (auto& [key, whole] : wholes_) {
    for (Parts& parts : whole.parts) {
      std::ranges::sort(parts, {}, [](const Part& part) { return part.stored->begin; });
    }
  }
}

void Checkpoint::require_whole() const {
  for (const auto& [key, whole] : wholes_) {
    if (whole.slices.empty()) {
      require_all(key, whole.parts.front(), whole.shape.numel());
      continue;
    }
    const int64_t count = whole.slices.front().count;
    const size_t most = std::max(whole.slices.size(), static_cast<size_t>(count));
    for (size_t i = 0; i < most; ++i) {
      if (i >= whole.slices.size() || static_cast<int64_t>(i) >= count ||
          whole.slices[i] != whole.slices.front().at(static_cast<int64_t>(i))) {
        throw DataError(str(path_, ": ", key.second, " of ", key.first, ": slice ", i, " of ",
                            count,
                            " is missing, or of another mesh: files of several checkpoints"));
      }
      require_all(key, whole.parts[i], whole.slices[i].shape().numel());
    }
  }
}

void Checkpoint::require_all(const Key& key, const Parts& parts, int64_t numel) const {
  int64_t end = 0;
  for (const Part& part : parts) {
    if (part.stored->begin != end) {
      throw DataError(str(path_, ": ", key.second, " of ", key.first, ": ",
                          part.stored->begin < end ? "several ranks have" : "no rank has",
                          " elements from ", std::min(end, part.stored->begin),
                          " on: files of several checkpoints"));
    }
    end += part.stored->count;
  }
  if (end != numel) {
    throw DataError(str(path_, ": ", key.second, " of ", key.first, ": elements from ", end,
                        " on are missing"));
  }
}

int64_t Checkpoint::bytes() const {
  int64_t bytes = 0;
  for (const StoredFile& file : manifest_.files) bytes += file.bytes;
  for (const StateFile& file : files_) bytes += file.index.bytes;
  return bytes;
}

void Checkpoint::verify(int part, int parts, const std::function<void(int64_t)>& read) const {
  require(parts > 0 && part >= 0 && part < parts, "checkpoint: part ", part, " of ", parts);
  const auto is_mine = [&](size_t i) {
    return static_cast<int>(i % static_cast<size_t>(parts)) == part;
  };
  for (size_t i = 0; i < manifest_.files.size(); ++i) {
    if (!is_mine(i)) continue;
    read_file(manifest_.files[i], kMaxTextBytes);
    if (read) read(manifest_.files[i].bytes);
  }
  for (size_t i = 0; i < files_.size(); ++i) {
    if (!is_mine(i)) continue;
    // Whoever reads the file without its index goes by its own header.
    files::SafetensorsFile::open(files_[i].file.path());
    if (read) read(files_[i].index.header_bytes);
    for (const auto& [key, whole] : wholes_) {
      for (const auto& parts : whole.parts) {
        for (const Part& at : parts) {
          if (at.file != i) continue;
          for (size_t number = 0; number < at.stored->blocks.size(); ++number) {
            const int64_t bytes = block(at, number).bytes();
            if (read) read(bytes);
          }
        }
      }
    }
  }
}

void Checkpoint::look_for_frozen_in(const std::string& folder) {
  if (manifest_.frozen) manifest_.frozen->folder = folder;
}

const FrozenWeights::Parameter* Checkpoint::find_frozen(std::string_view name,
                                                        std::string_view kind) const {
  if (!manifest_.frozen || kind != zero::kWeightsKind) return nullptr;
  const auto& parameters = manifest_.frozen->parameters;
  const auto found =
      std::ranges::lower_bound(parameters, name, {}, &FrozenWeights::Parameter::name);
  return found != parameters.end() && found->name == name ? &*found : nullptr;
}

const hub::WeightReader& Checkpoint::frozen_weights() const {
  const std::string& folder = manifest_.frozen->folder;
  if (!frozen_) {
    if (!files::folder_exists(folder) && !files::file_exists(folder)) {
      throw ConfigError(str(path_, ": its frozen weights are those of ", folder,
                            ", which is not there: bring it back, or name the folder where it "
                            "is now: --base of zinc checkpoint export, --init of zinc train"));
    }
    frozen_.emplace(hub::WeightFolder::open(folder), hub::name_map_of_folder(folder));
  }
  return *frozen_;
}

void Checkpoint::verify_frozen(int part, int parts) const {
  if (!manifest_.frozen) return;
  const auto& parameters = manifest_.frozen->parameters;
  for (size_t i = static_cast<size_t>(part); i < parameters.size();
       i += static_cast<size_t>(parts)) {
    const auto& [name, shape, dtype, crc] = parameters[i];
    std::string problem = str(manifest_.frozen->folder, ": ", name);
    try {
      if (crc_of_weight(frozen_weights(), name, shape, dtype) == crc) continue;
      // The folder has another model's weights, or a file is cut short: the checkpoint itself is
      // whole.
    } catch (const DataError& error) {
      problem = error.what();
    }
    throw ConfigError(
        str(problem, " is not what ", path_, " was trained with: bring the weights of then back"));
  }
}

uint32_t crc_of_weight(const hub::WeightReader& weights, const std::string& name,
                       const Shape& shape, DType dtype) {
  std::vector<std::byte> room;
  uint32_t crc = 0;
  for (int64_t begin = 0; begin < shape.numel(); begin += kBlockNumel) {
    const int64_t count = std::min(kBlockNumel, shape.numel() - begin);
    room.resize(static_cast<size_t>(count * size_of(dtype)));
    weights.read(name, shape, begin, View(room.data(), dtype, Shape{count}, kCpu));
    crc = crc32c(room, crc);
  }
  return crc;
}

void Checkpoint::verify_texts() const {
  for (const StoredFile& stored : manifest_.files) {
    const bool is_index =
        std::ranges::find(manifest_.indices, stored.name) != manifest_.indices.end();
    if (!is_index) read_file(stored, kMaxTextBytes);
  }
}

std::optional<std::string> Checkpoint::text_of(std::string_view file) const {
  const auto stored = std::ranges::find(manifest_.files, file, &StoredFile::name);
  if (stored == manifest_.files.end()) return std::nullopt;
  return read_file(*stored, kMaxTextBytes);
}

std::map<std::string, Checkpoint::Tensor> Checkpoint::tensors() const {
  std::map<std::string, Tensor> tensors;
  for (const auto& [key, whole] : wholes_) {
    Tensor& tensor = tensors[key.first];
    if (key.second == zero::kWeightsKind) tensor.shape = whole.shape;
    tensor.kinds.push_back(key.second);
  }
  if (!manifest_.frozen) return tensors;
  for (const FrozenWeights::Parameter& parameter : manifest_.frozen->parameters) {
    tensors[parameter.name] = {parameter.shape, {std::string(zero::kWeightsKind)}};
  }
  return tensors;
}

const Checkpoint::Whole* Checkpoint::find(std::string_view name, std::string_view kind) const {
  const auto found = wholes_.find({std::string(name), std::string(kind)});
  return found == wholes_.end() ? nullptr : &found->second;
}

std::optional<Shape> Checkpoint::shape_of(std::string_view name, std::string_view kind) const {
  if (const auto* frozen = find_frozen(name, kind)) return frozen->shape;
  const Whole* whole = find(name, kind);
  return whole == nullptr ? std::nullopt : std::optional<Shape>(whole->shape);
}

ConstView Checkpoint::block(const Part& part, size_t number) const {
  const StateFile& from = files_[part.file];
  const DType dtype = from.index.dtype;
  const int64_t first = static_cast<int64_t>(number) * kBlockNumel;
  const int64_t count = std::min(kBlockNumel, part.stored->count - first);
  const int64_t offset = part.offset + first * size_of(dtype);
  if (cached_.offset != offset || cached_.file != part.file) {
    cached_.offset = -1;
    cached_.bytes.resize(static_cast<size_t>(count * size_of(dtype)));
    from.file.read(offset, cached_.bytes);
    if (crc32c(cached_.bytes) != part.stored->blocks[number]) {
      const int64_t begin = part.stored->begin + first;
      fail_damaged(from.file.path(), str(part.stored->kind, " of ", part.stored->name,
                                         ", elements ", begin, " to ", begin + count - 1, ','));
    }
    cached_.file = part.file;
    cached_.offset = offset;
  }
  return {cached_.bytes.data(), dtype, Shape{count}, kCpu};
}

// The weights as the run had them: rounded to the run's dtype.
void Checkpoint::read_frozen(const FrozenWeights::Parameter& parameter, int64_t begin,
                             View out) const {
  std::vector<std::byte> room;
  for (int64_t at = 0; at < out.numel(); at += kBlockNumel) {
    const int64_t count = std::min(kBlockNumel, out.numel() - at);
    room.resize(static_cast<size_t>(count * size_of(parameter.dtype)));
    const View values(room.data(), parameter.dtype, Shape{count}, kCpu);
    frozen_weights().read(parameter.name, parameter.shape, begin + at, values);
    convert_elements(values, out.narrow(0, at, count));
  }
}

void Checkpoint::read(std::string_view name, std::string_view kind, int64_t begin, View out) const {
  if (const auto* frozen = find_frozen(name, kind)) {
    return read_frozen(*frozen, begin, out);
  }
  const Whole* whole = find(name, kind);
  require(whole != nullptr, "checkpoint: ", path_, " has no ", kind, " of ", name);
  require(begin >= 0 && begin <= whole->shape.numel() - out.numel(), "checkpoint: elements ", begin,
          " to ", begin + out.numel(), " of ", name, " with ", whole->shape.numel());
  if (whole->slices.empty()) return read_parts(whole->parts.front(), begin, out);
  TensorSlice::for_each_run_of_whole(
      whole->slices, begin, begin + out.numel(),
      [&](size_t slice, int64_t first, int64_t in_whole, int64_t count) {
        read_parts(whole->parts[slice], first, out.narrow(0, in_whole - begin, count));
      });
}

void Checkpoint::read_parts(const Parts& parts, int64_t begin, const View& out) const {
  const int64_t end = begin + out.numel();
  auto part = std::ranges::partition_point(
      parts, [&](const Part& other) { return other.stored->begin + other.stored->count <= begin; });
  for (int64_t at = begin; at < end; ++part) {
    const StoredPart& stored = *part->stored;
    const int64_t part_end = std::min(end, stored.begin + stored.count);
    while (at < part_end) {
      const int64_t inside = at - stored.begin;
      const ConstView values = block(*part, static_cast<size_t>(inside / kBlockNumel));
      const int64_t first = inside % kBlockNumel;
      const int64_t count = std::min(part_end - at, values.numel() - first);
      convert_elements(values.narrow(0, first, count), out.narrow(0, at - begin, count));
      at += count;
    }
  }
}

}  // namespace zinc::train
