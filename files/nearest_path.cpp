#include "files/nearest_path.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <system_error>
#include <vector>

#include "core/edit_distance.h"
#include "core/error.h"

namespace zinc::files {
namespace {

constexpr size_t kMostNames = 1000;  // of a folder that is searched

std::vector<std::string> names_of(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder.empty() ? "." : folder, error);
  for (; !error && entry != std::filesystem::directory_iterator() && names.size() < kMostNames;
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace

std::string nearest_path(const std::string& path) {
  std::filesystem::path so_far;
  bool replaced = false;
  for (const std::filesystem::path& part : std::filesystem::path(path)) {
    std::error_code ignored;
    if (replaced || part.empty() || std::filesystem::exists(so_far / part, ignored)) {
      so_far /= part;
      continue;
    }
    const std::string near = nearest_name(part.string(), names_of(so_far));
    if (near.empty()) return "";
    so_far /= near;
    replaced = true;
  }
  return replaced ? so_far.string() : "";
}

std::string no_such_path(const std::string& kind, const std::string& path) {
  const std::string near = nearest_path(path);
  return str("there is no ", kind, " '", path, "'",
             near.empty() ? "" : str("; did you mean '", near, "'?"));
}

}  // namespace zinc::files
