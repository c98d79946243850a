#include "data/records/token_records.h"

#include <cstring>

#include "core/error.h"
#include "files/input_file.h"

namespace zinc::data {
namespace {

std::vector<uint64_t> offsets_of(const TokenFile& file) {
  const std::string path = file.path().substr(0, file.path().size() - 4) + ".idx";
  const auto tokens = static_cast<uint64_t>(file.num_tokens());
  if (!files::file_exists(path)) {
    throw DataError(str(file.path(), ": ", path,
                        " is missing, which says where documents end (zinc tokenize prepare "
                        "writes it); without it the file is one stream of tokens"));
  }
  const files::InputFile index = files::InputFile::open(path);
  std::vector<uint64_t> words(static_cast<size_t>(index.size() / 8));
  index.read(0, std::as_writable_bytes(std::span(words)));
  const bool whole = index.size() % 8 == 0 && words.size() >= 2 && words[0] == words.size() - 2;
  if (!whole || words[1] != 0 || words.back() != tokens) {
    throw DataError(str(path, ": is not the index of ", file.path()));
  }
  words.erase(words.begin());
  for (size_t i = 1; i < words.size(); ++i) {
    if (words[i] < words[i - 1]) throw DataError(str(path, ": document ", i, " is damaged"));
  }
  return words;
}

}  // namespace

TokenRecords::TokenRecords(const std::string& path)
    : RecordReader(path), file_(TokenFile::open(path)), offsets_(offsets_of(file_)) {}

bool TokenRecords::next(RawRecord& raw) {
  while (next_ + 1 < offsets_.size() && offsets_[next_ + 1] == offsets_[next_]) ++next_;
  if (next_ + 1 >= offsets_.size()) return false;
  ++next_;
  raw.text.clear();
  raw.line = static_cast<int64_t>(next_);
  return true;
}

Record TokenRecords::parse(const RawRecord& raw) const {
  const auto document = static_cast<size_t>(raw.line) - 1;
  std::vector<int32_t> tokens;
  file_.append_to(tokens, static_cast<int64_t>(offsets_[document]),
                  static_cast<int64_t>(offsets_[document + 1]), 0);
  files::json::Object fields;
  fields.set("input_ids", files::json::Array(tokens.begin(), tokens.end()));
  return {.fields = std::move(fields), .place = place_of(raw)};
}

}  // namespace zinc::data
