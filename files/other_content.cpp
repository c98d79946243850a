#include "files/other_content.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "core/error.h"

namespace zinc::files {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

bool begins_without_case(std::string_view text, std::string_view lower) {
  return text.size() >= lower.size() &&
         std::equal(lower.begin(), lower.end(), text.begin(), [](char a, char b) {
           return a == (b >= 'A' && b <= 'Z' ? static_cast<char>(b - 'A' + 'a') : b);
         });
}

}  // namespace

std::string_view lfs_pointer(std::string_view first_bytes) {
  if (!first_bytes.starts_with("version https://git-lfs.")) return {};
  return "a pointer of Git LFS stands in the place of the file itself: fetch it with "
         "`git lfs pull`, or download it";
}

std::string_view other_content(std::string_view first_bytes) {
  if (const std::string_view pointer = lfs_pointer(first_bytes); !pointer.empty()) return pointer;
  if (first_bytes.starts_with(kByteOrderMark)) first_bytes.remove_prefix(kByteOrderMark.size());
  const size_t first = first_bytes.find_first_not_of(" \t\r\n");
  first_bytes.remove_prefix(std::min(first, first_bytes.size()));
  if (begins_without_case(first_bytes, "<!doctype html") ||
      begins_without_case(first_bytes, "<html")) {
    return "an HTML page stands in the place of the file, as a download without the right to it "
           "gives (a login, a licence to agree to): fetch the file again";
  }
  return {};
}

void require_downloaded(const InputFile& file) {
  std::array<char, 64> first{};
  const auto count =
      static_cast<size_t>(std::min<int64_t>(file.size(), static_cast<int64_t>(first.size())));
  file.read(0, std::as_writable_bytes(std::span(first).first(count)));
  const std::string_view found = other_content({first.data(), count});
  if (!found.empty()) throw DataError(str(file.path(), ": ", found));
}

}  // namespace zinc::files
