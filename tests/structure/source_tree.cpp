#include "tests/structure/source_tree.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace zinc::structure {
namespace {

constexpr std::array kFolders{"core",  "kernels", "comm",     "tensor",   "autograd", "nn",
                              "optim", "zero",    "offload",  "parallel", "files",    "text",
                              "data",  "hub",     "generate", "train",    "plan",     "apps",
                              "tests", "bench",   "examples"};
constexpr std::array kExtensions{".h", ".cpp", ".cu", ".cuh"};

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Copies `text`, with comments turned into spaces and literals into their quotes. Newlines stay.
class Stripper {
 public:
  explicit Stripper(std::string_view text) : text_(text) {}

  std::string run() {
    while (at_ < text_.size()) {
      if (text_.substr(at_, 2) == "//") {
        skip_to(text_.find('\n', at_));
      } else if (text_.substr(at_, 2) == "/*") {
        const size_t end = text_.find("*/", at_ + 2);
        skip_to(end == std::string_view::npos ? end : end + 2);
      } else if (text_[at_] == '"' && at_ > 0 && text_[at_ - 1] == 'R') {
        raw_string();
      } else if (text_[at_] == '"') {
        literal('"');
      } else if (text_[at_] == '\'' && (at_ == 0 || !is_word(text_[at_ - 1]))) {
        literal('\'');  // after a word character it separates digits
      } else {
        out_ += text_[at_++];
      }
    }
    return std::move(out_);
  }

 private:
  void skip_to(size_t end) {
    end = std::min(end, text_.size());
    for (; at_ < end; ++at_) out_ += text_[at_] == '\n' ? '\n' : ' ';
  }

  void literal(char quote) {
    out_ += quote;
    for (++at_; at_ < text_.size() && text_[at_] != quote && text_[at_] != '\n'; ++at_) {
      if (text_[at_] == '\\') ++at_;
    }
    out_ += quote;
    if (at_ < text_.size() && text_[at_] == quote) ++at_;
  }

  void raw_string() {
    const size_t open = text_.find('(', at_);
    if (open == std::string_view::npos) return skip_to(open);
    std::string close = ")";
    close += text_.substr(at_ + 1, open - at_ - 1);
    close += '"';
    const size_t end = text_.find(close, open);
    out_ += '"';
    skip_to(end == std::string_view::npos ? end : end + close.size());
    out_ += '"';
  }

  std::string_view text_;
  size_t at_ = 0;
  std::string out_;
};

std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace

std::string to_string(const Problem& problem) {
  return problem.path + ":" + std::to_string(problem.line) + ": " + problem.rule + ": " +
         problem.text;
}

SourceFile parse_source(std::string path, std::string_view text) {
  SourceFile file{.path = std::move(path), .lines = split_lines(text), .code = {}};
  file.code = split_lines(Stripper(text).run());
  file.code.resize(file.lines.size());
  return file;
}

Page parse_page(std::string path, std::string_view text) {
  return {.path = std::move(path), .lines = split_lines(text)};
}

std::vector<Page> load_pages(const std::filesystem::path& root) {
  std::vector<Page> pages;
  const auto add = [&](const std::filesystem::path& path) {
    pages.push_back(parse_page(path.lexically_relative(root).generic_string(), read_file(path)));
  };
  if (std::filesystem::exists(root / "README.md")) add(root / "README.md");
  std::vector<std::string_view> folders(kFolders.begin(), kFolders.end());
  folders.insert(folders.end(), {"cmake", "docs"});
  for (const std::string_view folder : folders) {
    if (!std::filesystem::is_directory(root / folder)) continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder)) {
      const bool is_page = folder == "docs" ? entry.path().extension() == ".md"
                                            : entry.path().filename() == "README.md";
      if (entry.is_regular_file() && is_page) add(entry.path());
    }
  }
  std::ranges::sort(pages, {}, &Page::path);
  return pages;
}

std::vector<SourceFile> load_tree(const std::filesystem::path& root) {
  std::vector<SourceFile> files;
  const auto add = [&](const std::filesystem::path& path) {
    files.push_back(parse_source(path.lexically_relative(root).generic_string(), read_file(path)));
  };
  for (const std::string_view folder : kFolders) {
    if (!std::filesystem::is_directory(root / folder)) continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder)) {
      if (entry.is_regular_file() &&
          std::ranges::find(kExtensions, entry.path().extension().string()) != kExtensions.end()) {
        add(entry.path());
      }
    }
  }
  if (std::filesystem::exists(root / "zinc.h")) add(root / "zinc.h");
  std::ranges::sort(files, {}, &SourceFile::path);
  return files;
}

std::string_view top_folder(std::string_view path) {
  const size_t slash = path.find('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}

}  // namespace zinc::structure
