#include "files/deepspeed/checkpoint_files.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>

#include "core/error.h"
#include "files/input_file.h"

namespace zinc::files {
namespace {

constexpr std::string_view kUniversalCure =
    "; convert the checkpoint with python -m deepspeed.checkpoint.ds_to_universal first";

std::vector<std::string> files_of(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    found.push_back(it->path().filename().string());
  }
  if (error) throw IoError("read folder", folder, -1, error.value());
  std::sort(found.begin(), found.end());
  return found;
}

// A file name that is "<prefix><number><middle><number><suffix>".
struct RankedName {
  int64_t first, second;
};
bool take_text(std::string_view& text, std::string_view expected) {
  if (!text.starts_with(expected)) return false;
  text.remove_prefix(expected.size());
  return true;
}
std::optional<int64_t> take_number(std::string_view& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

// "[bf16_|fp16_]zero_pp_rank_<data>_mp_rank_<tensor><suffix>"
std::optional<RankedName> ranks_of(std::string_view name, std::string_view suffix) {
  if (!take_text(name, "bf16_")) take_text(name, "fp16_");
  if (!take_text(name, "zero_pp_rank_")) return std::nullopt;
  const std::optional<int64_t> data = take_number(name);
  if (!data || !take_text(name, "_mp_rank_")) return std::nullopt;
  const std::optional<int64_t> tensor = take_number(name);
  if (!tensor || name != suffix) return std::nullopt;
  return RankedName{*data, *tensor};
}

// Files of ranks 0, 1, 2, ... in their order.
std::vector<std::string> in_order(const std::string& folder, std::string_view suffix,
                                  const std::map<int64_t, std::string>& by_rank) {
  std::vector<std::string> files;
  for (const auto& [rank, name] : by_rank) {
    if (rank != static_cast<int64_t>(files.size())) {
      throw DataError(str(folder, ": the file zero_pp_rank_", files.size(), "_mp_rank_00", suffix,
                          " is missing: copy the folders of all machines into one"));
    }
    files.push_back(str(folder, '/', name));
  }
  return files;
}

std::string tag_of(const std::string& path) {
  for (const std::string_view name : {"latest", "latest_universal"}) {
    const std::string file = str(path, '/', name);
    if (!file_exists(file)) continue;
    std::string tag = read_text_file(file, 4096);
    const size_t end = tag.find_last_not_of(" \t\r\n");
    tag.resize(end == std::string::npos ? 0 : end + 1);
    return tag;
  }
  return {};
}

std::string tag_folder(const std::string& path, const std::string& tag) {
  if (!folder_exists(path)) throw DataError(str("there is no folder '", path, "'"));
  const std::string name = tag.empty() ? tag_of(path) : tag;
  if (name.empty()) return path;
  const bool plain = name.front() != '.' && name.find('/') == std::string::npos &&
                     name.find('\0') == std::string::npos;
  if (!plain) throw DataError(str(path, ": a tag must be the plain name of a folder in it"));
  std::string folder = str(path, '/', name);
  if (!folder_exists(folder)) {
    throw DataError(str(path, ": there is no folder '", name, "'",
                        tag.empty() ? ", which the file `latest` names" : "",
                        ": the checkpoint was not finished, or was moved without it"));
  }
  return folder;
}

}  // namespace

DeepSpeedFiles find_deepspeed_files(const std::string& path, const std::string& tag) {
  constexpr std::string_view kModel = "_model_states.pt", kOptimizer = "_optim_states.pt";
  DeepSpeedFiles files;
  files.folder = tag_folder(path, tag);
  files.universal = folder_exists(files.folder + "/zero");
  std::map<int64_t, std::string> model, optimizer;
  bool single = false;
  const auto add = [&](std::map<int64_t, std::string>& ranks, const RankedName& name,
                       const std::string& file) {
    if (name.second != 0) {
      throw DataError(str(files.folder, '/', file, ": is of tensor parallelism", kUniversalCure));
    }
    if (!ranks.emplace(name.first, file).second) {
      throw DataError(str(files.folder, ": two files are of rank ", name.first, ": ", file, " and ",
                          ranks.at(name.first), ": remove those of the other run"));
    }
  };
  for (const std::string& file : files_of(files.folder)) {
    if (file == "mp_rank_00_model_states.pt") {
      single = true;
    } else if (const auto of_model = ranks_of(file, kModel)) {
      add(model, *of_model, file);
    } else if (const auto of_optimizer = ranks_of(file, kOptimizer)) {
      add(optimizer, *of_optimizer, file);
    } else if (file.ends_with("model_states.pt") || file.ends_with("optim_states.pt")) {
      throw DataError(str(files.folder, '/', file,
                          ": is of tensor or pipeline parallelism, or of experts", kUniversalCure));
    }
  }
  files.model_states = single ? std::vector{files.folder + "/mp_rank_00_model_states.pt"}
                              : in_order(files.folder, kModel, model);
  if (files.model_states.empty()) {
    throw DataError(str(path,
                        ": no DeepSpeed checkpoint: there is neither a file `latest` nor "
                        "mp_rank_00_model_states.pt nor "
                        "zero_pp_rank_0_mp_rank_00_model_states.pt"));
  }
  if (!files.universal) files.optimizer_states = in_order(files.folder, kOptimizer, optimizer);
  return files;
}

}  // namespace zinc::files
