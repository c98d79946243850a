#include "train/checkpoint/state_file.h"

#include <algorithm>
#include <array>
#include <bit>

#include "core/crc32c.h"
#include "core/error.h"
#include "files/json/writer.h"

namespace zinc::train {
namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kLengthBytes = 8;
constexpr std::string_view kMetadata = R"({"__metadata__":{"format":"pt"})";

std::string tensor_name(std::string_view kind, std::string_view name) {
  return str(kind, '.', name);
}

// Most bytes of a tensor's entry in the header.
int64_t entry_bytes(std::string_view kind, std::string_view name) {
  std::string quoted;
  files::json::append_quoted(quoted, tensor_name(kind, name));
  constexpr int64_t kRest = 64 + 3 * 20;  // keys, and three numbers
  return static_cast<int64_t>(quoted.size()) + kRest;
}

std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

StateFileWriter::StateFileWriter(std::string folder, std::string name,
                                 std::span<const NamedShape> parameters,
                                 std::span<const std::string> kinds, DType dtype,
                                 std::span<std::byte> memory)
    : folder_(std::move(folder)),
      name_(std::move(name)),
      dtype_(dtype),
      file_(files::AtomicFile::create_shared(str(folder_, '/', name_, ".safetensors"), 0,
                                             /*direct=*/true, memory)) {
  header_bytes_ = kLengthBytes + static_cast<int64_t>(kMetadata.size()) + 1;
  for (const NamedShape& parameter : parameters) {
    shapes_.emplace(parameter.name, parameter.shape);
    for (const std::string& kind : kinds) header_bytes_ += entry_bytes(kind, parameter.name);
  }
  header_bytes_ = (header_bytes_ + kPage - 1) / kPage * kPage;
  end_ = header_bytes_;
}

StateFileWriter::Part& StateFileWriter::part_of(const zero::OwnPiece& piece) {
  const auto [found, is_new] =
      index_.try_emplace({piece.name, std::string(piece.kind)}, parts_.size());
  if (!is_new) return parts_[found->second];
  const auto shape = shapes_.find(piece.name);
  require(shape != shapes_.end(), "checkpoint: the model has no parameter '", piece.name, "'");
  require(piece.name.size() <= kMaxStoredNameBytes, "checkpoint: a parameter's name of ",
          piece.name.size(), " bytes: at most ", kMaxStoredNameBytes);
  Part part{.stored = {.name = piece.name,
                       .kind = std::string(piece.kind),
                       .shape = piece.shape == nullptr ? shape->second : *piece.shape,
                       .slice = piece.slice == nullptr ? std::nullopt : std::optional(*piece.slice),
                       .begin = piece.part.begin,
                       .count = piece.part.size(),
                       .blocks = {}},
            .offset = end_,
            .written = 0};
  end_ += part.stored.count * size_of(dtype_);
  return parts_.emplace_back(std::move(part));
}

void StateFileWriter::write(const zero::OwnPiece& piece) {
  Part& part = part_of(piece);
  const ConstView& values = piece.values;
  bug_check(
      values.dtype() == dtype_ && piece.begin == part.stored.begin + part.written &&
          part.written % kBlockNumel == 0 &&
          (values.numel() == kBlockNumel || part.written + values.numel() == part.stored.count),
      "checkpoint: the pieces of ", piece.name, " are not blocks in their order");
  const std::span bytes(static_cast<const std::byte*>(values.data()),
                        static_cast<size_t>(values.bytes()));
  // Writes in slices that stay in a core's cache between checksum and write.
  constexpr size_t kSlice = size_t{256} << 10;
  const int64_t offset = part.offset + part.written * size_of(dtype_);
  uint32_t crc = 0;
  for (size_t at = 0; at < bytes.size(); at += kSlice) {
    const std::span slice = bytes.subspan(at, std::min(kSlice, bytes.size() - at));
    crc = crc32c(slice, crc);
    file_.write(offset + static_cast<int64_t>(at), slice);
  }
  part.stored.blocks.push_back(crc);
  part.written += values.numel();
  num_written_ += values.numel();
}

std::string StateFileWriter::header() const {
  std::string text(kMetadata);
  for (const Part& part : parts_) {
    const int64_t begin = part.offset - header_bytes_;
    text += ',';
    files::json::append_quoted(text, tensor_name(part.stored.kind, part.stored.name));
    text += str(R"(:{"dtype":")", dtype_ == DType::f64 ? "F64" : "F32", R"(","shape":[)",
                part.stored.count, R"(],"data_offsets":[)", begin, ',',
                begin + part.stored.count * size_of(dtype_), "]}");
  }
  text += '}';
  const auto room = static_cast<size_t>(header_bytes_ - kLengthBytes);
  bug_check(text.size() <= room, "checkpoint: the header needs ", text.size(), " bytes of ", room);
  text.resize(room, ' ');
  static_assert(std::endian::native == std::endian::little);
  const std::array<char, kLengthBytes> length =
      std::bit_cast<std::array<char, kLengthBytes>>(static_cast<uint64_t>(room));
  return std::string(length.begin(), length.end()) + text;
}

StoredFile StateFileWriter::finish() {
  StateIndex index{.file = name_ + ".safetensors",
                   .bytes = end_,
                   .header_bytes = header_bytes_,
                   .header_crc = 0,
                   .dtype = dtype_,
                   .parts = {}};
  for (const Part& part : parts_) {
    bug_check(part.written == part.stored.count, "checkpoint: ", part.stored.count - part.written,
              " elements of ", part.stored.name, " were not written");
    index.parts.push_back(part.stored);
  }
  const std::string text = header();
  index.header_crc = crc32c(as_bytes(text));
  file_.write(0, as_bytes(text));
  file_.commit();
  return write_stored_file(folder_, name_ + ".json", to_json(index));
}

StoredFile write_stored_file(const std::string& folder, const std::string& name,
                             std::string_view content) {
  StoredFile stored{.name = name,
                    .bytes = static_cast<int64_t>(content.size()),
                    .crc = crc32c(as_bytes(content))};
  files::AtomicFile file = files::AtomicFile::create_shared(str(folder, '/', name), 0);
  file.write(0, as_bytes(content));
  file.commit();
  return stored;
}

}  // namespace zinc::train
