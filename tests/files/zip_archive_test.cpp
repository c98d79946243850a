#include "files/torch/zip_archive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/files/scratch_folder.h"

namespace zinc::files::torch {
namespace zip_archive_test {

using testing::HasSubstr;

// An entry as a zip file describes it, with the fields that a test may spoil.
struct Entry {
  std::string name;
  std::string data;
  std::string local_name{};  // empty: the name
  uint16_t flags = 0;
  uint16_t method = 0;
  int64_t extra_packed = 0;  // beyond the true sizes
  int64_t extra_bytes = 0;
  int64_t header_shift = 0;
};

struct Layout {
  bool zip64 = false;
  std::string comment{};
  uint16_t disk = 0;
  int64_t extra_entries = 0;
  int64_t directory_shift = 0;
};

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// PKWARE APPNOTE.TXT 4.3, written down a second time.
std::string archive_of(const std::vector<Entry>& entries, const Layout& layout = {}) {
  std::string out, directory;
  for (const Entry& entry : entries) {
    const auto header =
        static_cast<uint64_t>(static_cast<int64_t>(out.size()) + entry.header_shift);
    const auto size = static_cast<int64_t>(entry.data.size());
    const std::string& local = entry.local_name.empty() ? entry.name : entry.local_name;
    put<uint32_t>(out, 0x04034b50);
    out.append(14, '\0');
    put(out, static_cast<uint32_t>(size));
    put(out, static_cast<uint32_t>(size));
    put(out, static_cast<uint16_t>(local.size()));
    put<uint16_t>(out, 3);  // an extra field, as the alignment of torch.save is
    out += local + "pad" + entry.data;

    std::string extra;
    if (layout.zip64) {
      put<uint16_t>(extra, 0x4246);  // another field first
      put<uint16_t>(extra, 1);
      extra += 'x';
      put<uint16_t>(extra, 1);
      put<uint16_t>(extra, 24);
      put(extra, static_cast<uint64_t>(size + entry.extra_bytes));
      put(extra, static_cast<uint64_t>(size + entry.extra_packed));
      put(extra, header);
    }
    const auto narrow = [&](uint64_t value) {
      return layout.zip64 ? 0xffffffffu : static_cast<uint32_t>(value);
    };
    put<uint32_t>(directory, 0x02014b50);
    directory.append(4, '\0');
    put(directory, entry.flags);
    put(directory, entry.method);
    directory.append(8, '\0');
    put(directory, narrow(static_cast<uint64_t>(size + entry.extra_packed)));
    put(directory, narrow(static_cast<uint64_t>(size + entry.extra_bytes)));
    put(directory, static_cast<uint16_t>(entry.name.size()));
    put(directory, static_cast<uint16_t>(extra.size()));
    put<uint16_t>(directory, 2);
    directory.append(8, '\0');
    put(directory, narrow(header));
    directory += entry.name + extra + "no";
  }
  const auto begin =
      static_cast<uint64_t>(static_cast<int64_t>(out.size()) + layout.directory_shift);
  const auto count =
      static_cast<uint64_t>(static_cast<int64_t>(entries.size()) + layout.extra_entries);
  out += directory;
  if (layout.zip64) {
    const uint64_t end = out.size();
    put<uint32_t>(out, 0x06064b50);
    put<uint64_t>(out, 44);
    out.append(4, '\0');
    put<uint32_t>(out, layout.disk);
    put<uint32_t>(out, 0);
    put(out, count);
    put(out, count);
    put<uint64_t>(out, directory.size());
    put(out, begin);
    put<uint32_t>(out, 0x07064b50);
    put<uint32_t>(out, 0);
    put(out, end);
    put<uint32_t>(out, 1);
  }
  put<uint32_t>(out, 0x06054b50);
  put(out, layout.disk);
  put<uint16_t>(out, 0);
  put(out, static_cast<uint16_t>(layout.zip64 ? 0xffff : count));
  put(out, static_cast<uint16_t>(layout.zip64 ? 0xffff : count));
  put(out, layout.zip64 ? 0xffffffffu : static_cast<uint32_t>(directory.size()));
  put(out, layout.zip64 ? 0xffffffffu : static_cast<uint32_t>(begin));
  put(out, static_cast<uint16_t>(layout.comment.size()));
  return out + layout.comment;
}

std::string contents(const ZipArchive& archive, std::string_view name) {
  const ZipEntry* entry = archive.find(name);
  if (entry == nullptr) return "(absent)";
  std::string out(static_cast<size_t>(entry->bytes), '\0');
  archive.read(*entry, 0, std::as_writable_bytes(std::span(out)));
  return out;
}

std::string error_of(const std::string& bytes) {
  const ScratchFolder folder;
  const std::string path = folder.write("a.zip", bytes);
  return message_of<DataError>([&] { ZipArchive(InputFile::open(path)); });
}

TEST(ZipArchive, StoredEntries_AreRead) {
  const ScratchFolder folder;
  for (const bool zip64 : {false, true}) {
    for (const std::string comment : {"", "a comment", "PK\5\6 that looks like an end"}) {
      SCOPED_TRACE(str(zip64, ' ', comment));
      const std::string path =
          folder.write("a.zip", archive_of({{"b", "second"}, {"a/x", "first"}, {"e", ""}},
                                           {.zip64 = zip64, .comment = comment}));
      EXPECT_TRUE(is_zip_file(InputFile::open(path)));
      const ZipArchive archive(InputFile::open(path));
      EXPECT_EQ(contents(archive, "a/x"), "first");
      EXPECT_EQ(contents(archive, "b"), "second");
      EXPECT_EQ(contents(archive, "e"), "");
      EXPECT_EQ(contents(archive, "c"), "(absent)");
      std::string part(3, ' ');
      archive.read(*archive.find("b"), 2, std::as_writable_bytes(std::span(part)));
      EXPECT_EQ(part, "con");
      EXPECT_THROW(archive.read(*archive.find("b"), 4, std::as_writable_bytes(std::span(part))),
                   InvalidArgument);
    }
  }
}

TEST(ZipArchive, RecordsThatLie_AreRefused) {
  for (const bool zip64 : {false, true}) {
    SCOPED_TRACE(zip64);
    const Layout plain{.zip64 = zip64};
    EXPECT_EQ(error_of(archive_of({{"a", "x"}}, plain)), "(no error)");
    EXPECT_THAT(error_of(archive_of({{"a", "x"}, {"a", "y"}}, plain)),
                HasSubstr("there are two entries \"a\""));
    EXPECT_THAT(error_of(archive_of({{.name = "a", .data = "x", .local_name = "b"}}, plain)),
                HasSubstr("has another name in its own header"));
    EXPECT_THAT(error_of(archive_of({{.name = "a", .data = "x", .local_name = "ab"}}, plain)),
                HasSubstr("has another name in its own header"));
    EXPECT_THAT(error_of(archive_of({{.name = "a", .data = "x", .header_shift = 1}}, plain)),
                HasSubstr("an entry's header is not where it should be"));
    EXPECT_THAT(error_of(archive_of({{.name = "a", .data = "x", .header_shift = 1 << 20}}, plain)),
                HasSubstr("reaches beyond the end of the file"));
    EXPECT_THAT(error_of(archive_of(
                    {{.name = "a", .data = "x", .extra_packed = 60, .extra_bytes = 60}}, plain)),
                HasSubstr("reach into the directory"));
    EXPECT_THAT(
        error_of(archive_of({{.name = "a", .data = "x", .extra_packed = 40, .extra_bytes = 40},
                             {"b", "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy"}},
                            plain)),
        HasSubstr("the data of \"b\" and of \"a\" overlap"));
    for (const Entry& entry :
         {Entry{.name = "a", .data = "x", .flags = 1}, Entry{.name = "a", .data = "x", .method = 8},
          Entry{.name = "a", .data = "x", .extra_bytes = 1}}) {
      EXPECT_THAT(error_of(archive_of({entry}, plain)), HasSubstr("is compressed or encrypted"));
    }
    EXPECT_THAT(error_of(archive_of({{"a", "x"}}, {.zip64 = zip64, .disk = 1})),
                HasSubstr("spread over several files"));
    EXPECT_THAT(error_of(archive_of({{"a", "x"}}, {.zip64 = zip64, .extra_entries = 1})),
                HasSubstr("the directory ends within an entry"));
    EXPECT_THAT(error_of(archive_of({{"a", "x"}}, {.zip64 = zip64, .directory_shift = -1})),
                HasSubstr("does not begin here"));
    EXPECT_THAT(error_of(archive_of({{"a", "x"}}, {.zip64 = zip64, .directory_shift = 1 << 20})),
                HasSubstr("reaches beyond the end of the file"));
  }
  EXPECT_THAT(error_of("PK\3\4 and nothing else"), HasSubstr("no end record"));
}

TEST(ZipArchive, Zip64SizesThatAreMissing_AreRefused) {
  std::string bytes = archive_of({{"a", "x"}}, {.zip64 = true});
  const size_t field = bytes.find(std::string("\1\0\x18\0", 4));
  ASSERT_NE(field, std::string::npos);
  std::string renamed = bytes;
  renamed[field] = 2;
  EXPECT_THAT(error_of(renamed), HasSubstr("lacks its zip64 sizes"));
  std::string shorter = bytes;
  shorter[field + 2] = 16;
  EXPECT_THAT(error_of(shorter), HasSubstr("lacks its zip64 sizes"));
  std::string longer = bytes;
  longer[field + 2] = 99;
  EXPECT_THAT(error_of(longer), HasSubstr("lacks its zip64 sizes"));
  std::string elsewhere = bytes;
  elsewhere[elsewhere.rfind("PK\6\7") + 8] ^= 1;
  EXPECT_THAT(error_of(elsewhere), HasSubstr("zip64 end record is not where its locator says"));
}

}  // namespace zip_archive_test
}  // namespace zinc::files::torch
