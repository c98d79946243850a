// hub/model_folder.h: writing a model as a folder that Hugging Face's transformers loads.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "files/atomic_file.h"
#include "files/safetensors/folder.h"
#include "hub/model_config.h"
#include "hub/name_map.h"

namespace zinc::hub {

struct ModelFolderOptions {
  bool replace = false;  // an existing folder of that name, as a whole
  int64_t max_shard_bytes = files::kDefaultShardBytes;
  // The folder whose read_tokenizer_files() are copied byte for byte; empty: none.
  std::string tokenizer_folder{};
  bool shared = false;  // other processes join and write weights too
  NameMap names{};      // name map of the model's family
};

// Name and content of each of a folder's tokenizer files, and of generation_config.json; or of one
// such file alone, with the name that a folder has for it.
std::vector<std::pair<std::string, std::string>> read_tokenizer_files(const std::string& folder);

// config.json, the weights (one file, or several and an index) and the tokenizer's files. The
// folder appears at commit(), complete and durable; without it nothing is left. Parameters arrive
// range by range in any order; see files/safetensors/writer.h. The name map gives the tensors of
// the files that their elements go to.
//
// Several processes: one makes it with `shared`, the others join its path(); each writes its own
// ranges and calls sync(); when all have done so and everything is written, the first one calls
// commit().
class ModelFolderWriter {
 public:
  // `config_json`: the text of config.json, as model_config_json() makes it of a known model.
  ModelFolderWriter(std::string target, const std::string& config_json,
                    std::span<const files::TensorSpec> parameters,
                    const ModelFolderOptions& options = {});
  // Joins the process whose path() is given; the other arguments are the same as there.
  static ModelFolderWriter join(const std::string& path,
                                std::span<const files::TensorSpec> parameters,
                                int64_t max_shard_bytes = files::kDefaultShardBytes,
                                const NameMap& names = {});

  // values: elements [begin, begin + n) of the parameter, contiguous host memory.
  void write(std::string_view parameter, int64_t begin, ConstView values);
  // The folder's path until the commit.
  const std::string& path() const { return folder_->path(); }
  int64_t num_written() const { return weights_->num_written(); }  // elements, by this process
  int64_t num_elements() const { return weights_->total_parameters(); }
  void sync();    // makes this process's writes durable; no more writes
  void commit();  // not by one that joined

 private:
  ModelFolderWriter() = default;
  void open(const std::string& path, std::span<const files::TensorSpec> parameters,
            const NameMap& names, int64_t max_shard_bytes, files::WriterRole role);

  std::optional<files::AtomicFolder> folder_;  // absent where joined
  bool replace_ = false;
  bool synced_ = false;
  std::unique_ptr<files::SafetensorsFolderWriter> weights_;
  std::map<std::string, std::vector<TensorPart>, std::less<>> parts_;  // by parameter
};

// Writes a whole model. `read` fills `values`, f32 (f64 for f64 parameters), with elements
// [begin, begin + n) of a parameter; called in ascending order, with pieces of some megabytes.
void write_model_folder(
    const std::string& target, const std::string& config_json,
    std::span<const files::TensorSpec> parameters, const ModelFolderOptions& options,
    const std::function<void(std::string_view name, int64_t begin, View values)>& read);

}  // namespace zinc::hub
