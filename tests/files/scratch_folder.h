// A folder for one test, removed with everything in it, and short ways to look at files.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace zinc::files {

class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_ + '/' + std::string(name); }
  // Writes a file and returns its path.
  std::string write(std::string_view name, std::string_view content) const;
  // Names of everything inside, hidden files too, sorted.
  std::vector<std::string> names() const;

 private:
  std::string path_;
};

std::string read_whole_file(const std::string& path);
std::vector<std::string> names_in(const std::string& folder);

// what() of the ErrorType that `body` throws; "(no error)" where it does not.
template <class ErrorType, class Body>
std::string message_of(Body&& body) {
  try {
    body();
  } catch (const ErrorType& error) {
    return error.what();
  }
  return "(no error)";
}

}  // namespace zinc::files
