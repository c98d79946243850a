#include "files/safetensors/format.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "files/json/parser.h"
#include "files/json/writer.h"

namespace zinc::files {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors is little-endian");

constexpr size_t kMaxNameBytes = 512;
constexpr std::string_view kMetadataKey = "__metadata__";

struct FileType {
  std::string_view name;
  int bits;
  std::optional<DType> dtype;
};

// Ordered by alignment, as the reference implementation does: the writer's sort key.
constexpr std::array<FileType, 22> kFileTypes = {{
    {"BOOL", 8, std::nullopt},
    {"F4", 4, std::nullopt},
    {"F6_E2M3", 6, std::nullopt},
    {"F6_E3M2", 6, std::nullopt},
    {"U8", 8, DType::u8},
    {"I8", 8, std::nullopt},
    {"F8_E5M2", 8, std::nullopt},
    {"F8_E4M3", 8, std::nullopt},
    {"F8_E8M0", 8, std::nullopt},
    {"F8_E4M3FNUZ", 8, std::nullopt},
    {"F8_E5M2FNUZ", 8, std::nullopt},
    {"I16", 16, std::nullopt},
    {"U16", 16, std::nullopt},
    {"F16", 16, DType::f16},
    {"BF16", 16, DType::bf16},
    {"I32", 32, DType::i32},
    {"U32", 32, std::nullopt},
    {"F32", 32, DType::f32},
    {"C64", 64, std::nullopt},
    {"F64", 64, DType::f64},
    {"I64", 64, DType::i64},
    {"U64", 64, std::nullopt},
}};

size_t type_index(DType dtype) {
  const auto found = std::find_if(kFileTypes.begin(), kFileTypes.end(),
                                  [&](const FileType& type) { return type.dtype == dtype; });
  return static_cast<size_t>(found - kFileTypes.begin());
}

std::string json_quoted(std::string_view text) {
  std::string out;
  json::append_quoted(out, text);
  return out;
}

// Reports an error of one tensor of one file.
struct Complaint {
  const std::string& file;
  const std::string& tensor;

  template <class... Parts>
  [[noreturn]] void operator()(const Parts&... parts) const {
    throw DataError(str(file, ": tensor ", json_quoted(tensor), ": ", parts...));
  }
};

void check_name(const std::string& name, const Complaint& fail) {
  if (name.empty()) fail("has no name");
  if (name.size() > kMaxNameBytes) {
    throw DataError(str(fail.file, ": a tensor's name has ", name.size(), " bytes; at most ",
                        kMaxNameBytes, " are allowed"));
  }
  const bool control = std::any_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
  if (control) fail("its name holds a control character");
}

Shape read_shape(const json::Value& value, const Complaint& fail) {
  const json::Array& extents = value.as_array();
  if (extents.size() > kMaxRank) {
    fail("has ", extents.size(), " dimensions; at most ", kMaxRank, " are supported");
  }
  Shape shape;
  for (const json::Value& extent : extents) shape.push_back(extent.as_int64(0));
  return shape;
}

// Bytes that the shape needs; fails where that is no whole or no representable number.
int64_t needed_bytes(const Shape& shape, const FileType& type, const Complaint& fail) {
  uint64_t bits = static_cast<uint64_t>(type.bits);
  for (const int64_t extent : shape) {
    if (extent == 0) return 0;
  }
  for (const int64_t extent : shape) {
    if (__builtin_mul_overflow(bits, static_cast<uint64_t>(extent), &bits)) {
      fail("shape ", shape, " overflows");
    }
  }
  if (bits % 8 != 0) fail("shape ", shape, " of ", type.name, " does not fill whole bytes");
  const uint64_t bytes = bits / 8;
  if (bytes > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    fail("shape ", shape, " overflows");
  }
  return static_cast<int64_t>(bytes);
}

void check_keys(const json::Object& fields, const Complaint& fail) {
  for (const json::Member& member : fields) {
    if (member.key != "dtype" && member.key != "shape" && member.key != "data_offsets") {
      fail("unknown key ", json_quoted(member.key));
    }
  }
}

TensorEntry read_entry(const std::string& name, const json::Value& value, int64_t data_begin,
                       int64_t data_bytes, const std::string& file) {
  const Complaint fail{file, name};
  check_name(name, fail);
  check_keys(value.as_object(), fail);
  const std::string& spelling = value.at("dtype").as_string();
  const auto type =
      std::find_if(kFileTypes.begin(), kFileTypes.end(),
                   [&](const FileType& candidate) { return candidate.name == spelling; });
  if (type == kFileTypes.end()) fail("unknown dtype ", json_quoted(spelling));

  TensorEntry entry;
  entry.name = name;
  entry.type = type->name;
  entry.dtype = type->dtype;
  entry.shape = read_shape(value.at("shape"), fail);
  const json::Value& offsets = value.at("data_offsets");
  if (offsets.as_array().size() != 2) fail("data_offsets must be [begin, end]");
  const int64_t begin = offsets.at(size_t{0}).as_int64(0), end = offsets.at(size_t{1}).as_int64(0);
  if (begin > end || end > data_bytes) {
    fail("data_offsets [", begin, ", ", end, "] do not lie within the ", data_bytes,
         " bytes of data");
  }
  const int64_t needed = needed_bytes(entry.shape, *type, fail);
  if (needed != end - begin) {
    fail("shape ", entry.shape, " of ", type->name, " needs ", needed, " bytes, data_offsets [",
         begin, ", ", end, "] give ", end - begin);
  }
  entry.begin = data_begin + begin;
  entry.end = data_begin + end;
  return entry;
}

void check_coverage(const std::vector<TensorEntry>& tensors, int64_t data_begin, int64_t file_bytes,
                    const std::string& file) {
  int64_t expected = data_begin;
  for (const TensorEntry& entry : tensors) {
    if (entry.begin != expected) {
      Complaint{file, entry.name}("its data begins at byte ", entry.begin - data_begin,
                                  " of the data, ",
                                  entry.begin < expected ? "inside" : "with a hole behind",
                                  " the data before it, which ends at ", expected - data_begin);
    }
    expected = entry.end;
  }
  if (expected != file_bytes) {
    throw DataError(
        str(file, ": the tensors end at byte ", expected, ", the file at ", file_bytes));
  }
}

SafetensorsMetadata read_metadata(const json::Value& value) {
  SafetensorsMetadata metadata;
  for (const json::Member& member : value.as_object()) {
    metadata.emplace(member.key, member.value.as_string());
  }
  return metadata;
}

std::string header_text(const SafetensorsLayout& layout, const SafetensorsMetadata& metadata) {
  json::Writer out;
  out.begin_object();
  if (!metadata.empty()) {
    out.key(kMetadataKey).begin_object();
    for (const auto& [key, value] : metadata) out.member(key, value);
    out.end_object();
  }
  for (const TensorEntry& entry : layout.tensors) {
    out.key(entry.name).begin_object();
    out.member("dtype", entry.type).key("shape").begin_array();
    for (const int64_t extent : entry.shape) out.value(extent);
    out.end_array().key("data_offsets").begin_array();
    out.value(entry.begin).value(entry.end).end_array().end_object();
  }
  out.end_object();
  std::string text = out.take();
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

}  // namespace

const TensorEntry* SafetensorsHeader::find(std::string_view name) const {
  const auto found =
      std::lower_bound(by_name_.begin(), by_name_.end(), name,
                       [&](uint32_t i, std::string_view key) { return tensors[i].name < key; });
  if (found == by_name_.end() || tensors[*found].name != name) return nullptr;
  return &tensors[*found];
}

int64_t safetensors_header_length(std::span<const std::byte> first_bytes, int64_t file_bytes,
                                  const std::string& file) {
  if (file_bytes < 8 || first_bytes.size() < 8) {
    throw DataError(str(file, ": not a safetensors file: it has ", file_bytes,
                        " bytes, fewer than the 8 of the header's length"));
  }
  uint64_t length;
  std::memcpy(&length, first_bytes.data(), sizeof length);
  if (length > static_cast<uint64_t>(kMaxSafetensorsHeader)) {
    throw DataError(str(file, ": not a safetensors file: the first 8 bytes announce a header of ",
                        length, " bytes; at most ", kMaxSafetensorsHeader, " are allowed"));
  }
  if (length > static_cast<uint64_t>(file_bytes - 8)) {
    throw DataError(str(file, ": the header is announced with ", length, " bytes, but only ",
                        file_bytes - 8, " follow: the file is cut short or no safetensors file"));
  }
  return static_cast<int64_t>(length);
}

SafetensorsHeader parse_safetensors_header(std::string text, int64_t file_bytes,
                                           const std::string& file) {
  if (text.empty() || text.front() != '{') {
    throw DataError(str(file, ": not a safetensors file: the header does not begin with '{'"));
  }
  SafetensorsHeader header;
  header.data_begin = 8 + static_cast<int64_t>(text.size());
  const int64_t data_bytes = file_bytes - header.data_begin;
  // About 200 000 tensors, in at most 0.5 GiB of parsed values.
  const json::ParseOptions limits{
      .max_depth = 4, .max_bytes = kMaxSafetensorsHeader, .max_values = 2'000'000};
  const json::Value root = json::parse(std::move(text), str(file, " (header)"), limits);
  for (const json::Member& member : root.as_object()) {
    if (member.key == kMetadataKey) {
      header.metadata = read_metadata(member.value);
    } else {
      header.tensors.push_back(
          read_entry(member.key, member.value, header.data_begin, data_bytes, file));
    }
  }
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const TensorEntry& a, const TensorEntry& b) {
              return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
            });
  check_coverage(header.tensors, header.data_begin, file_bytes, file);
  header.by_name_.resize(header.tensors.size());
  std::iota(header.by_name_.begin(), header.by_name_.end(), 0u);
  std::sort(header.by_name_.begin(), header.by_name_.end(), [&](uint32_t a, uint32_t b) {
    return header.tensors[a].name < header.tensors[b].name;
  });
  return header;
}

SafetensorsLayout safetensors_layout(std::span<const TensorSpec> tensors,
                                     const SafetensorsMetadata& metadata) {
  std::vector<const TensorSpec*> order;
  for (const TensorSpec& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const TensorSpec* a, const TensorSpec* b) {
    const size_t left = type_index(a->dtype), right = type_index(b->dtype);
    return left != right ? left > right : a->name < b->name;
  });

  SafetensorsLayout layout;
  int64_t offset = 0;
  for (const TensorSpec* tensor : order) {
    require(!tensor->name.empty() && tensor->name != kMetadataKey &&
                tensor->name.size() <= kMaxNameBytes,
            "safetensors: a tensor cannot be called ", json_quoted(tensor->name));
    TensorEntry entry;
    entry.name = tensor->name;
    entry.type = kFileTypes[type_index(tensor->dtype)].name;
    entry.dtype = tensor->dtype;
    entry.shape = tensor->shape;
    entry.begin = offset;
    entry.end = offset + tensor->shape.numel() * size_of(tensor->dtype);
    offset = entry.end;
    layout.tensors.push_back(std::move(entry));
  }
  std::vector<std::string_view> names;
  for (const TensorEntry& entry : layout.tensors) names.push_back(entry.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  require(twice == names.end(), "safetensors: two tensors are called ",
          json_quoted(twice == names.end() ? "" : *twice));

  const std::string text = header_text(layout, metadata);
  require(static_cast<int64_t>(text.size()) <= kMaxSafetensorsHeader, "safetensors: a header of ",
          text.size(), " bytes; at most ", kMaxSafetensorsHeader, " are allowed");
  const uint64_t length = text.size();
  layout.prefix.assign(reinterpret_cast<const char*>(&length), sizeof length);
  layout.prefix += text;
  const auto data_begin = static_cast<int64_t>(layout.prefix.size());
  for (TensorEntry& entry : layout.tensors) {
    entry.begin += data_begin;
    entry.end += data_begin;
  }
  layout.file_bytes = data_begin + offset;
  return layout;
}

}  // namespace zinc::files
