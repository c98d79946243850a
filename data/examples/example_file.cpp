#include "data/examples/example_file.h"

#include <cstring>
#include <filesystem>
#include <limits>
#include <utility>
#include <vector>

#include "core/crc32c.h"
#include "core/error.h"
#include "core/philox.h"
#include "files/atomic_file.h"
#include "files/json/parser.h"
#include "files/json/writer.h"
#include "nn/batch.h"
#include "text/tokenizer_folder.h"

namespace zinc::data {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kTrainedBit = uint32_t{1} << 31;
constexpr size_t kBufferBytes = size_t{1} << 20;

// Values that are appended to a file.
class Appender {
 public:
  explicit Appender(std::string path) : file_(std::move(path)) {}
  template <class T>
  void add(T value) {
    const size_t at = buffer_.size();
    buffer_.resize(at + sizeof value);
    std::memcpy(buffer_.data() + at, &value, sizeof value);
    if (buffer_.size() >= kBufferBytes) flush();
  }
  void commit() {
    flush();
    file_.commit();
  }

 private:
  void flush() {
    file_.write(offset_, std::as_bytes(std::span(buffer_)));
    offset_ += static_cast<int64_t>(buffer_.size());
    buffer_.clear();
  }
  files::AtomicFile file_;
  std::vector<char> buffer_;
  int64_t offset_ = 0;
};

std::string tokenizer_check(const text::Tokenizer* tokenizer, const std::string& folder) {
  if (tokenizer == nullptr) return "none";
  std::string check = str(tokenizer->name(), ' ', tokenizer->vocabulary_size());
  if (folder.empty()) return check;
  for (const std::string_view name : text::tokenizer_file_names()) {
    const std::string path = str(folder, '/', name);
    if (!files::file_exists(path)) continue;
    const files::MappedFile file = files::MappedFile::open(path);
    check += str(' ', name, ' ', file.size(), ' ', crc32c(file.bytes()));
  }
  return check;
}

// All that the examples depend on, as JSON.
std::string recipe_of(const std::string& path, const text::Tokenizer* tokenizer,
                      const ExampleSettings& settings, const ExampleFileOptions& options) {
  const int64_t size = files::InputFile::open(path).size();
  files::json::Writer writer(2);
  writer.begin_object().member("format", 2).member("file", fs::canonical(path).string());
  writer.member("bytes", size);
  writer.member("time", static_cast<int64_t>(fs::last_write_time(path).time_since_epoch().count()));
  writer.member("tokenizer", tokenizer_check(tokenizer, options.tokenizer_folder));
  writer.member("fields", settings.fields.describe());
  writer.member("found_by_looking", settings.fields.by_looking)
      .member("chat", name_of(settings.format));
  const PromptPattern& pattern = settings.pattern;
  writer.key("pattern").begin_array().value(pattern.before).value(pattern.between);
  writer.value(pattern.behind).end_array().member("mask", name_of(settings.mask));
  writer.member("max_tokens", settings.max_tokens).member("end_token", settings.end_token);
  writer.member("vocabulary", settings.vocabulary_size);
  writer.member("labels", name_of(settings.labels)).member("num_classes", settings.num_classes);
  writer.key("classes").begin_array();
  for (const std::string& name : settings.classes) writer.value(name);
  writer.end_array();
  writer.member("skip_bad", options.make.skip_bad).member("max_records", options.make.max_records);
  return writer.end_object().take();
}

void write_places(files::json::Writer& writer, std::string_view name,
                  const CountedPlaces& counted) {
  writer.key(name).begin_object().member("count", counted.count).key("places").begin_array();
  for (const std::string& place : counted.places) writer.value(place);
  writer.end_array().end_object();
}

CountedPlaces read_places(const files::json::Value& value) {
  CountedPlaces counted{.count = value.at("count").as_int64(0)};
  for (const files::json::Value& place : value.at("places").as_array()) {
    counted.places.push_back(place.as_string());
  }
  return counted;
}

std::string made_text(const std::string& recipe, const ExampleCounts& counts) {
  files::json::Writer writer(2);
  writer.begin_object().member("recipe", recipe).member("records", counts.records);
  writer.member("examples", counts.examples).member("tokens", counts.tokens);
  writer.member("targets", counts.targets).member("longest", counts.longest);
  writer.member("cut_tokens", counts.cut_tokens);
  write_places(writer, "truncated", counts.truncated);
  write_places(writer, "all_masked", counts.all_masked);
  write_places(writer, "damaged", counts.damaged);
  writer.key("unused").begin_object();
  for (const auto& [name, records] : counts.unused) writer.member(name, records);
  writer.end_object();
  return writer.end_object().take() + "\n";
}

files::json::Value read_made(const std::string& folder) {
  return files::json::parse_file(folder + "/made.json");
}

ExampleCounts counts_in(const files::json::Value& made) {
  std::map<std::string, int64_t> unused;
  for (const files::json::Member& member : made.at("unused").as_object()) {
    unused[member.key] = member.value.as_int64(0);
  }
  return {.records = made.at("records").as_int64(0),
          .examples = made.at("examples").as_int64(0),
          .tokens = made.at("tokens").as_int64(0),
          .targets = made.at("targets").as_int64(0),
          .longest = made.at("longest").as_int64(0),
          .truncated = read_places(made.at("truncated")),
          .cut_tokens = made.at("cut_tokens").as_int64(0),
          .all_masked = read_places(made.at("all_masked")),
          .damaged = read_places(made.at("damaged")),
          .unused = std::move(unused)};
}

std::string folder_for(const std::string& path, const std::string& recipe,
                       const std::string& cache) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string name = files::file_name(path) + "-";
  const uint64_t hash = hash_text(recipe);
  for (int shift = 60; shift >= 0; shift -= 4) name += kDigits[(hash >> shift) & 15];
  return str(cache, '/', name, ".examples");
}

}  // namespace

ExampleFile ExampleFile::open(const std::string& folder, const std::string& path) {
  const ExampleCounts counts = counts_in(read_made(folder));
  ExampleFile file(path, files::MappedFile::open(folder + "/tokens.bin"),
                   files::MappedFile::open(folder + "/index.bin"), counts);
  if (file.tokens_.size() != 4 * counts.tokens || file.index_.size() != 8 * (counts.examples + 1) ||
      counts.examples < 1) {
    throw DataError(str(folder,
                        ": is damaged: its files are not as long as made.json says; "
                        "remove the folder, and it is made again"));
  }
  return file;
}

std::pair<int64_t, int64_t> ExampleFile::range(int64_t index) const {
  require(0 <= index && index < num_examples(), "examples: ", index, " of ", num_examples());
  uint64_t ends[2];
  std::memcpy(ends, index_.bytes().data() + 8 * index, sizeof ends);
  if (ends[0] >= ends[1] || ends[1] > static_cast<uint64_t>(counts_.tokens)) {
    throw DataError(str(index_.path(), ": entry ", index,
                        " is damaged; remove the folder, and it is made again"));
  }
  return {static_cast<int64_t>(ends[0]), static_cast<int64_t>(ends[1])};
}

int64_t ExampleFile::length(int64_t index) const {
  const auto [begin, end] = range(index);
  return end - begin;
}

template <class Take>
void ExampleFile::for_each_token(int64_t index, const Take& take) const {
  tokens_.require_unchanged();
  const auto [begin, end] = range(index);
  for (int64_t i = begin; i < end; ++i) {
    uint32_t word;
    std::memcpy(&word, tokens_.bytes().data() + 4 * i, sizeof word);
    take(static_cast<int32_t>(word & ~kTrainedBit), (word & kTrainedBit) != 0);
  }
}

void ExampleFile::append_to(int64_t index, Sample& sample) const {
  const auto last = static_cast<size_t>(length(index)) - 1;
  size_t i = 0;
  for_each_token(index, [&](int32_t token, bool is_trained) {
    if (i > 0) sample.labels.push_back(is_trained ? token : nn::kIgnoredLabel);
    if (i++ < last) sample.tokens.push_back(token);
  });
}

void ExampleFile::append_whole_to(int64_t index, Sample& sample) const {
  for_each_token(index, [&](int32_t token, bool is_trained) {
    sample.tokens.push_back(token);
    sample.labels.push_back(is_trained ? token : nn::kIgnoredLabel);
  });
}

void ExampleFile::append_apart_to(int64_t index, Sample& sample) const {
  for_each_token(index, [&](int32_t token, bool is_trained) {
    (is_trained ? sample.labels : sample.tokens).push_back(token);
  });
}

int64_t ExampleFile::length_apart(int64_t index) const {
  int64_t count = 0;
  for_each_token(index, [&](int32_t, bool is_trained) { count += is_trained ? 0 : 1; });
  return count;
}

std::string example_folder(const std::string& path, const text::Tokenizer* tokenizer,
                           const ExampleSettings& settings, const ExampleFileOptions& options) {
  return folder_for(path, recipe_of(path, tokenizer, settings, options), options.cache);
}

std::string make_example_folder(const std::string& path, const text::Tokenizer* tokenizer,
                                const ExampleSettings& settings,
                                const ExampleFileOptions& options) {
  const std::string recipe = recipe_of(path, tokenizer, settings, options);
  std::string folder = folder_for(path, recipe, options.cache);
  if (files::folder_exists(folder) && read_made(folder).at("recipe").is_string(recipe))
    return folder;
  const bool had_cache = files::folder_exists(options.cache);
  files::create_folders(options.cache);
  // A cache that nothing came into does not stay.
  struct EmptyFolderRemoved {
    std::string path;
    ~EmptyFolderRemoved() {
      std::error_code ignored;
      fs::remove(path, ignored);  // does nothing where there is something in it
    }
  } const removed{had_cache ? std::string() : options.cache};
  files::AtomicFolder made(folder);
  Appender tokens(made.path() + "/tokens.bin"), index(made.path() + "/index.bin");
  const std::unique_ptr<RecordReader> reader = open_records(path);
  const ExampleMaker maker(tokenizer, settings);
  uint64_t end = 0;
  index.add(end);
  const ExampleCounts counts = make_examples(
      *reader, maker, options.make,
      [&](const Record&, const Example& example) {
        for (size_t i = 0; i < example.tokens.size(); ++i) {
          tokens.add(static_cast<uint32_t>(example.tokens[i]) |
                     (example.trained[i] != 0 ? kTrainedBit : 0));
        }
        index.add(end += example.tokens.size());
      },
      options.progress);
  if (options.make.stop != nullptr && options.make.stop->load()) return {};
  if (recipe_of(path, tokenizer, settings, options) != recipe) {
    throw DataError(path + ": changed while it was read");
  }
  tokens.commit();
  index.commit();
  files::write_file_atomically(made.path() + "/made.json", made_text(recipe, counts));
  made.commit(true);
  return folder;
}

}  // namespace zinc::data
