// files/append_file.h: a file that grows, and that can be read while it does.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "files/file_descriptor.h"

namespace zinc::files {

// Every append reaches the system before it returns, so appended bytes survive the end of the
// process. Failures are IoErrors with path and errno. The bytes of a failed append are taken back,
// so that the file ends with the last whole append.
class AppendFile {
 public:
  enum class Mode : uint8_t {
    create,  // the file must not exist
    resume,  // continues at its end; made where it does not exist
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

// Cuts a file of lines for a run that continues: removes the first line for which `is_later` is
// true, all lines behind it, and a last line without a line end. Does nothing where the file does
// not exist. Throws IoError.
void drop_later_lines(const std::string& path,
                      const std::function<bool(std::string_view line)>& is_later);

}  // namespace zinc::files
