#include "hub/model_folder.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/error.h"
#include "files/input_file.h"
#include "text/tokenizer_folder.h"

namespace zinc::hub {
namespace {

constexpr int64_t kMaxTokenizerBytes = int64_t{256} << 20;
// Elements of a parameter at once; as many as stand under one checksum of a checkpoint.
constexpr int64_t kPieceNumel = int64_t{1} << 20;

void copy_tokenizer(const std::string& from, const std::string& to) {
  for (const auto& [name, content] : read_tokenizer_files(from)) {
    files::write_file_atomically(str(to, '/', name), content);
  }
}

// Reads a single file, and gives it the name that a folder has for it. With a vocab.json comes its
// merges.txt.
std::vector<std::pair<std::string, std::string>> read_tokenizer_file(const std::string& path) {
  std::string name = files::file_name(path);
  if (std::ranges::find(text::tokenizer_file_names(), name) == text::tokenizer_file_names().end()) {
    name = name.ends_with(".model") ? "tokenizer.model" : "tokenizer.json";
  }
  std::vector<std::pair<std::string, std::string>> files{
      {name, files::read_text_file(path, kMaxTokenizerBytes)}};
  const std::string merges = files::parent_folder(path) + "/merges.txt";
  if (name == "vocab.json" && files::file_exists(merges)) {
    files.emplace_back("merges.txt", files::read_text_file(merges, kMaxTokenizerBytes));
  }
  return files;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> read_tokenizer_files(const std::string& folder) {
  if (files::file_exists(folder)) return read_tokenizer_file(folder);
  std::vector<std::pair<std::string, std::string>> files;
  const auto read = [&](std::string_view name) {
    const std::string path = str(folder, '/', name);
    if (files::file_exists(path))
      files.emplace_back(name, files::read_text_file(path, kMaxTokenizerBytes));
  };
  for (const std::string_view name : text::tokenizer_file_names()) read(name);
  read("generation_config.json");
  return files;
}

ModelFolderWriter::ModelFolderWriter(std::string target, const std::string& config_json,
                                     std::span<const files::TensorSpec> parameters,
                                     const ModelFolderOptions& options)
    : folder_(std::move(target)), replace_(options.replace) {
  open(path(), parameters, options.names, options.max_shard_bytes,
       options.shared ? files::WriterRole::creator : files::WriterRole::alone);
  files::write_file_atomically(path() + "/config.json", config_json);
  if (!options.tokenizer_folder.empty()) copy_tokenizer(options.tokenizer_folder, path());
}

ModelFolderWriter ModelFolderWriter::join(const std::string& path,
                                          std::span<const files::TensorSpec> parameters,
                                          int64_t max_shard_bytes, const NameMap& names) {
  ModelFolderWriter writer;
  writer.open(path, parameters, names, max_shard_bytes, files::WriterRole::joiner);
  return writer;
}

void ModelFolderWriter::open(const std::string& path, std::span<const files::TensorSpec> parameters,
                             const NameMap& names, int64_t max_shard_bytes,
                             files::WriterRole role) {
  std::vector<WeightSpec> wanted;
  std::map<std::string, DType, std::less<>> dtypes;
  for (const files::TensorSpec& parameter : parameters) {
    wanted.push_back({parameter.name, parameter.shape});
    std::vector<TensorPart> parts = tensor_parts(names, parameter.name, parameter.shape);
    for (const TensorPart& part : parts) {
      const DType dtype = dtypes.emplace(part.name(), parameter.dtype).first->second;
      require(dtype == parameter.dtype, "model folder: ", part.name(), " cannot be ", dtype,
              " and, in ", parameter.name, ", ", parameter.dtype);
    }
    parts_.emplace(parameter.name, std::move(parts));
  }
  std::vector<files::TensorSpec> tensors;
  for (const WeightSpec& tensor : stored_tensors(names, wanted)) {
    tensors.push_back(
        {.name = tensor.name, .dtype = dtypes.find(tensor.name)->second, .shape = tensor.shape});
  }
  weights_ = std::make_unique<files::SafetensorsFolderWriter>(path, tensors, max_shard_bytes, role);
}

void ModelFolderWriter::write(std::string_view parameter, int64_t begin, ConstView values) {
  const auto parts = parts_.find(parameter);
  require(parts != parts_.end(), "model folder: the model has no parameter \"", parameter, "\"");
  write_parts(parts->second, begin, values,
              [this](const TensorPart& part, int64_t their_begin, ConstView run) {
                weights_->write(part.name(), their_begin, run);
              });
}

void ModelFolderWriter::sync() {
  weights_->commit();
  synced_ = true;
}

void ModelFolderWriter::commit() {
  require(folder_.has_value(), "model folder: the process that made it commits it");
  if (!synced_) sync();
  folder_->commit(replace_);
}

void write_model_folder(
    const std::string& target, const std::string& config_json,
    std::span<const files::TensorSpec> parameters, const ModelFolderOptions& options,
    const std::function<void(std::string_view name, int64_t begin, View values)>& read) {
  ModelFolderWriter writer(target, config_json, parameters, options);
  std::vector<std::byte> room(static_cast<size_t>(kPieceNumel * size_of(DType::f64)));
  for (const files::TensorSpec& parameter : parameters) {
    const DType dtype = parameter.dtype == DType::f64 ? DType::f64 : DType::f32;
    for (int64_t begin = 0; begin < parameter.shape.numel(); begin += kPieceNumel) {
      const int64_t count = std::min(kPieceNumel, parameter.shape.numel() - begin);
      const View values(room.data(), dtype, Shape{count}, kCpu);
      read(parameter.name, begin, values);
      writer.write(parameter.name, begin, values);
    }
  }
  writer.commit();
}

}  // namespace zinc::hub
