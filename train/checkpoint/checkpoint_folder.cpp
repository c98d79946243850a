#include "train/checkpoint/checkpoint_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include "core/error.h"
#include "files/atomic_file.h"
#include "files/input_file.h"
#include "train/checkpoint/checkpoint.h"

namespace zinc::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kName = "step-";
constexpr std::string_view kTrash = ".trash-";
constexpr std::string_view kAside = "aside-";

// "step-000120": 120.
std::optional<int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kName)) return std::nullopt;
  name.remove_prefix(kName.size());
  int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size() || step < 0) return std::nullopt;
  return step;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    if (at->is_directory(ignored) && !at->is_symlink(ignored)) {
      names.push_back(at->path().filename().string());
    }
  }
  if (error && error.value() != ENOENT) throw IoError("read folder", folder, -1, error.value());
  std::ranges::sort(names);
  return names;
}

void rename_folder(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) throw IoError("rename folder", from, -1, errno);
}

void remove_tree(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) throw IoError("delete folder", path, -1, error.value());
}

// Removes a checkpoint. At no moment does a part of it have the checkpoint's name.
void remove_checkpoint(const std::string& folder, const std::string& name) {
  const std::string trash =
      fmt::format("{}/{}{}-{}", folder, kTrash, name, static_cast<int64_t>(getpid()));
  if (files::folder_exists(trash)) remove_tree(trash);
  rename_folder(str(folder, '/', name), trash);
  files::sync_folder(folder);
  remove_tree(trash);
}

// Whether the checkpoint is whole. A name may have outlived its contents, so all of it is read.
bool is_whole(const std::string& path) {
  try {
    Checkpoint::open(path).verify();
    return true;
  } catch (const DataError&) {
    return false;
  }
}

}  // namespace

std::string checkpoint_name(int64_t step) { return fmt::format("{}{:06}", kName, step); }

std::vector<FoundCheckpoint> find_checkpoints(const std::string& folder) {
  std::vector<FoundCheckpoint> found;
  for (const std::string& name : names_in(folder)) {
    if (const auto step = step_of(name)) found.push_back({*step, str(folder, '/', name)});
  }
  std::ranges::sort(found, std::greater(), &FoundCheckpoint::step);
  return found;
}

std::vector<std::string> clean_checkpoints(const std::string& folder) {
  std::vector<std::string> done;
  for (const std::string& name : names_in(folder)) {
    if (!name.starts_with(kTrash)) continue;
    remove_tree(str(folder, '/', name));
    done.push_back(str("deleted ", name, ", a rest of an old checkpoint"));
  }
  for (const files::TemporaryName& left : files::temporaries_in(folder)) {
    if (!step_of(left.target)) continue;
    const std::string target = str(folder, '/', left.target);
    if (!files::folder_exists(target) && is_whole(left.path)) {
      files::sync_folder(left.path);
      rename_folder(left.path, target);
      files::sync_folder(folder);
      done.push_back(str("gave ", target, " its name: it was complete"));
    } else {
      remove_tree(left.path);
      done.push_back(str("deleted ", left.path, ", a checkpoint that was not complete"));
    }
  }
  return done;
}

std::vector<std::string> set_later_aside(const std::string& folder, int64_t step) {
  std::vector<std::string> done;
  for (const FoundCheckpoint& found : find_checkpoints(folder)) {
    if (found.step <= step) continue;
    const std::string aside = str(kAside, files::file_name(found.path));
    if (files::folder_exists(str(folder, '/', aside))) remove_checkpoint(folder, aside);
    rename_folder(found.path, str(folder, '/', aside));
    done.push_back(str(found.path, " is called ", aside, " now: this run goes on from before it"));
  }
  if (!done.empty()) files::sync_folder(folder);
  return done;
}

std::vector<std::string> prune_checkpoints(const std::string& folder, int64_t keep, bool verifies) {
  require(keep > 0, "checkpoints: at least one is kept, not ", keep);
  std::vector<std::string> removed;
  const std::vector<FoundCheckpoint> found = find_checkpoints(folder);
  const auto first = static_cast<size_t>(keep);
  if (found.size() <= first) return removed;
  size_t whole = 0;
  while (verifies && whole < found.size() && !is_whole(found[whole].path)) ++whole;
  for (size_t i = first; i < found.size(); ++i) {
    if (verifies && i == whole) continue;
    remove_checkpoint(folder, files::file_name(found[i].path));
    removed.push_back(found[i].path);
  }
  return removed;
}

}  // namespace zinc::train
