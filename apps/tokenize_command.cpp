// zinc tokenize: text to tokens and back, vocabularies, token files for training.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <iostream>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/command.h"
#include "core/error.h"
#include "core/exit_codes.h"
#include "core/processors.h"
#include "data/records/prepare_tokens.h"
#include "files/atomic_file.h"
#include "files/input_file.h"
#include "files/json/parser.h"
#include "files/json/writer.h"
#include "text/bpe_trainer.h"
#include "text/pattern.h"
#include "text/piece_model.h"
#include "text/tokenizer_folder.h"
#include "train/metrics/progress.h"

namespace zinc::apps {
namespace {

constexpr int64_t kMaxInputBytes = int64_t{4} << 30;

struct TokenizeArguments {
  std::string tokenizer;
  std::vector<std::string> files;
  std::string text;
  std::string out;
  std::string kind = "bpe";
  std::string documents = "file";
  std::string field = "text";
  std::string pattern;
  std::vector<std::string> specials{"<|endoftext|>"};
  int64_t vocabulary = 8192;
  int64_t min_frequency = 0;
  int64_t shard_mib = 64;
  int64_t skip_bad = 0;
  int threads = 0;
  bool specials_around = false;
  bool json_lines = false;
  bool lines = false;
  bool no_end = false;
  bool json = false;
};

// Files in a row; standard input where there is none.
std::string read_input(const TokenizeArguments& options) {
  if (!options.text.empty()) return options.text;
  std::string all;
  for (const std::string& file : options.files) all += files::read_text_file(file, kMaxInputBytes);
  if (!options.files.empty()) return all;
  std::string part(1 << 16, '\0');
  while (std::cin.read(part.data(), static_cast<std::streamsize>(part.size())),
         std::cin.gcount() > 0) {
    all.append(part, 0, static_cast<size_t>(std::cin.gcount()));
    if (static_cast<int64_t>(all.size()) > kMaxInputBytes) {
      throw DataError(str("standard input has more than ", kMaxInputBytes, " bytes"));
    }
  }
  return all;
}

void show(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

std::string as_words(const std::vector<int32_t>& ids, std::string_view between = " ") {
  std::string line;
  for (const int32_t id : ids) {
    if (!line.empty()) line += between;
    line += std::to_string(id);
  }
  return line;
}

// Calls work for each line that is not empty, with its number.
template <class Work>
void for_each_line(const std::string& text, Work work) {
  int64_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    ++number;
    if (end > at) work(text.substr(at, end - at), number);
    at = end + 1;
  }
}

int encode(const TokenizeArguments& options) {
  const auto tokenizer = text::load_tokenizer(options.tokenizer);
  const auto encoded = [&](const std::string& text) {
    return options.specials_around ? tokenizer->encode_with_specials(text)
                                   : tokenizer->encode(text);
  };
  const std::string input = read_input(options);
  if (!options.json_lines) {
    show(as_words(encoded(input)) + "\n");
    return kDone;
  }
  for_each_line(input, [&](std::string line, int64_t number) {
    const files::json::Value text = files::json::parse(std::move(line), str("line ", number));
    show("[" + as_words(encoded(text.as_string()), ",") + "]\n");
  });
  return kDone;
}

// A new tokenizer for each round: what one has learned of the text in a round is no help to the
// next. The time of the processor, so that a busy machine gives the same figure.
int measure(const TokenizeArguments& options) {
  constexpr int kRounds = 5;
  const std::string input = read_input(options);
  std::vector<std::string> texts;
  if (options.lines) {
    for_each_line(input, [&](std::string line, int64_t) { texts.push_back(std::move(line)); });
  } else {
    texts.push_back(input);
  }
  if (input.empty()) throw DataError("there is no text to measure with");
  double best = 0.0;
  int64_t tokens = 0;
  for (int round = 0; round < kRounds; ++round) {
    const auto tokenizer = text::load_tokenizer(options.tokenizer);
    const std::clock_t start = std::clock();
    tokens = 0;
    for (const std::string& text : texts) tokens += std::ssize(tokenizer->encode(text));
    const auto ticks = static_cast<double>(std::max<std::clock_t>(1, std::clock() - start));
    best = std::max(best, static_cast<double>(input.size()) * CLOCKS_PER_SEC / ticks);
  }
  if (options.json) {
    files::json::Writer writer;
    writer.begin_object().member("bytes", std::ssize(input)).member("tokens", tokens);
    show(writer.member("bytes_per_second", best).end_object().take() + "\n");
    return kDone;
  }
  fmt::print("{:.1f} MB/s of a core: {} bytes, {} tokens, the best of {} rounds\n", 1e-6 * best,
             input.size(), tokens, kRounds);
  return kDone;
}

int32_t parse_id(const std::string& word) {
  const auto number = files::json::Number::parse(word);
  const auto id = number ? number->to_int64() : std::nullopt;
  if (!id || *id < 0 || *id > std::numeric_limits<int32_t>::max()) {
    throw DataError(str("'", word, "' is no token id"));
  }
  return static_cast<int32_t>(*id);
}

int decode(const TokenizeArguments& options) {
  const auto tokenizer = text::load_tokenizer(options.tokenizer);
  const auto parse_ids = [&](std::string text) {
    std::replace_if(
        text.begin(), text.end(),
        [](char c) { return c == '[' || c == ']' || c == ',' || c == '\n'; }, ' ');
    std::vector<int32_t> ids;
    for (size_t at = text.find_first_not_of(" \t\r"); at != text.npos;) {
      const size_t end = std::min(text.find_first_of(" \t\r", at), text.size());
      ids.push_back(parse_id(text.substr(at, end - at)));
      at = text.find_first_not_of(" \t\r", end);
    }
    text::require_in_vocabulary("decode", ids, tokenizer->vocabulary_size());
    return ids;
  };
  const std::string input = read_input(options);
  if (!options.json_lines) {
    show(tokenizer->decode(parse_ids(input)));
    return kDone;
  }
  for_each_line(input, [&](std::string line, int64_t) {
    std::string text;
    files::json::append_quoted(text, tokenizer->decode(parse_ids(std::move(line))));
    show(text + "\n");
  });
  return kDone;
}

int threads_of(const TokenizeArguments& options) {
  return options.threads > 0 ? options.threads : usable_processors();
}

std::string pattern_of(const std::string& name) {
  if (name.empty() || name == "gpt2") return std::string(text::kGpt2Pattern);
  if (name == "llama3") return std::string(text::kLlama3Pattern);
  if (name == "qwen2") return std::string(text::kQwen2Pattern);
  return name;
}

int train_vocabulary(const TokenizeArguments& options) {
  if (options.kind != "bpe") {
    files::create_folders(options.out);
    text::train_piece_model({.files = options.files,
                             .prefix = options.out + "/spiece",
                             .vocabulary_size = options.vocabulary,
                             .bpe = options.kind == "sentencepiece-bpe",
                             .threads = threads_of(options)});
    fmt::print("{}/spiece.model\n", options.out);
    return kDone;
  }
  const bool live = isatty(STDERR_FILENO) != 0;
  text::BpeTrainer trainer({.vocabulary_size = options.vocabulary,
                            .min_frequency = options.min_frequency,
                            .specials = options.specials,
                            .pattern = pattern_of(options.pattern)});
  for (const std::string& file : options.files) {
    trainer.add_text(files::read_text_file(file, kMaxInputBytes));
  }
  trainer.train([&](int64_t tokens) {
    if (live) fmt::print(stderr, "\r{} of {} tokens", tokens, options.vocabulary);
  });
  if (live) fmt::print(stderr, "\r\033[K");
  files::create_folders(options.out);
  const auto write = [&](const char* name, const std::string& text) {
    files::write_file_atomically(options.out + "/" + name, text);
  };
  write("vocab.json", trainer.vocab_json());
  write("merges.txt", trainer.merges_txt());
  write("tokenizer_config.json", trainer.tokenizer_config_json());
  write("tokenizer.json", trainer.tokenizer_json());
  fmt::print("{}/tokenizer.json: {} tokens from {} distinct pieces\n", options.out,
             trainer.num_tokens(), trainer.num_pieces());
  return kDone;
}

int prepare_files(const TokenizeArguments& options) {
  const auto tokenizer = text::load_tokenizer(options.tokenizer);
  const data::PrepareOptions settings{.files = options.files,
                                      .kind = options.documents == "file" ? data::DocumentKind::file
                                              : options.documents == "line"
                                                  ? data::DocumentKind::line
                                                  : data::DocumentKind::jsonl,
                                      .field = options.field,
                                      .folder = options.out,
                                      .shard_bytes = options.shard_mib << 20,
                                      .threads = threads_of(options),
                                      .end_documents = !options.no_end,
                                      .skip_bad = options.skip_bad};
  if (!options.no_end && !tokenizer->end_of_text()) {
    fmt::print(stderr,
               "note: the tokenizer names no token that ends a text: documents are not ended\n");
  }
  const bool live = isatty(STDERR_FILENO) != 0;
  constexpr int kWidth = 30;
  const data::PrepareProgress done =
      data::prepare_tokens(*tokenizer, settings, [&](const data::PrepareProgress& now) {
        if (!live) return;
        const double part = static_cast<double>(now.bytes) / static_cast<double>(now.total_bytes);
        const auto filled = static_cast<size_t>(part * kWidth);
        fmt::print(stderr, "\r[{}{}] {:3.0f} %  {} tokens, {} shards\033[K",
                   std::string(filled, '#'), std::string(kWidth - filled, '.'), 100.0 * part,
                   train::format_count(static_cast<double>(now.tokens)), now.shards);
      });
  if (live) fmt::print(stderr, "\r\033[K");
  if (options.json) {
    files::json::Writer writer;
    writer.begin_object().member("tokens", done.tokens).member("documents", done.documents);
    writer.member("shards", done.shards).member("kept_shards", done.kept_shards);
    writer.member("damaged", done.damaged);
    show(writer.member("bytes", done.total_bytes).end_object().take() + "\n");
    return kDone;
  }
  fmt::print("{}: {} tokens of {} documents in {} shards", options.out, done.tokens, done.documents,
             done.shards);
  fmt::print("{}\n", done.kept_shards > 0
                         ? fmt::format(" ({} were there already)", done.kept_shards)
                         : std::string());
  if (done.damaged > 0) {
    fmt::print("{} documents are damaged and left out; the first: {}\n", done.damaged,
               done.first_damage);
  }
  return kDone;
}

template <class Run>
CLI::App* add_verb(CLI::App& parent, Action& action,
                   const std::shared_ptr<TokenizeArguments>& options, const char* name,
                   const char* help, Run run) {
  CLI::App* verb = parent.add_subcommand(name, help);
  verb->callback([options, &action, run] { action = [options, run] { return run(*options); }; });
  return verb;
}

}  // namespace

void add_tokenize_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<TokenizeArguments>();
  CLI::App* group = app.add_subcommand("tokenize", "Text to tokens and back, and vocabularies");
  group->require_subcommand(1);
  const auto tokenizer = [&](CLI::App* verb) {
    verb->add_option("--tokenizer", options->tokenizer,
                     "Folder of a model, tokenizer.json, vocab.json (with merges.txt), vocab.txt, "
                     "spiece.model or tokenizer.model")
        ->required();
  };
  const auto input = [&](CLI::App* verb, const char* help) {
    verb->add_option("files", options->files, help);
    verb->add_option("--text", options->text, "The input itself");
    verb->add_flag("--json-lines", options->json_lines,
                   "A JSON value a line, in and out: a string for text, an array for tokens");
  };

  CLI::App* verb =
      add_verb(*group, action, options, "encode", "Print the tokens of a text", encode);
  tokenizer(verb);
  input(verb, "UTF-8 text (default: standard input)");
  verb->add_flag("--specials", options->specials_around,
                 "With the special tokens that the tokenizer puts around a text");

  verb = add_verb(*group, action, options, "decode", "Print the text of tokens", decode);
  tokenizer(verb);
  input(verb, "Numbers between spaces (default: standard input)");

  verb = add_verb(*group, action, options, "bench", "Measure how fast text is encoded", measure);
  tokenizer(verb);
  verb->add_option("files", options->files, "UTF-8 text (default: standard input)");
  verb->add_flag("--lines", options->lines, "Each line is a text (default: all is one)");
  verb->add_flag("--json", options->json, "Print the figures as JSON");

  verb =
      add_verb(*group, action, options, "train", "Learn a vocabulary from text", train_vocabulary);
  verb->add_option("files", options->files, "UTF-8 text")->required();
  verb->add_option("--out", options->out, "Folder for the tokenizer's files")->required();
  verb->add_option(
          "--kind", options->kind,
          "bpe (default): on bytes, as GPT-2; unigram, sentencepiece-bpe: by sentencepiece")
      ->check(CLI::IsMember({"bpe", "unigram", "sentencepiece-bpe"}));
  verb->add_option("--vocabulary", options->vocabulary, "Tokens, special ones included (8192)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 22));
  verb->add_option("--pattern", options->pattern,
                   "bpe: gpt2 (default), llama3, qwen2 or a regular expression that cuts text");
  verb->add_option("--special", options->specials,
                   "bpe: special tokens; the first ends a text (default <|endoftext|>)");
  verb->add_option("--min-frequency", options->min_frequency,
                   "bpe: a pair that is rarer is not merged (default 0)")
      ->check(CLI::NonNegativeNumber);
  verb->add_option("--threads", options->threads, "Of sentencepiece; 0: all cores (default)");

  verb = add_verb(*group, action, options, "prepare", "Documents to token files for training",
                  prepare_files);
  tokenizer(verb);
  verb->add_option("files", options->files, "UTF-8 text, or JSON lines")->required();
  verb->add_option("--out", options->out,
                   "Folder of the token files; what is there of the same work is kept")
      ->required();
  verb->add_option(
          "--documents", options->documents,
          "file (default): each file is one; line: each line; jsonl: each line is an object")
      ->check(CLI::IsMember({"file", "line", "jsonl"}));
  verb->add_option("--field", options->field, "jsonl: the member with the text (default text)");
  verb->add_option("--shard-mib", options->shard_mib, "MiB of text in a token file (default 64)")
      ->check(CLI::Range(int64_t{1}, int64_t{1024}));
  verb->add_flag("--no-end", options->no_end, "Do not end documents with the end-of-text token");
  verb->add_option("--skip-bad", options->skip_bad,
                   "Damaged documents that are left out (default 0); one more is an error")
      ->check(CLI::NonNegativeNumber);
  verb->add_option("--threads", options->threads, "0: all cores (default)");
  verb->add_flag("--json", options->json, "Print the figures as JSON");
}

}  // namespace zinc::apps
