#include <zlib.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "core/error.h"
#include "data/records/gzip_stream.h"
#include "files/input_file.h"

namespace zinc::data {
namespace {

constexpr size_t kPackedBlock = 1 << 18;  // bytes
constexpr int kWindowBitsOfGzip = 15 + 16;

class GzipStream final : public ByteStream {
 public:
  explicit GzipStream(const std::string& path)
      : file_(files::InputFile::open(path)), packed_(kPackedBlock) {
    if (inflateInit2(&state_, kWindowBitsOfGzip) != Z_OK) {
      throw OutOfMemory(str(path, ": zlib has no memory"), 0, -1);
    }
  }
  ~GzipStream() override { inflateEnd(&state_); }
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;

  size_t read(std::span<char> out) override {
    state_.next_out = reinterpret_cast<Bytef*>(out.data());
    const size_t room = std::min<size_t>(out.size(), std::numeric_limits<uInt>::max());
    state_.avail_out = static_cast<uInt>(room);
    while (state_.avail_out == room) {
      if (state_.avail_in == 0 && !refill()) {
        if (between_members_ && offset_ > 0) return 0;
        fail("the file ends inside the packed text");
      }
      if (between_members_) inflateReset(&state_);
      between_members_ = false;
      const int status = inflate(&state_, Z_NO_FLUSH);
      if (status == Z_STREAM_END) {
        between_members_ = true;
      } else if (status != Z_OK && status != Z_BUF_ERROR) {
        fail(state_.msg != nullptr ? state_.msg : "it is no gzip file");
      }
    }
    return room - state_.avail_out;
  }

 private:
  bool refill() {
    const auto count = static_cast<size_t>(
        std::min<int64_t>(file_.size() - offset_, static_cast<int64_t>(packed_.size())));
    if (count == 0) return false;
    file_.read(offset_, std::as_writable_bytes(std::span(packed_).first(count)));
    offset_ += static_cast<int64_t>(count);
    state_.next_in = reinterpret_cast<Bytef*>(packed_.data());
    state_.avail_in = static_cast<uInt>(count);
    return true;
  }

  [[noreturn]] void fail(const std::string& why) const {
    throw DataError(str(file_.path(), ": cannot be unpacked at byte ",
                        offset_ - static_cast<int64_t>(state_.avail_in), ": ", why));
  }

  files::InputFile file_;
  std::vector<char> packed_;
  int64_t offset_ = 0;  // of the bytes behind packed_
  z_stream state_{};
  bool between_members_ = true;
};

}  // namespace

std::unique_ptr<ByteStream> open_gzip_stream(const std::string& path) {
  return std::make_unique<GzipStream>(path);
}

}  // namespace zinc::data
