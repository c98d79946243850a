// files/torch/zip_archive.h: the entries of a zip file that are stored as they are, read by range.
//
// Source of the format: PKWARE APPNOTE.TXT 6.3, sections 4.3 (records) and 4.5.3 (zip64).
//
// The reader trusts nothing: every record must lie within the file, every entry within the bytes
// before the central directory, and no two entries may overlap. Compressed and encrypted entries,
// archives of several files, and names that occur twice are refused. An entry's CRC-32 is compared
// when the entry is first read.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files/input_file.h"

namespace zinc::files::torch {

struct ZipEntry {
  std::string name;
  int64_t begin = 0;  // of the entry's data, bytes from the start of the file
  int64_t bytes = 0;
  uint32_t crc = 0;  // 0: none (torch.serialization.set_crc32_options(False))
};

// True where the file begins as a zip file with entries does. IoError or DataError as InputFile.
bool is_zip_file(const InputFile& file);

// Safe to share between threads.
class ZipArchive {
 public:
  // A directory of more bytes is a DataError: 64 MiB hold the names of half a million tensors.
  static constexpr int64_t kMaxDirectoryBytes = int64_t{64} << 20;

  // Reads the directory alone. DataError with the byte and the error there.
  explicit ZipArchive(InputFile file);

  const std::string& path() const { return file_.path(); }
  const std::vector<ZipEntry>& entries() const { return entries_; }  // sorted by name
  const ZipEntry* find(std::string_view name) const;                 // null when absent
  // Fills `out` with the entry's bytes from `offset` on; they must lie within it. The first read of
  // an entry reads all of it, for its CRC-32; a DataError where the checksum differs.
  void read(const ZipEntry& entry, int64_t offset, std::span<std::byte> out) const;

 private:
  struct Directory {
    int64_t begin, bytes, entries;
  };
  Directory find_directory() const;
  Directory read_zip64_directory(int64_t locator) const;
  int64_t data_begin(int64_t header, const std::string& name, int64_t directory) const;
  void read_entries(const Directory& directory);
  void check_overlap() const;
  void require_intact(const ZipEntry& entry) const;
  std::vector<std::byte> bytes_at(int64_t offset, int64_t count) const;
  [[noreturn]] void fail(int64_t offset, std::string_view what) const;

  InputFile file_;
  std::vector<ZipEntry> entries_;
  std::unique_ptr<std::atomic<bool>[]> intact_;  // of each entry: its checksum was compared
};

}  // namespace zinc::files::torch
