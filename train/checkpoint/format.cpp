#include "train/checkpoint/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "core/crc32c.h"
#include "core/error.h"
#include "files/json/parser.h"
#include "files/json/writer.h"

namespace zinc::train {
namespace {

constexpr std::string_view kFormat = "zinc checkpoint";
constexpr std::string_view kCure = "; take an older checkpoint, `zinc checkpoint list` names them";

// {"crc32c":"89abcdef", followed by the rest, of which it is the checksum.
constexpr std::string_view kSealBegin = "{\"crc32c\":\"";
constexpr std::string_view kSealEnd = "\",";
constexpr size_t kSealBytes = kSealBegin.size() + 8 + kSealEnd.size();

std::string hex(uint32_t crc) { return fmt::format("{:08x}", crc); }

uint32_t crc_of(std::string_view text) { return crc32c(std::as_bytes(std::span(text))); }

std::optional<uint32_t> parse_hex(std::string_view text) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (text.size() != 8 || error != std::errc() || end != text.data() + text.size() ||
      hex(value) != text) {
    return std::nullopt;
  }
  return value;
}

uint32_t read_crc(const files::json::Value& value) {
  const std::optional<uint32_t> crc = parse_hex(value.as_string());
  if (!crc) value.fail("expected eight hexadecimal digits");
  return *crc;
}

// Reads the plain name of a file in the folder itself.
std::string read_file_name(const files::json::Value& value) {
  const std::string& name = value.as_string();
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  if (name.empty() || name.size() > 255 || name.front() == '.' ||
      !std::all_of(name.begin(), name.end(), is_plain)) {
    value.fail("expected the plain name of a file in the folder");
  }
  return name;
}

const std::string& read_name(const files::json::Value& value) {
  const std::string& name = value.as_string();
  if (name.size() > kMaxStoredNameBytes) {
    value.fail(fmt::format("a name of {} bytes: at most {}", name.size(), kMaxStoredNameBytes));
  }
  return name;
}

int64_t read_count(const files::json::Value& value) {
  return value.as_int64(0, std::numeric_limits<int64_t>::max());
}

Shape read_shape(const files::json::Value& value) {
  const files::json::Array& dims = value.as_array();
  if (dims.size() > kMaxRank) value.fail("too many dimensions");
  Shape shape;
  int64_t numel = 1;
  for (const files::json::Value& dim : dims) {
    const int64_t size = read_count(dim);
    if (size > 0 && numel > std::numeric_limits<int64_t>::max() / 16 / size) {
      value.fail("more elements than a checkpoint can have");
    }
    numel *= size;
    shape.push_back(size);
  }
  return shape;
}

// Most tensor ranks of a mesh, and most sections of a packed weight.
constexpr int64_t kMostSlices = 1024;
constexpr size_t kMostSections = 64;

TensorSlice read_slice_of(const files::json::Value& value, const Shape& shape) {
  const int64_t dim = value.at("dim").as_int64(0, kMaxRank);
  if (dim >= shape.rank()) value.fail("the parameter has no such dimension");
  const int64_t count = value.at("count").as_int64(1, kMostSlices);
  const int64_t index = value.at("index").as_int64(0, count - 1);
  const files::json::Array& given = value.at("sections").as_array();
  if (given.size() > kMostSections) value.fail("more sections than a slice can have");
  std::vector<int64_t> sections;
  int64_t left = shape[static_cast<int>(dim)];
  for (const files::json::Value& section : given) {
    sections.push_back(section.as_int64(0, left));
    left -= sections.back();
  }
  if (left != 0) value.fail("the sections do not add up to the dimension");
  return TensorSlice::of(shape, static_cast<int>(dim), sections, index, count);
}

StoredPart read_part(const files::json::Value& value) {
  StoredPart part{.name = read_name(value.at("name")),
                  .kind = read_name(value.at("kind")),
                  .shape = read_shape(value.at("shape")),
                  .begin = read_count(value.at("begin")),
                  .count = read_count(value.at("count")),
                  .blocks = {}};
  if (const files::json::Value* slice = value.find("slice")) {
    part.slice = read_slice_of(*slice, part.shape);
  }
  const int64_t numel = part.slice ? part.slice->shape().numel() : part.shape.numel();
  if (part.count == 0 || part.begin > numel || part.count > numel - part.begin) {
    value.fail(fmt::format("elements {} to {} are not part of a parameter of {}", part.begin,
                           static_cast<double>(part.begin) + static_cast<double>(part.count),
                           numel));
  }
  const files::json::Array& blocks = value.at("crc32c").as_array();
  if (static_cast<int64_t>(blocks.size()) != (part.count + kBlockNumel - 1) / kBlockNumel) {
    value.fail("as many checksums are needed as there are blocks");
  }
  for (const files::json::Value& block : blocks) part.blocks.push_back(read_crc(block));
  return part;
}

void write_shape(files::json::Writer& json, const Shape& shape) {
  json.key("shape").begin_array();
  for (int i = 0; i < shape.rank(); ++i) json.value(shape[i]);
  json.end_array();
}

FrozenWeights read_frozen(const files::json::Value& value) {
  FrozenWeights frozen{.folder = value.at("folder").as_string(), .parameters = {}};
  if (!frozen.folder.starts_with('/')) value.at("folder").fail("expected an absolute path");
  for (const files::json::Value& parameter : value.at("parameters").as_array()) {
    frozen.parameters.push_back({.name = read_name(parameter.at("name")),
                                 .shape = read_shape(parameter.at("shape")),
                                 .dtype = DType::f32,
                                 .crc = read_crc(parameter.at("crc32c"))});
    const std::optional<DType> dtype = parse_dtype(parameter.at("dtype").as_string());
    if (!dtype || !is_float(*dtype)) parameter.at("dtype").fail("expected a dtype of floats");
    frozen.parameters.back().dtype = *dtype;
    if (frozen.parameters.size() > 1 &&
        !(frozen.parameters.end()[-2].name < frozen.parameters.back().name)) {
      parameter.fail("parameters come in the order of their names, each once");
    }
  }
  return frozen;
}

void require_format(const files::json::Value& root) {
  const files::json::Value* format = root.find("format");
  if (format == nullptr || !format->is_string(kFormat)) root.fail("this is no checkpoint of zinc");
  const int64_t version = root.at("version").as_int64();
  if (version > kCheckpointVersion) {
    root.at("version").fail(fmt::format(
        "written by a newer zinc: its format is {}, this one reads up to {}; take that zinc",
        version, kCheckpointVersion));
  }
  if (version < 1) root.at("version").fail("there is no such version of the format");
}

void write_state(files::json::Writer& json, const zero::TrainingState& state) {
  json.key("engine").begin_object();
  json.member("steps", state.steps)
      .member("applied", state.applied)
      .member("consecutive_skips", state.consecutive_skips);
  if (state.reset_at > 0) json.member("reset_at", state.reset_at);
  json.member("optimizer", state.optimizer);
  json.key("kinds").begin_array();
  for (const std::string& kind : state.kinds) json.value(kind);
  json.end_array();
  json.key("loss_scale").begin_object();
  json.member("dynamic", state.is_loss_scale_dynamic)
      .member("scale", state.loss_scale.scale)
      .member("steps", state.loss_scale.steps)
      .member("last_overflow", state.loss_scale.last_overflow)
      .member("hysteresis", state.loss_scale.hysteresis);
  json.end_object();
  json.key("schedule").begin_object();
  json.member("updates", state.schedule.updates);
  json.key("fixed_lr");
  if (state.schedule.fixed_lr) {
    json.value(*state.schedule.fixed_lr);
  } else {
    json.value(nullptr);
  }
  json.end_object();
  if (state.apart) json.member("apart", true);
  if (!state.carried.empty()) {
    json.key("carried").begin_array();
    for (const double value : state.carried) json.value(value);
    json.end_array();
  }
  json.end_object();
}

zero::TrainingState read_state(const files::json::Value& value) {
  zero::TrainingState state{.steps = read_count(value.at("steps")),
                            .applied = read_count(value.at("applied")),
                            .consecutive_skips = read_count(value.at("consecutive_skips")),
                            .loss_scale = {},
                            .is_loss_scale_dynamic = false,
                            .schedule = {},
                            .apart = false,
                            .carried = {},
                            .optimizer = value.at("optimizer").as_string(),
                            .kinds = {}};
  for (const files::json::Value& kind : value.at("kinds").as_array()) {
    state.kinds.push_back(read_name(kind));
  }
  if (const files::json::Value* reset = value.find("reset_at")) state.reset_at = read_count(*reset);
  if (state.applied > state.steps || state.reset_at > state.applied ||
      state.consecutive_skips > state.steps) {
    value.fail("more steps were applied or skipped than there were");
  }
  const files::json::Value& scale = value.at("loss_scale");
  state.is_loss_scale_dynamic = scale.at("dynamic").as_bool();
  state.loss_scale.scale = scale.at("scale").as_double();
  state.loss_scale.steps = read_count(scale.at("steps"));
  state.loss_scale.last_overflow = scale.at("last_overflow").as_int64(-1);
  state.loss_scale.hysteresis =
      static_cast<int32_t>(scale.at("hysteresis").as_int64(1, std::numeric_limits<int32_t>::max()));
  const files::json::Value& schedule = value.at("schedule");
  state.schedule.updates = read_count(schedule.at("updates"));
  if (const files::json::Value& lr = schedule.at("fixed_lr"); !lr.is_null()) {
    state.schedule.fixed_lr = lr.as_double();
  }
  if (const files::json::Value* apart = value.find("apart")) state.apart = apart->as_bool();
  if (const files::json::Value* carried = value.find("carried")) {
    for (const files::json::Value& number : carried->as_array()) {
      state.carried.push_back(number.as_double());
    }
  }
  return state;
}

}  // namespace

std::string state_file_name(int rank, int world) {
  return fmt::format("state-{:05}-of-{:05}", rank, world);
}

std::string state_file_of(const std::string& index) {
  return str(index.substr(0, index.rfind('.')), ".safetensors");
}

std::string to_json(const StateIndex& index) {
  files::json::Writer json(1);
  json.begin_object();
  json.member("format", kFormat).member("version", kCheckpointVersion);
  json.member("file", index.file).member("bytes", index.bytes);
  json.member("header_bytes", index.header_bytes).member("header_crc32c", hex(index.header_crc));
  json.member("dtype", zinc::name_of(index.dtype)).member("block", kBlockNumel);
  json.key("parts").begin_array();
  for (const StoredPart& part : index.parts) {
    json.begin_object();
    json.member("name", part.name).member("kind", part.kind);
    write_shape(json, part.shape);
    if (part.slice) {
      json.key("slice").begin_object();
      json.member("dim", part.slice->dim);
      json.key("sections").begin_array();
      for (const int64_t section : part.slice->sections) json.value(section);
      json.end_array();
      json.member("index", part.slice->index).member("count", part.slice->count);
      json.end_object();
    }
    json.member("begin", part.begin).member("count", part.count);
    json.key("crc32c").begin_array();
    for (const uint32_t block : part.blocks) json.value(hex(block));
    json.end_array();
    json.end_object();
  }
  json.end_array();
  json.end_object();
  return json.take();
}

std::string to_json(const Manifest& manifest) {
  files::json::Writer json(1);
  json.begin_object();
  json.member("format", kFormat).member("version", kCheckpointVersion);
  json.member("world", manifest.world).member("seed", manifest.seed);
  write_state(json, manifest.state);
  json.member("client_state", files::json::Value(manifest.client_state));
  json.key("files").begin_array();
  for (const StoredFile& file : manifest.files) {
    json.begin_object();
    json.member("name", file.name).member("bytes", file.bytes).member("crc32c", hex(file.crc));
    json.end_object();
  }
  json.end_array();
  json.key("indices").begin_array();
  for (const std::string& name : manifest.indices) json.value(name);
  json.end_array();
  if (manifest.frozen) {
    json.key("frozen").begin_object();
    json.member("folder", manifest.frozen->folder);
    json.key("parameters").begin_array();
    for (const FrozenWeights::Parameter& parameter : manifest.frozen->parameters) {
      json.begin_object();
      json.member("name", parameter.name);
      write_shape(json, parameter.shape);
      json.member("dtype", zinc::name_of(parameter.dtype)).member("crc32c", hex(parameter.crc));
      json.end_object();
    }
    json.end_array();
    json.end_object();
  }
  json.end_object();
  const std::string body = json.take().substr(1);  // without its first brace
  return str(kSealBegin, hex(crc_of(body)), kSealEnd, body);
}

StateIndex parse_state_index(std::string text, const std::string& path) {
  const files::json::Value root = files::json::parse(
      std::move(text), path, {.max_depth = kMaxFormatDepth, .max_bytes = kMaxIndexBytes});
  require_format(root);
  if (root.at("block").as_int64() != kBlockNumel)
    root.at("block").fail("not the block of version 1");
  StateIndex index{.file = read_file_name(root.at("file")),
                   .bytes = read_count(root.at("bytes")),
                   .header_bytes = read_count(root.at("header_bytes")),
                   .header_crc = read_crc(root.at("header_crc32c")),
                   .dtype = DType::f32,
                   .parts = {}};
  const std::optional<DType> dtype = parse_dtype(root.at("dtype").as_string());
  if (dtype != DType::f32 && dtype != DType::f64) root.at("dtype").fail("expected f32 or f64");
  index.dtype = *dtype;
  for (const files::json::Value& part : root.at("parts").as_array()) {
    index.parts.push_back(read_part(part));
  }
  return index;
}

Manifest parse_manifest(std::string text, const std::string& path) {
  const std::optional<uint32_t> seal =
      text.size() > kSealBytes && text.starts_with(kSealBegin) &&
              std::string_view(text).substr(kSealBegin.size() + 8).starts_with(kSealEnd)
          ? parse_hex(std::string_view(text).substr(kSealBegin.size(), 8))
          : std::nullopt;
  if (!seal) throw DataError(str(path, ": this is no manifest of a checkpoint", kCure));
  if (static_cast<int64_t>(text.size()) > kMaxManifestBytes) {
    throw DataError(
        str(path, ": a manifest of ", text.size(), " bytes: at most ", kMaxManifestBytes, kCure));
  }
  if (crc_of(std::string_view(text).substr(kSealBytes)) != *seal) {
    throw DataError(str(path, ": damaged: its checksum is not that of its text", kCure));
  }
  const files::json::Value root = files::json::parse(std::move(text), path,
                                                     {.max_depth = kMaxFormatDepth,
                                                      .max_bytes = kMaxManifestBytes,
                                                      .max_values = kMaxManifestValues});
  require_format(root);
  Manifest manifest{.world = root.at("world").as_int64(1, 1 << 24),
                    .seed = root.at("seed").as_uint64(),
                    .state = read_state(root.at("engine")),
                    .client_state = root.at("client_state").as_object(),
                    .files = {},
                    .indices = {}};
  for (const files::json::Value& file : root.at("files").as_array()) {
    manifest.files.push_back({.name = read_file_name(file.at("name")),
                              .bytes = read_count(file.at("bytes")),
                              .crc = read_crc(file.at("crc32c"))});
  }
  std::set<std::string_view> listed;
  for (const StoredFile& file : manifest.files) {
    if (listed.insert(file.name).second) continue;
    root.at("files").fail(str(file.name, " stands in the list twice"));
  }
  for (const files::json::Value& value : root.at("indices").as_array()) {
    manifest.indices.push_back(read_file_name(value));
    if (!listed.contains(manifest.indices.back())) {
      value.fail("this file is not in the list of files");
    }
  }
  if (static_cast<int64_t>(manifest.indices.size()) != manifest.world) {
    root.at("indices").fail("there is one for each rank that wrote the checkpoint");
  }
  if (const files::json::Value* frozen = root.find("frozen"))
    manifest.frozen = read_frozen(*frozen);
  return manifest;
}

}  // namespace zinc::train
