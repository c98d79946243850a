#include "data/records/prepare_tokens.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <limits>
#include <string_view>
#include <thread>
#include <utility>

#include "core/crc32c.h"
#include "core/error.h"
#include "data/records/record_reader.h"
#include "files/atomic_file.h"
#include "files/input_file.h"
#include "files/json/parser.h"
#include "files/json/writer.h"
#include "files/utf8.h"

namespace zinc::data {
namespace {

constexpr int64_t kBlockBytes = int64_t{4} << 20;  // of text that threads share out at once
constexpr std::string_view kManifestName = "prepare.json";

// One document as it lies in its file.
struct Document {
  std::string_view raw;
  int64_t line;  // 0: the whole file
};

// Cuts a mapped file into documents, one after another.
class DocumentReader {
 public:
  DocumentReader(const files::MappedFile& file, DocumentKind kind)
      : rest_(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()),
        kind_(kind) {}

  bool next(Document& document) {
    while (!rest_.empty()) {
      const size_t end =
          kind_ == DocumentKind::file ? rest_.size() : std::min(rest_.find('\n'), rest_.size());
      std::string_view raw = rest_.substr(0, end);
      rest_.remove_prefix(std::min(end + 1, rest_.size()));
      ++line_;
      if (kind_ != DocumentKind::file && raw.ends_with('\r')) raw.remove_suffix(1);
      if (raw.empty()) continue;
      document = {raw, kind_ == DocumentKind::file ? 0 : line_};
      return true;
    }
    return false;
  }

 private:
  std::string_view rest_;
  DocumentKind kind_;
  int64_t line_ = 0;
};

std::string place_of(const std::string& path, const Document& document) {
  return document.line == 0 ? path : str(path, ":", document.line);
}

class Preparation {
 public:
  Preparation(const text::Tokenizer& tokenizer, const PrepareOptions& options,
              const std::function<void(const PrepareProgress&)>& progress,
              const std::atomic<bool>* stop)
      : tokenizer_(tokenizer), options_(options), progress_(progress), stop_(stop) {
    for (const std::string& path : options.files) {
      files_.push_back(files::MappedFile::open(path));
      done_.total_bytes += files_.back().size();
    }
    if (done_.total_bytes == 0) throw DataError("the files hold no text");
    if (options.end_documents) end_ = tokenizer.end_of_text();
    bytes_per_token_ = tokenizer.vocabulary_size() <= 65536 ? 2 : 4;
  }

  PrepareProgress run() {
    open_folder();
    for (const files::MappedFile& file : files_) {
      DocumentReader reader(file, options_.kind);
      for (Document document; reader.next(document);) {
        file.require_unchanged();
        block_.push_back({&file.path(), document});
        block_bytes_ += static_cast<int64_t>(document.raw.size());
        shard_bytes_ += static_cast<int64_t>(document.raw.size());
        const bool shard_ends = shard_bytes_ >= options_.shard_bytes;
        if (block_bytes_ >= kBlockBytes || shard_ends) encode_block();
        if (shard_ends) end_shard();
        if (stop_ != nullptr && stop_->load()) {
          done_.stopped = true;
          return done_;
        }
      }
    }
    encode_block();
    if (shard_bytes_ > 0) end_shard();
    return done_;
  }

 private:
  struct Job {
    const std::string* path;
    Document document;
  };

  std::string shard_path(std::string_view extension) const {
    std::string number = std::to_string(done_.shards);
    number.insert(0, number.size() < 6 ? 6 - number.size() : 0, '0');
    return str(options_.folder, "/tokens_", number, '.', extension);
  }

  // All that the shards depend on, as text.
  std::string manifest() const {
    files::json::Writer writer(2);
    writer.begin_object().member("format", 1).member("tokenizer", tokenizer_.name());
    // The same name may stand for another tokenizer, so the tokens of the first text are compared,
    // too.
    const std::string_view first(reinterpret_cast<const char*>(files_.front().bytes().data()),
                                 std::min<size_t>(files_.front().bytes().size(), 65536));
    const std::vector<int32_t> ids = tokenizer_.encode(first);
    writer.member("tokenizer_check", crc32c(std::as_bytes(std::span(ids))));
    writer.member("vocabulary", tokenizer_.vocabulary_size());
    writer.member("end_of_text", end_.value_or(-1));
    writer.member("documents", options_.kind == DocumentKind::file   ? "file"
                               : options_.kind == DocumentKind::line ? "line"
                                                                     : "jsonl");
    writer.member("field", options_.field).member("shard_bytes", options_.shard_bytes);
    writer.key("files").begin_array();
    for (const files::MappedFile& file : files_) {
      writer.begin_object().member("path", file.path()).member("bytes", file.size());
      const auto head = file.bytes().first(std::min<size_t>(file.bytes().size(), 65536));
      writer.member("check", crc32c(head)).end_object();
    }
    return writer.end_array().end_object().take() + "\n";
  }

  void open_folder() {
    files::create_folders(options_.folder);
    const std::string path = str(options_.folder, '/', kManifestName);
    const std::string text = manifest();
    if (!files::file_exists(path)) return files::write_file_atomically(path, text);
    if (files::read_text_file(path, kMaxShardBytes) != text) {
      throw ConfigError(str(options_.folder,
                            ": holds tokens of other arguments, files or another tokenizer (",
                            kManifestName, "): choose another folder, or remove this one"));
    }
  }

  bool shard_is_there() const {
    return files::file_exists(shard_path("bin")) && files::file_exists(shard_path("idx"));
  }

  std::vector<int32_t> encode(const Job& job) const {
    const std::string place = place_of(*job.path, job.document);
    if (const auto bad = files::first_invalid_utf8(job.document.raw)) {
      throw DataError(str(place, ": not UTF-8 at byte ", *bad, " of the document"));
    }
    std::vector<int32_t> ids;
    if (options_.kind == DocumentKind::jsonl) {
      const files::json::Value line = files::json::parse(std::string(job.document.raw), place);
      ids = tokenizer_.encode(line.at(options_.field).as_string());
    } else {
      ids = tokenizer_.encode(job.document.raw);
    }
    if (end_) ids.push_back(*end_);
    return ids;
  }

  // Threads take documents in turn; results keep their order.
  void encode_block() {
    const std::vector<Job> jobs = std::exchange(block_, {});
    done_.bytes += std::exchange(block_bytes_, 0);
    done_.documents += static_cast<int64_t>(jobs.size());
    if (jobs.empty() || shard_is_there()) return report();
    struct Result {
      std::vector<int32_t> ids{};
      std::exception_ptr problem{};
    };
    std::vector<Result> results(jobs.size());
    std::atomic<size_t> next = 0;
    const auto work = [&] {
      for (size_t i = next++; i < jobs.size(); i = next++) {
        try {
          results[i].ids = encode(jobs[i]);
        } catch (...) {
          results[i].problem = std::current_exception();
        }
      }
    };
    std::vector<std::thread> threads;
    for (int t = 1; t < options_.threads; ++t) threads.emplace_back(work);
    work();
    for (std::thread& thread : threads) thread.join();
    for (const Result& result : results) {
      if (result.problem != nullptr) {
        leave_out(result.problem);
        continue;
      }
      offsets_.push_back(tokens_.size());
      tokens_.insert(tokens_.end(), result.ids.begin(), result.ids.end());
      done_.tokens += std::ssize(result.ids);
    }
    report();
  }

  void leave_out(const std::exception_ptr& problem) {
    try {
      std::rethrow_exception(problem);
    } catch (const DataError& error) {
      if (++done_.damaged == 1) done_.first_damage = error.what();
      leave_out_damaged(error.what(), done_.damaged, options_.skip_bad);
    }
  }

  void end_shard() {
    shard_bytes_ = 0;
    if (shard_is_there()) {
      ++done_.kept_shards;
      done_.tokens += (files::InputFile::open(shard_path("bin")).size() - 1024) / bytes_per_token_;
    } else {
      write_shard();
    }
    ++done_.shards;
    tokens_.clear();
    offsets_.clear();
    report();
  }

  void write_shard() const {
    if (tokens_.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
      throw DataError(str(shard_path("bin"), ": ", tokens_.size(),
                          " tokens are more than llm.c's format holds: split the document"));
    }
    std::string bytes(1024, '\0');
    const int32_t header[3] = {bytes_per_token_ == 2 ? 20240520 : 20240801,
                               bytes_per_token_ == 2 ? 1 : 7, static_cast<int32_t>(tokens_.size())};
    std::memcpy(bytes.data(), header, sizeof header);
    bytes.resize(1024 + tokens_.size() * static_cast<size_t>(bytes_per_token_));
    for (size_t i = 0; i < tokens_.size(); ++i) {
      std::memcpy(bytes.data() + 1024 + i * static_cast<size_t>(bytes_per_token_), &tokens_[i],
                  static_cast<size_t>(bytes_per_token_));
    }
    std::vector<uint64_t> index{offsets_.size()};
    index.insert(index.end(), offsets_.begin(), offsets_.end());
    index.push_back(tokens_.size());
    files::write_file_atomically(shard_path("bin"), bytes);
    files::write_file_atomically(shard_path("idx"),
                                 {reinterpret_cast<const char*>(index.data()), index.size() * 8});
  }

  void report() const {
    if (progress_) progress_(done_);
  }

  const text::Tokenizer& tokenizer_;
  const PrepareOptions& options_;
  const std::function<void(const PrepareProgress&)>& progress_;
  const std::atomic<bool>* stop_;
  std::vector<files::MappedFile> files_;
  std::optional<int32_t> end_;
  int bytes_per_token_ = 4;
  PrepareProgress done_;
  std::vector<Job> block_;
  int64_t block_bytes_ = 0;
  int64_t shard_bytes_ = 0;        // of the shard under construction
  std::vector<int32_t> tokens_;    // of the growing shard
  std::vector<uint64_t> offsets_;  // of the documents in tokens_
};

}  // namespace

PrepareProgress prepare_tokens(const text::Tokenizer& tokenizer, const PrepareOptions& options,
                               const std::function<void(const PrepareProgress&)>& progress,
                               const std::atomic<bool>* stop) {
  require(options.threads >= 1, "prepare: threads must be at least 1, not ", options.threads);
  require(options.shard_bytes >= 1 && options.shard_bytes <= kMaxShardBytes,
          "prepare: shard_bytes must lie in [1, ", kMaxShardBytes, "], not ", options.shard_bytes);
  if (options.files.empty()) throw DataError("no files were given");
  return Preparation(tokenizer, options, progress, stop).run();
}

}  // namespace zinc::data
