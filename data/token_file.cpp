#include "data/token_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>

#include "core/error.h"
#include "files/other_content.h"
#include "files/utf8.h"

namespace zinc::data {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

constexpr int64_t kHeaderBytes = 1024;
constexpr int32_t kMagicUint16 = 20240520;
constexpr int32_t kMagicUint32 = 20240801;

// The kind of llm.c's file that a magic number stands for, other than tokens.
std::string_view other_llmc_file(int32_t magic) {
  switch (magic) {
    case 20240522:
      return "an evaluation set";
    case 20240326:
      return "model weights";
    case 20240327:
      return "a training state";
    case 20240328:
      return "a tokenizer";
    default:
      return {};
  }
}

template <class T>
T load(const files::MappedFile& map, int64_t offset) {
  T value;
  std::memcpy(&value, map.bytes().data() + offset, sizeof value);
  return value;
}

std::optional<int32_t> magic_of(const files::MappedFile& map) {
  if (map.size() < 4) return std::nullopt;
  return load<int32_t>(map, 0);
}

TokenFormat detect(const files::MappedFile& map) {
  if (!map.path().ends_with(".bin")) return TokenFormat::text;
  const std::optional<int32_t> magic = magic_of(map);
  const bool llmc = magic && (*magic == kMagicUint16 || *magic == kMagicUint32 ||
                              !other_llmc_file(*magic).empty());
  return llmc ? TokenFormat::llmc : TokenFormat::nanogpt;
}

void check_text(const files::MappedFile& map) {
  const std::optional<int64_t> bad = files::first_invalid_utf8(map.bytes());
  if (!bad) return;
  int64_t line = 1;
  for (const std::byte b : map.bytes().first(static_cast<size_t>(*bad))) {
    if (b == std::byte{'\n'}) ++line;
  }
  static constexpr char kDigits[] = "0123456789abcdef";
  const auto value = static_cast<uint8_t>(map.bytes()[static_cast<size_t>(*bad)]);
  throw DataError(str(map.path(), ": not UTF-8 at byte ", *bad, " (line ", line, ", byte 0x",
                      kDigits[value >> 4], kDigits[value & 15],
                      "); convert it, for example by "
                      "iconv -f LATIN1 -t UTF-8"));
}

// Checks the header of llm.c and returns the width of a token in bytes.
int check_llmc_header(const files::MappedFile& map) {
  const std::string& path = map.path();
  if (map.size() < kHeaderBytes) {
    throw DataError(str(path, ": an llm.c token file starts with a header of ", kHeaderBytes,
                        " bytes; this file has ", map.size()));
  }
  const int32_t magic = load<int32_t>(map, 0), version = load<int32_t>(map, 4);
  const int32_t count = load<int32_t>(map, 8);
  if (const std::string_view other = other_llmc_file(magic); !other.empty()) {
    throw DataError(
        str(path, ": is ", other, " of llm.c (magic number ", magic, "), not a token file"));
  }
  if (magic != kMagicUint16 && magic != kMagicUint32) {
    throw DataError(str(path, ": magic number ", magic, " at byte 0; an llm.c token file has ",
                        kMagicUint16, " or ", kMagicUint32));
  }
  const int32_t expected = magic == kMagicUint16 ? 1 : 7;
  if (version != expected) {
    throw DataError(str(path, ": version ", version, " at byte 4; magic number ", magic,
                        " goes with version ", expected));
  }
  const int width = magic == kMagicUint16 ? 2 : 4;
  if (map.size() - kHeaderBytes != int64_t{count} * width) {
    throw DataError(str(path, ": the header announces ", count, " tokens of ", width,
                        " bytes, but ", map.size() - kHeaderBytes, " bytes follow it"));
  }
  return width;
}

}  // namespace

std::string_view name_of(TokenFormat format) {
  switch (format) {
    case TokenFormat::automatic:
      return "automatic";
    case TokenFormat::text:
      return "text";
    case TokenFormat::llmc:
      return "llm.c";
    case TokenFormat::nanogpt:
      return "nanoGPT";
  }
  return "?";
}

TokenFile::TokenFile(files::MappedFile map, TokenFormat format, int64_t data_begin,
                     int bytes_per_token)
    : map_(std::move(map)),
      format_(format),
      data_begin_(data_begin),
      bytes_per_token_(bytes_per_token),
      num_tokens_((map_.size() - data_begin) / bytes_per_token),
      vocabulary_size_(format == TokenFormat::text ? 256 : 0) {
  if (num_tokens_ == 0) throw DataError(str(map_.path(), ": holds no tokens"));
}

TokenFile TokenFile::open(const std::string& path, TokenFormat format,
                          const text::Tokenizer* tokenizer) {
  files::MappedFile map = files::MappedFile::open(path);
  const auto first = map.bytes().first(std::min<size_t>(map.bytes().size(), 64));
  const std::string_view pointer =
      files::lfs_pointer({reinterpret_cast<const char*>(first.data()), first.size()});
  if (!pointer.empty()) throw DataError(str(path, ": ", pointer));
  if (map.size() == 0) throw DataError(str(path, ": is empty"));
  if (format == TokenFormat::automatic) format = detect(map);
  if (format == TokenFormat::text) {
    check_text(map);
    TokenFile file(std::move(map), format, 0, 1);
    if (tokenizer == nullptr) return file;
    const std::span<const std::byte> bytes = file.map_.bytes();
    file.encoded_ = tokenizer->encode({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    file.num_tokens_ = static_cast<int64_t>(file.encoded_.size());
    file.vocabulary_size_ = tokenizer->vocabulary_size();
    if (file.num_tokens_ == 0) throw DataError(str(path, ": holds no tokens"));
    return file;
  }
  if (format == TokenFormat::llmc) {
    const int width = check_llmc_header(map);
    return TokenFile(std::move(map), format, kHeaderBytes, width);
  }
  if (map.size() % 2 != 0) {
    throw DataError(str(path, ": has ", map.size(),
                        " bytes, an odd number; a nanoGPT token "
                        "file holds uint16 tokens and nothing else"));
  }
  return TokenFile(std::move(map), format, 0, 2);
}

void TokenFile::append_to(std::vector<int32_t>& out, int64_t begin, int64_t end,
                          int64_t vocabulary_size) const {
  require(0 <= begin && begin <= end && end <= num_tokens_, "token file: range [", begin, ", ", end,
          ") of ", num_tokens_, " tokens");
  if (!encoded_.empty()) {
    const auto tokens =
        std::span(encoded_).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    if (vocabulary_size > 0) text::require_in_vocabulary(path(), tokens, vocabulary_size);
    out.insert(out.end(), tokens.begin(), tokens.end());
    return;
  }
  map_.require_unchanged();
  const size_t first = out.size();
  const auto count = static_cast<size_t>(end - begin);
  out.resize(first + count);
  const std::byte* source = map_.bytes().data() + data_begin_ + begin * bytes_per_token_;
  const auto convert = [&]<class T>(T) {
    for (size_t i = 0; i < count; ++i) {
      T token;
      std::memcpy(&token, source + i * sizeof(T), sizeof(T));
      out[first + i] = static_cast<int32_t>(token);  // a uint32 above int32 turns negative
    }
  };
  if (bytes_per_token_ == 1) convert(uint8_t{});
  if (bytes_per_token_ == 2) convert(uint16_t{});
  if (bytes_per_token_ == 4) convert(uint32_t{});

  const int64_t limit =
      vocabulary_size > 0 ? vocabulary_size : int64_t{std::numeric_limits<int32_t>::max()} + 1;
  for (size_t i = 0; i < count; ++i) {
    if (out[first + i] >= 0 && out[first + i] < limit) continue;
    const int64_t index = begin + static_cast<int64_t>(i);
    throw DataError(str(path(), ": token ", static_cast<uint32_t>(out[first + i]), " at byte ",
                        data_begin_ + index * bytes_per_token_, " (token number ", index,
                        ") is outside the vocabulary of ", limit, " tokens"));
  }
}

}  // namespace zinc::data
