#include "hub/weight_folder.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>

#include "core/error.h"
#include "core/philox.h"
#include "files/input_file.h"
#include "files/json/parser.h"

namespace zinc::hub {
namespace {

struct FolderLayout {
  std::string_view single, index, suffix;
};
constexpr std::array<FolderLayout, 2> kLayouts = {{
    {"model.safetensors", "model.safetensors.index.json", ".safetensors"},
    {"pytorch_model.bin", "pytorch_model.bin.index.json", ".bin"},
}};
constexpr std::string_view kAnySuffix = ".safetensors";

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
    if (name.ends_with(kAnySuffix) && name.front() != '.') found.push_back(it->path().string());
  }
  if (error) throw IoError("read folder", folder, -1, error.value());
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

WeightFolder WeightFolder::open(const std::string& path) {
  WeightFolder folder;
  folder.path_ = path;
  if (!files::folder_exists(path)) {
    folder.add_file(path);
    return folder;
  }
  std::string tried;
  for (const FolderLayout& layout : kLayouts) {
    const std::string single = str(path, '/', layout.single);
    const std::string index = str(path, '/', layout.index);
    if (files::file_exists(single)) {
      folder.add_file(single);
      return folder;
    }
    if (files::file_exists(index)) {
      folder.read_index(path, index, layout.suffix);
      return folder;
    }
    tried += str(tried.empty() ? "" : ", ", layout.single, ", ", layout.index);
  }
  const std::vector<std::string> files = safetensors_files(path);
  if (files.size() != 1) {
    throw DataError(str(path, ": there are no weights: none of ", tried, "; and ",
                        files.empty() ? "no other" : "more than one other", " ", kAnySuffix,
                        " file"));
  }
  folder.add_file(files.front());
  return folder;
}

void WeightFolder::add_file(const std::string& path) {
  const WeightFile* file = files_.emplace_back(open_weight_file(path)).get();
  for (size_t i = 0; i < file->tensors().size(); ++i) {
    tensors_.emplace(file->tensors()[i].name, Location{file, i});
  }
}

void WeightFolder::read_index(const std::string& folder, const std::string& index_path,
                              std::string_view suffix) {
  struct Opened {
    const WeightFile* file = nullptr;
    std::map<std::string_view, size_t> names;
  };
  const files::json::Value index = files::json::parse_file(index_path);
  std::map<std::string, Opened> opened;
  for (const files::json::Member& member : index.at("weight_map").as_object()) {
    const std::string& name = member.value.as_string();
    if (!is_plain_file_name(name)) {
      member.value.fail("a shard must be a plain file name in the folder of the index");
    }
    if (!name.ends_with(suffix)) member.value.fail(str("a shard must be a ", suffix, " file"));
    Opened& shard = opened[name];
    if (shard.file == nullptr) {
      const std::string path = str(folder, '/', name);
      if (!files::file_exists(path)) {
        member.value.fail(str("there is no file '", path, "': a download that is not complete?"));
      }
      shard.file = files_.emplace_back(open_weight_file(path)).get();
      for (size_t i = 0; i < shard.file->tensors().size(); ++i) {
        shard.names.emplace(shard.file->tensors()[i].name, i);
      }
    }
    const auto found = shard.names.find(member.key);
    if (found == shard.names.end()) member.value.fail("this file does not hold the tensor");
    tensors_.emplace(member.key, Location{shard.file, found->second});
  }
}

uint64_t WeightFolder::fingerprint() const {
  constexpr int64_t kValues = 16;
  uint64_t hash = 0;
  for (const auto& [name, location] : tensors_) {
    const StoredTensor& tensor = location.tensor();
    hash = combine_bits(hash, hash_text(str(name, ' ', tensor.type, ' ', tensor.shape)));
    if (!tensor.dtype) continue;
    const int64_t count = std::min(tensor.shape.numel(), kValues);
    std::array<char, kValues * sizeof(double)> values{};
    location.read(0, View(values.data(), *tensor.dtype, Shape{count}));
    hash = combine_bits(hash, hash_text({values.data(), values.size()}));
  }
  return hash;
}

const WeightFolder::Location* WeightFolder::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

}  // namespace zinc::hub
