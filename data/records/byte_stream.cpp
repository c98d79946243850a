#include "data/records/byte_stream.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "core/error.h"
#include "data/records/gzip_stream.h"
#include "files/input_file.h"
#include "files/other_content.h"

namespace zinc::data {
namespace {

constexpr size_t kBlock = 1 << 18;  // bytes

class PlainStream final : public ByteStream {
 public:
  explicit PlainStream(const std::string& path) : file_(files::InputFile::open(path)) {
    std::array<char, 64> first{};
    const size_t count = read(first);
    offset_ = 0;
    const std::string_view pointer = files::lfs_pointer({first.data(), count});
    if (!pointer.empty()) throw DataError(str(path, ": ", pointer));
  }

  size_t read(std::span<char> out) override {
    const auto count = static_cast<size_t>(
        std::min<int64_t>(file_.size() - offset_, static_cast<int64_t>(out.size())));
    if (count > 0) file_.read(offset_, std::as_writable_bytes(out.first(count)));
    offset_ += static_cast<int64_t>(count);
    return count;
  }

 private:
  files::InputFile file_;
  int64_t offset_ = 0;
};

}  // namespace

std::unique_ptr<ByteStream> open_byte_stream(const std::string& path) {
  if (path.ends_with(".gz")) return open_gzip_stream(path);
  return std::make_unique<PlainStream>(path);
}

TextInput::TextInput(const std::string& path) : stream_(open_byte_stream(path)), block_(kBlock) {
  while (size_ < 3) {
    const size_t count = stream_->read(std::span(block_).subspan(size_));
    if (count == 0) break;
    size_ += count;
  }
  if (size_ >= 3 && std::equal(block_.begin(), block_.begin() + 3, "\xEF\xBB\xBF")) at_ = 3;
}

bool TextInput::fill() {
  at_ = 0;
  size_ = stream_->read(block_);
  return size_ > 0;
}

}  // namespace zinc::data
