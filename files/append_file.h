// files/append_file.h: a file that grows, and that can be read while it does.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "files/file_descriptor.h"

namespace zinc::files {

// Every append reaches the system before it returns, so what was appended survives the end of the
// process. Failures are IoErrors with path and errno; what a failed append had written is taken
// back, so that the file ends where the last whole one ended.
class AppendFile {
 public:
  enum class Mode : uint8_t {
    create,  // the file must not exist
    resume,  // goes on at its end; made where it does not exist
  };
  AppendFile(std::string path, Mode mode);
  // A file of a folder that is open, and may be renamed meanwhile; `path` is for messages.
  AppendFile(const FileDescriptor& folder, const std::string& name, std::string path, Mode mode);

  const std::string& path() const { return path_; }
  void append(std::string_view bytes);
  // True while nothing is in the file.
  bool empty() const { return size_ == 0; }

 private:
  AppendFile(int folder, const std::string& name, std::string path, Mode mode);

  std::string path_;
  FileDescriptor fd_;
  int64_t size_ = 0;
};

// Cuts a file of lines behind the last one that belongs to a run which goes on: the first line for
// which `is_later` is true goes, with all behind it, and so does a last line without its end.
// Nothing where the file does not exist. IoError.
void drop_later_lines(const std::string& path,
                      const std::function<bool(std::string_view line)>& is_later);

}  // namespace zinc::files
