#include "train/safetensors/folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "core/error.h"
#include "train/json/parser.h"
#include "train/json/writer.h"

namespace zinc::train {
namespace {

constexpr std::string_view kSingleFile = "model.safetensors";
constexpr std::string_view kIndexFile = "model.safetensors.index.json";
constexpr std::string_view kSuffix = ".safetensors";

// A file name and nothing else, so that an index cannot reach out of its folder.
bool is_plain_file_name(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= 255 && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), allowed);
}

std::vector<std::string> safetensors_files(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.ends_with(kSuffix) && name.front() != '.') found.push_back(it->path().string());
  }
  if (error) throw IoError("read folder", folder, -1, error.value());
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

SafetensorsFolder SafetensorsFolder::open(const std::string& path) {
  SafetensorsFolder folder;
  folder.path_ = path;
  if (!folder_exists(path)) {
    folder.add_file(path);
    return folder;
  }
  const std::string single = concat(path, '/', kSingleFile), index = concat(path, '/', kIndexFile);
  if (file_exists(single)) {
    folder.add_file(single);
  } else if (file_exists(index)) {
    folder.read_index(path, index);
  } else {
    const std::vector<std::string> files = safetensors_files(path);
    if (files.size() != 1) {
      throw DataError(concat(path, ": there is neither ", kSingleFile, " nor ", kIndexFile,
                             files.empty() ? ", nor any other .safetensors file (weights in .bin "
                                             "or .pt files have to be converted first)"
                                           : ", and more than one other .safetensors file"));
    }
    folder.add_file(files.front());
  }
  return folder;
}

void SafetensorsFolder::add_file(const std::string& path) {
  files_.push_back(std::make_unique<SafetensorsFile>(SafetensorsFile::open(path)));
  for (const TensorEntry& entry : files_.back()->header().tensors) {
    tensors_.emplace(entry.name, Location{files_.back().get(), &entry});
  }
}

void SafetensorsFolder::read_index(const std::string& folder, const std::string& index_path) {
  const json::Value index = json::parse_file(index_path);
  std::map<std::string, const SafetensorsFile*> opened;
  for (const json::Member& member : index.at("weight_map").as_object()) {
    const std::string& name = member.value.as_string();
    if (!is_plain_file_name(name)) {
      member.value.fail("a shard must be a plain file name in the folder of the index");
    }
    if (!name.ends_with(kSuffix)) member.value.fail("a shard must be a .safetensors file");
    const SafetensorsFile*& file = opened[name];
    if (file == nullptr) {
      const std::string shard = concat(folder, '/', name);
      if (!file_exists(shard)) {
        member.value.fail(
            concat("there is no file '", shard, "': a download that is not complete?"));
      }
      files_.push_back(std::make_unique<SafetensorsFile>(SafetensorsFile::open(shard)));
      file = files_.back().get();
    }
    const TensorEntry* entry = file->find(member.key);
    if (entry == nullptr) member.value.fail("this file does not hold the tensor");
    tensors_.emplace(member.key, Location{file, entry});
  }
}

const SafetensorsFolder::Location* SafetensorsFolder::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

std::vector<std::vector<size_t>> plan_shards(std::span<const TensorSpec> tensors,
                                             int64_t max_shard_bytes) {
  require(max_shard_bytes > 0, "shards: at most ", max_shard_bytes, " bytes each");
  std::vector<std::vector<size_t>> shards(1);
  int64_t filled = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t bytes = tensors[i].shape.numel() * size_of(tensors[i].dtype);
    if (!shards.back().empty() && filled + bytes > max_shard_bytes) {
      shards.emplace_back();
      filled = 0;
    }
    shards.back().push_back(i);
    filled += bytes;
  }
  return shards;
}

SafetensorsFolderWriter::SafetensorsFolderWriter(std::string folder,
                                                 std::span<const TensorSpec> tensors,
                                                 int64_t max_shard_bytes, WriterRole role)
    : folder_(std::move(folder)), role_(role) {
  const std::vector<std::vector<size_t>> shards = plan_shards(tensors, max_shard_bytes);
  files_.reserve(shards.size());  // a writer is not moved once it exists
  for (const std::vector<size_t>& shard : shards) {
    const std::string name = shards.size() == 1 ? std::string(kSingleFile)
                                                : fmt::format("model-{:05d}-of-{:05d}.safetensors",
                                                              files_.size() + 1, shards.size());
    std::vector<TensorSpec> members;
    for (const size_t i : shard) {
      members.push_back(tensors[i]);
      require(file_of_.emplace(tensors[i].name, files_.size()).second,
              "safetensors: two tensors are called \"", tensors[i].name, "\"");
      total_parameters_ += tensors[i].shape.numel();
      total_bytes_ += tensors[i].shape.numel() * size_of(tensors[i].dtype);
    }
    files_.emplace_back(concat(folder_, '/', name), members, SafetensorsMetadata{{"format", "pt"}},
                        role_);
  }
}

void SafetensorsFolderWriter::write(std::string_view name, int64_t begin, ConstView values) {
  const auto found = file_of_.find(name);
  require(found != file_of_.end(), "safetensors: ", folder_, " has no tensor \"", name, "\"");
  files_[found->second].write(name, begin, values);
}

int64_t SafetensorsFolderWriter::num_written() const {
  int64_t sum = 0;
  for (const SafetensorsWriter& file : files_) sum += file.num_written();
  return sum;
}

void SafetensorsFolderWriter::commit() {
  for (SafetensorsWriter& file : files_) file.commit();
  if (files_.size() == 1 || role_ == WriterRole::joiner) return;
  json::Writer out(2);
  out.begin_object().key("metadata").begin_object();
  out.member("total_parameters", total_parameters_).member("total_size", total_bytes_).end_object();
  out.key("weight_map").begin_object();
  for (const auto& [name, file] : file_of_) out.member(name, file_name(files_[file].path()));
  out.end_object().end_object();
  write_file_atomically(concat(folder_, '/', kIndexFile), out.take() + '\n');
}

}  // namespace zinc::train
