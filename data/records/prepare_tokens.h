// data/records/prepare_tokens.h: converts documents to token files, once, before training reads
// them.
//
// The result is a folder:
//
//   tokens_000000.bin, ...  tokens in llm.c's format: uint16 if the vocabulary fits, else uint32
//   tokens_000000.idx, ...  where the documents of each .bin begin
//   prepare.json            what the files were made of
//
// An .idx holds little-endian uint64: the number of documents n, then n + 1 offsets in tokens.
// Document i is the tokens [offset i, offset i + 1) of the .bin.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace zinc::data {

enum class DocumentKind : uint8_t {
  file,   // each file is a document
  line,   // each line that is not empty
  jsonl,  // each line is a JSON object; a member of it is the text
};

struct PrepareOptions {
  std::vector<std::string> files;  // UTF-8
  DocumentKind kind = DocumentKind::file;
  std::string field = "text";  // for DocumentKind::jsonl
  std::string folder;
  // Bytes of text in a shard, which has at least one document; at most kMaxShardBytes.
  int64_t shard_bytes = int64_t{64} << 20;
  int threads = 1;
  bool end_documents = true;  // with the tokenizer's end-of-text token, where it has one
  int64_t skip_bad = 0;       // damaged documents of this call that are left out; more are an error
};
inline constexpr int64_t kMaxShardBytes = int64_t{1} << 30;

struct PrepareProgress {
  int64_t bytes = 0, total_bytes = 0;  // of text
  int64_t documents = 0;               // read, damaged ones included
  int64_t tokens = 0;
  int64_t shards = 0;
  int64_t kept_shards = 0;  // made by an earlier call
  bool stopped = false;     // by `stop`
  int64_t damaged = 0;      // documents that this call left out; those of kept shards do not count
  std::string first_damage{};
};

// Writes shard by shard; a shard is complete or absent. A call with the same arguments continues
// where an earlier one ended. Throws ConfigError if the folder holds the work of other arguments,
// files or tokenizer. `progress` is called on this thread. `stop` ends the work after the documents
// under way. A document is damaged if its text is not UTF-8 or its line is not JSON. skip_bad
// damaged documents are left out; the next one throws a DataError with its place.
PrepareProgress prepare_tokens(const text::Tokenizer& tokenizer, const PrepareOptions& options,
                               const std::function<void(const PrepareProgress&)>& progress = {},
                               const std::atomic<bool>* stop = nullptr);

}  // namespace zinc::data
