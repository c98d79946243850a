#include "files/torch/zip_archive.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "core/crc32.h"
#include "core/error.h"
#include "files/torch/in_quotes.h"

namespace zinc::files::torch {
namespace {

constexpr uint32_t kLocalHeader = 0x04034b50;
constexpr uint32_t kDirectoryHeader = 0x02014b50;
constexpr uint32_t kDirectoryEnd = 0x06054b50;
constexpr uint32_t kZip64End = 0x06064b50;
constexpr uint32_t kZip64Locator = 0x07064b50;
constexpr int64_t kLocalBytes = 30;
constexpr int64_t kDirectoryHeaderBytes = 46;
constexpr int64_t kEndBytes = 22;
constexpr int64_t kZip64EndBytes = 56;
constexpr int64_t kZip64LocatorBytes = 20;
constexpr int64_t kMaxComment = 65'535;
constexpr uint64_t kInZip64 = 0xffffffff;  // "the value stands in the zip64 field"
constexpr uint16_t kZip64Field = 1;
constexpr uint16_t kEncrypted = 1;

// Little-endian fields of one record, whose size was checked.
class Fields {
 public:
  explicit Fields(std::span<const std::byte> bytes) : bytes_(bytes) {}

  size_t left() const { return bytes_.size(); }
  uint16_t u16() { return static_cast<uint16_t>(number(2)); }
  uint32_t u32() { return static_cast<uint32_t>(number(4)); }
  uint64_t u64() { return number(8); }
  void skip(size_t count) { take(count); }
  std::span<const std::byte> take(size_t count) {
    bug_check(count <= bytes_.size(), "zip: a record is shorter than was checked");
    const auto front = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return front;
  }

 private:
  uint64_t number(size_t count) {
    uint64_t value = 0;
    const auto bytes = take(count);
    for (size_t i = 0; i < count; ++i) value |= static_cast<uint64_t>(bytes[i]) << (8 * i);
    return value;
  }
  std::span<const std::byte> bytes_;
};

// Numbers of a file as sizes: what does not fit int64 is larger than any file.
int64_t as_size(uint64_t value) {
  constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  return static_cast<int64_t>(std::min(value, kMost));
}

// The fields of an entry in the directory.
struct Described {
  uint16_t flags, method;
  uint32_t crc;
  uint64_t packed, bytes, header;
};

// The values of `entry` that its header leaves to the zip64 field; false where it lacks them.
bool read_zip64_field(Fields extra, Described& entry) {
  const auto missing = [&] {
    return entry.packed == kInZip64 || entry.bytes == kInZip64 || entry.header == kInZip64;
  };
  if (!missing()) return true;
  while (extra.left() >= 4) {
    const uint16_t id = extra.u16();
    const size_t size = extra.u16();
    if (size > extra.left()) return false;
    Fields field(extra.take(size));
    if (id != kZip64Field) continue;
    for (uint64_t* value : {&entry.bytes, &entry.packed, &entry.header}) {
      if (*value != kInZip64) continue;
      if (field.left() < 8) return false;
      *value = field.u64();
    }
    return true;
  }
  return false;
}

}  // namespace

bool is_zip_file(const InputFile& file) {
  std::array<std::byte, 4> first{};
  if (file.size() < 4) return false;
  file.read(0, first);
  return Fields(first).u32() == kLocalHeader;
}

ZipArchive::ZipArchive(InputFile file) : file_(std::move(file)) {
  read_entries(find_directory());
  check_overlap();
  intact_ = std::make_unique<std::atomic<bool>[]>(entries_.size());
}

void ZipArchive::fail(int64_t offset, std::string_view what) const {
  throw DataError(str(path(), ": byte ", offset, ": ", what,
                      ": the file is damaged or its copy is not complete; fetch it again"));
}

std::vector<std::byte> ZipArchive::bytes_at(int64_t offset, int64_t count) const {
  if (offset < 0 || count < 0 || offset > file_.size() || count > file_.size() - offset) {
    fail(offset, "a zip record reaches beyond the end of the file");
  }
  std::vector<std::byte> bytes(static_cast<size_t>(count));
  file_.read(offset, bytes);
  return bytes;
}

ZipArchive::Directory ZipArchive::find_directory() const {
  const int64_t searched = std::min(file_.size(), kEndBytes + kMaxComment);
  const int64_t start = file_.size() - searched;
  const std::vector<std::byte> tail = bytes_at(start, searched);
  for (int64_t at = searched - kEndBytes; at >= 0; --at) {
    Fields end{std::span(tail).subspan(static_cast<size_t>(at), kEndBytes)};
    if (end.u32() != kDirectoryEnd) continue;
    const uint16_t disk = end.u16(), directory_disk = end.u16(), here = end.u16();
    const uint16_t entries = end.u16();
    const uint32_t bytes = end.u32(), begin = end.u32();
    if (end.u16() != searched - at - kEndBytes) continue;
    const int64_t locator = start + at - kZip64LocatorBytes;
    if (locator >= 0 && Fields(bytes_at(locator, 4)).u32() == kZip64Locator) {
      return read_zip64_directory(locator);
    }
    if (disk != 0 || directory_disk != 0 || here != entries) {
      fail(start + at, "the archive is spread over several files");
    }
    return {begin, bytes, entries};
  }
  fail(file_.size(), "the zip file has no end record");
}

ZipArchive::Directory ZipArchive::read_zip64_directory(int64_t locator) const {
  const std::vector<std::byte> pointer = bytes_at(locator, kZip64LocatorBytes);
  Fields where(pointer);
  where.skip(8);
  const int64_t at = as_size(where.u64());
  const std::vector<std::byte> record = bytes_at(at, kZip64EndBytes);
  Fields end(record);
  if (end.u32() != kZip64End) fail(at, "the zip64 end record is not where its locator says");
  end.skip(12);
  const uint32_t disk = end.u32(), directory_disk = end.u32();
  const uint64_t here = end.u64(), entries = end.u64(), bytes = end.u64(), begin = end.u64();
  if (disk != 0 || directory_disk != 0 || here != entries) {
    fail(at, "the archive is spread over several files");
  }
  return {as_size(begin), as_size(bytes), as_size(entries)};
}

int64_t ZipArchive::data_begin(int64_t header, const std::string& name, int64_t directory) const {
  const auto expected_name = static_cast<int64_t>(name.size());
  const std::vector<std::byte> record = bytes_at(header, kLocalBytes + expected_name);
  Fields local(record);
  if (local.u32() != kLocalHeader) fail(header, "an entry's header is not where it should be");
  local.skip(22);
  const int64_t name_bytes = local.u16(), extra_bytes = local.u16();
  if (name_bytes != expected_name ||
      std::memcmp(local.take(name.size()).data(), name.data(), name.size()) != 0) {
    fail(header, str("the entry ", in_quotes(name), " has another name in its own header"));
  }
  const int64_t begin = header + kLocalBytes + name_bytes + extra_bytes;
  if (begin > directory) fail(header, "an entry reaches into the directory");
  return begin;
}

void ZipArchive::read_entries(const Directory& directory) {
  if (directory.bytes > kMaxDirectoryBytes) {
    fail(directory.begin, str("the directory has ", directory.bytes, " bytes; at most ",
                              kMaxDirectoryBytes, " are allowed"));
  }
  const std::vector<std::byte> bytes = bytes_at(directory.begin, directory.bytes);
  Fields fields(bytes);
  for (int64_t i = 0; i < directory.entries; ++i) {
    const int64_t at = directory.begin + directory.bytes - static_cast<int64_t>(fields.left());
    if (fields.left() < kDirectoryHeaderBytes) fail(at, "the directory ends within an entry");
    if (fields.u32() != kDirectoryHeader) fail(at, "an entry of the directory does not begin here");
    Described entry{};
    fields.skip(4);
    entry.flags = fields.u16();
    entry.method = fields.u16();
    fields.skip(4);
    entry.crc = fields.u32();
    entry.packed = fields.u32();
    entry.bytes = fields.u32();
    const size_t name_bytes = fields.u16(), extra_bytes = fields.u16(), comment = fields.u16();
    fields.skip(8);
    entry.header = fields.u32();
    if (name_bytes + extra_bytes + comment > fields.left()) {
      fail(at, "the directory ends within an entry");
    }
    const auto name_span = fields.take(name_bytes);
    std::string name(reinterpret_cast<const char*>(name_span.data()), name_span.size());
    if (!read_zip64_field(Fields(fields.take(extra_bytes)), entry)) {
      fail(at, str("the entry ", in_quotes(name), " lacks its zip64 sizes"));
    }
    fields.skip(comment);
    if ((entry.flags & kEncrypted) != 0 || entry.method != 0 || entry.packed != entry.bytes) {
      throw DataError(str(path(), ": byte ", at, ": the entry ", in_quotes(name),
                          " is compressed or encrypted, which torch.save never does; unpack "
                          "and pack it with zip -0"));
    }
    const int64_t begin = data_begin(as_size(entry.header), name, directory.begin);
    if (as_size(entry.bytes) > directory.begin - begin) {
      fail(at, str("the data of ", in_quotes(name), " reach into the directory"));
    }
    entries_.push_back({std::move(name), begin, as_size(entry.bytes), entry.crc});
  }
  std::sort(entries_.begin(), entries_.end(),
            [](const ZipEntry& a, const ZipEntry& b) { return a.name < b.name; });
  const auto twice =
      std::adjacent_find(entries_.begin(), entries_.end(),
                         [](const ZipEntry& a, const ZipEntry& b) { return a.name == b.name; });
  if (twice != entries_.end()) {
    fail(twice->begin, str("there are two entries ", in_quotes(twice->name)));
  }
}

void ZipArchive::check_overlap() const {
  std::vector<const ZipEntry*> order;
  for (const ZipEntry& entry : entries_) {
    if (entry.bytes > 0) order.push_back(&entry);
  }
  std::sort(order.begin(), order.end(),
            [](const ZipEntry* a, const ZipEntry* b) { return a->begin < b->begin; });
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i]->begin < order[i - 1]->begin + order[i - 1]->bytes) {
      fail(order[i]->begin, str("the data of ", in_quotes(order[i]->name), " and of ",
                                in_quotes(order[i - 1]->name), " overlap"));
    }
  }
}

const ZipEntry* ZipArchive::find(std::string_view name) const {
  const auto found = std::lower_bound(
      entries_.begin(), entries_.end(), name,
      [](const ZipEntry& entry, std::string_view key) { return entry.name < key; });
  return found == entries_.end() || found->name != name ? nullptr : &*found;
}

void ZipArchive::require_intact(const ZipEntry& entry) const {
  std::atomic<bool>& intact = intact_[static_cast<size_t>(&entry - entries_.data())];
  if (intact.load(std::memory_order_relaxed)) return;
  if (entry.crc != 0) {
    constexpr int64_t kPiece = int64_t{1} << 20;
    std::vector<std::byte> piece;
    uint32_t crc = 0;
    for (int64_t at = 0; at < entry.bytes; at += kPiece) {
      piece.resize(static_cast<size_t>(std::min(kPiece, entry.bytes - at)));
      file_.read(entry.begin + at, piece);
      crc = crc32(piece, crc);
    }
    if (crc != entry.crc) {
      fail(entry.begin, str("the bytes of ", in_quotes(entry.name),
                            " have another CRC-32 than the ", "zip file says"));
    }
  }
  intact.store(true, std::memory_order_relaxed);
}

void ZipArchive::read(const ZipEntry& entry, int64_t offset, std::span<std::byte> out) const {
  const auto count = static_cast<int64_t>(out.size());
  require(offset >= 0 && offset <= entry.bytes && count <= entry.bytes - offset, "zip: bytes [",
          offset, ", ", offset + count, ") of ", entry.name, ", which has ", entry.bytes);
  require_intact(entry);
  file_.read(entry.begin + offset, out);
}

}  // namespace zinc::files::torch
