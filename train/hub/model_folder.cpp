#include "train/hub/model_folder.h"

#include "core/error.h"
#include "train/files/input_file.h"
#include "train/text/tokenizer_folder.h"

namespace zinc::train {
namespace {

constexpr int64_t kMaxTokenizerBytes = int64_t{256} << 20;

void copy_tokenizer(const std::string& from, const std::string& to) {
  const auto copy = [&](std::string_view name) {
    const std::string source = concat(from, '/', name);
    if (!file_exists(source)) return;
    write_file_atomically(concat(to, '/', name), read_text_file(source, kMaxTokenizerBytes));
  };
  for (const std::string_view name : tokenizer_file_names()) copy(name);
  copy("generation_config.json");
}

}  // namespace

ModelFolderWriter::ModelFolderWriter(std::string target, const ModelConfig& config, DType dtype,
                                     std::span<const TensorSpec> parameters,
                                     const ModelFolderOptions& options)
    : folder_(std::move(target)), replace_(options.replace) {
  weights_ = std::make_unique<SafetensorsFolderWriter>(
      path(), parameters, options.max_shard_bytes,
      options.shared ? WriterRole::creator : WriterRole::alone);
  write_file_atomically(path() + "/config.json",
                        model_config_json(config, dtype, options.original_config));
  if (!options.tokenizer_folder.empty()) copy_tokenizer(options.tokenizer_folder, path());
}

ModelFolderWriter ModelFolderWriter::join(const std::string& path,
                                          std::span<const TensorSpec> parameters,
                                          int64_t max_shard_bytes) {
  ModelFolderWriter writer;
  writer.weights_ = std::make_unique<SafetensorsFolderWriter>(path, parameters, max_shard_bytes,
                                                              WriterRole::joiner);
  return writer;
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

}  // namespace zinc::train
