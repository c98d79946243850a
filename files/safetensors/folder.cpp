#include "files/safetensors/folder.h"

#include <fmt/format.h>

#include "core/error.h"
#include "files/json/writer.h"

namespace zinc::files {
namespace {

constexpr std::string_view kSingleFile = "model.safetensors";
constexpr std::string_view kIndexFile = "model.safetensors.index.json";

}  // namespace

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
    files_.emplace_back(str(folder_, '/', name), members, SafetensorsMetadata{{"format", "pt"}},
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
  write_file_atomically(str(folder_, '/', kIndexFile), out.take() + '\n');
}

}  // namespace zinc::files
