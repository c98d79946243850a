#include "apps/run_data.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>

#include "apps/machine.h"
#include "core/crc32c.h"
#include "core/error.h"
#include "core/philox.h"
#include "data/examples/example_data.h"
#include "data/token_windows.h"
#include "files/atomic_file.h"
#include "files/input_file.h"
#include "hub/family.h"

namespace zinc::apps {
namespace {

// The characters of a validation set's name.
constexpr std::string_view kNameCharacters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
constexpr int64_t kHashSamples = 64;  // of each file, spread over all of it

class TokenStreams final : public RunData {
 public:
  TokenStreams(const RunDataArguments& arguments, const RunTokenizer& tokenizer)
      : arguments_(arguments),
        tokenizer_(tokenizer),
        sets_(validation_files(arguments)),
        tokens_(tokenizer.open(arguments.data)) {}

  int64_t vocabulary_size() const override { return tokens_.vocabulary_size(); }

  void fit(const hub::ModelConfigFile& model, int64_t seq) override {
    const int64_t vocabulary = hub::vocabulary_size(model.config);
    vocabulary_ = vocabulary;
    seq_ = seq;
    if (hub::objective(model.config).kind != hub::Objective::next_tokens) {
      const bool guesses = hub::objective(model.config).kind == hub::Objective::masked_tokens;
      throw ConfigError(fmt::format(
          "{} learns no text that goes on, as --data {} holds; give {}",
          hub::model_type(model.config), tokens_.describe(),
          guesses ? "records, or make each line of a .txt one by --fields text=text"
                  : "records with a text and its answer or class (.jsonl, .json, .csv, .tsv)"));
    }
    require_own_tokens(tokenizer_, "--data " + tokens_.describe(), tokens_.vocabulary_size(),
                       vocabulary);
  }

  uint64_t hash() const override {
    uint64_t hash = hash_of(tokens_);
    for (const ValidationFiles& set : sets_) {
      hash = 31 * hash ^ hash_text(set.name) ^ hash_of(tokenizer_.open(set.files));
    }
    return hash;
  }

  void prepare(const std::atomic<bool>&, const std::function<void(const std::string&)>&) override {}

  void open() override {
    data::TokenSequence training = tokens_;
    std::vector<data::TokenSequence> validation;
    if (arguments_.evaluates) {
      validation.push_back(tokens_);
    } else if (sets_.empty()) {
      std::tie(training, validation.emplace_back()) =
          tokens_.split_tail(arguments_.validation_fraction);
    }
    for (const ValidationFiles& set : sets_) {
      const data::TokenSequence& tokens = validation.emplace_back(tokenizer_.open(set.files));
      require_own_tokens(tokenizer_, "--validation " + tokens.describe(), tokens.vocabulary_size(),
                         vocabulary_);
    }
    if (!arguments_.evaluates) {
      training_.emplace(training,
                        data::TokenWindowsOptions{.seq_len = seq_, .vocabulary_size = vocabulary_});
    }
    for (const data::TokenSequence& tokens : validation) {
      validation_.push_back(std::make_unique<data::TokenWindows>(
          tokens, data::TokenWindowsOptions{
                      .seq_len = seq_, .vocabulary_size = vocabulary_, .keep_short = true}));
    }
  }

  const data::Dataset& training() const override { return *training_; }
  const std::vector<std::unique_ptr<data::Dataset>>& validation() const override {
    return validation_;
  }
  data::BatchFields fields() const override { return {}; }
  bool has_lengths() const override { return false; }
  bool fills_rows() const override { return false; }
  std::string samples_are() const override { return fmt::format("windows of {} tokens", seq_); }
  std::vector<std::string> notes() const override { return {}; }

 private:
  // Reading everything would take as long as reading it once more.
  static uint64_t hash_of(const data::TokenSequence& tokens) {
    constexpr int64_t kTokens = 1024;
    std::string text;
    for (const auto& part : tokens.parts()) {
      text += str(part.begin, ' ', part.end, ' ');
      std::vector<int32_t> values;
      for (int64_t i = 0; i < kHashSamples; ++i) {
        const int64_t begin = part.begin + part.num_tokens() * i / kHashSamples;
        part.file->append_to(values, begin, std::min(begin + kTokens, part.end), 0);
      }
      text += str(crc32c(std::as_bytes(std::span(values))), ' ');
    }
    return hash_text(text);
  }

  const RunDataArguments& arguments_;
  const RunTokenizer tokenizer_;
  const std::vector<ValidationFiles> sets_;
  data::TokenSequence tokens_;
  int64_t vocabulary_ = 0, seq_ = 0;
  std::optional<data::TokenWindows> training_;
  std::vector<std::unique_ptr<data::Dataset>> validation_;
};

class Examples final : public RunData {
 public:
  Examples(const RunDataArguments& arguments, const RunTokenizer& tokenizer)
      : arguments_(arguments), tokenizer_(tokenizer), sets_(validation_files(arguments)) {
    for (const std::string& path : arguments.data) sources_.push_back({path});
    for (const ValidationFiles& set : sets_) {
      for (const std::string& path : set.files) {
        sources_.push_back({.path = path, .set = &set});
      }
    }
    for (Source& source : sources_) source.settings = settings(source.path, {.max_tokens = 2});
    holds_text_ = std::ranges::any_of(
        sources_, [](const Source& source) { return source.settings->fields.tokens.empty(); });
  }

  int64_t vocabulary_size() const override {
    return holds_text_ ? text_tokenizer().vocabulary_size() : 0;
  }

  void fit(const hub::ModelConfigFile& model, int64_t seq) override {
    const int64_t vocabulary = hub::vocabulary_size(model.config);
    seq_ = seq;
    if (seq < 2) throw ConfigError("--seq must be at least 2 for examples");
    for (Source& source : sources_) {
      require_own_tokens(tokenizer_, source.path,
                         source.settings->fields.tokens.empty() ? vocabulary_size() : 0,
                         vocabulary);
      source.settings->max_tokens = seq;
      source.settings->vocabulary_size = vocabulary;
      set_objective(*source.settings, model, arguments_.examples);
      if (source.settings->labels != sources_.front().settings->labels) {
        throw ConfigError(fmt::format("{} and {} hold other kinds of examples",
                                      sources_.front().path, source.path));
      }
    }
    const data::LabelsOf labels = sources_.front().settings->labels;
    if (labels == data::LabelsOf::tokens) return;
    if (arguments_.pack) {
      throw ConfigError(fmt::format("--pack joins texts that go on; {} reads a text whole",
                                    hub::model_type(model.config)));
    }
    const int64_t pad = hub::pad_token(model.config);
    fields_ = {.lengths = true,
               .labels = labels,
               .pad_token = static_cast<int32_t>(std::max<int64_t>(pad, 0))};
    if (labels == data::LabelsOf::masked) {
      const double share = arguments_.examples.mlm_probability;
      fields_.masking = {.mask_token = text_tokenizer().mask_token().value_or(-1),
                         .vocabulary_size = text_tokenizer().vocabulary_size(),
                         .share = share > 0.0 ? share : data::Masking{}.share};
    }
  }

  uint64_t hash() const override {
    std::string text = str(arguments_.examples.mlm_probability, ' ');
    for (const Source& source : sources_) {
      text += str(describe_settings(*source.settings), ' ', source.set != nullptr, ' ',
                  source.set != nullptr ? source.set->name : "", ' ');
      const files::MappedFile file = files::MappedFile::open(source.path);
      const int64_t piece = std::min<int64_t>(file.size(), 4096);
      text += str(file.size(), ' ');
      for (int64_t i = 0; i < kHashSamples; ++i) {
        const auto begin = static_cast<size_t>((file.size() - piece) * i / kHashSamples);
        text += str(crc32c(file.bytes().subspan(begin, static_cast<size_t>(piece))), ' ');
      }
    }
    return hash_text(text);
  }

  void prepare(const std::atomic<bool>& stop,
               const std::function<void(const std::string&)>& say) override {
    for (const Source& source : sources_) {
      data::ExampleFileOptions options = file_options(source);
      options.make.stop = &stop;
      options.progress = [&](const data::ExampleCounts& counts) {
        say(fmt::format("{}: {} records read", source.path, counts.records));
      };
      make_example_folder(source.path, &text_tokenizer(), *source.settings, options);
      if (stop.load()) return;
    }
  }

  void open() override {
    using Files = std::vector<std::shared_ptr<const data::ExampleFile>>;
    Files training;
    std::map<const ValidationFiles*, Files> validation;
    for (Source& source : sources_) {
      const std::string folder =
          example_folder(source.path, &text_tokenizer(), *source.settings, file_options(source));
      source.file =
          std::make_shared<const data::ExampleFile>(data::ExampleFile::open(folder, source.path));
      (source.set != nullptr ? validation[source.set] : training).push_back(source.file);
    }
    data::ExampleData all(training, fields_);
    if (arguments_.evaluates) {
      validation_.push_back(packed(std::move(all)));
    } else if (sets_.empty()) {
      auto [rest, part] = all.split(arguments_.validation_fraction);
      training_ = packed(std::move(rest));
      validation_.push_back(packed(std::move(part)));
    } else {
      training_ = packed(std::move(all));
      for (const ValidationFiles& set : sets_) {
        validation_.push_back(packed(data::ExampleData(validation[&set], fields_)));
      }
    }
  }

  const data::Dataset& training() const override { return *training_; }
  const std::vector<std::unique_ptr<data::Dataset>>& validation() const override {
    return validation_;
  }
  bool fills_rows() const override { return true; }
  data::BatchFields fields() const override {
    return arguments_.pack ? data::BatchFields{.document_starts = true} : fields_;
  }
  bool has_lengths() const override { return !arguments_.pack && !arguments_.pad_to_longest; }
  std::string samples_are() const override {
    if (fields_.labels != data::LabelsOf::tokens) {
      return fmt::format("texts of at most {} tokens", seq_);
    }
    return arguments_.pack ? fmt::format("rows of {} tokens", seq_)
                           : fmt::format("examples of at most {} tokens", seq_);
  }

  std::vector<std::string> notes() const override {
    std::vector<std::string> lines;
    for (const Source& source : sources_) {
      lines.push_back(fmt::format("{}: {}", source.path, describe_settings(*source.settings)));
      for (const std::string& line : lines_of(source.file->counts())) {
        lines.push_back(fmt::format("{}: {}", source.path, line));
      }
      for (const std::string& note :
           notes_on(*source.settings, &text_tokenizer(), tokenizer_.folder)) {
        lines.push_back("note: " + note);
      }
    }
    return lines;
  }

 private:
  struct Source {
    std::string path;
    const ValidationFiles* set = nullptr;  // null: it is trained on
    std::optional<data::ExampleSettings> settings{};
    std::shared_ptr<const data::ExampleFile> file{};
  };

  const text::Tokenizer& text_tokenizer() const {
    return tokenizer_.tokenizer != nullptr ? *tokenizer_.tokenizer : bytes_;
  }

  data::ExampleSettings settings(const std::string& path, const ExampleLimits& limits) const {
    return settings_of(arguments_.examples, path, &text_tokenizer(), limits);
  }

  data::ExampleFileOptions file_options(const Source& source) const {
    const std::string beside = files::parent_folder(source.path) + "/.zinc-cache";
    return {.cache = arguments_.cache.empty() ? beside : arguments_.cache,
            .tokenizer_folder = tokenizer_.tokenizer != nullptr ? tokenizer_.folder : "",
            .make = {.threads = inspect_machine().cores, .skip_bad = arguments_.examples.skip_bad}};
  }

  std::unique_ptr<data::Dataset> packed(data::ExampleData examples) const {
    if (arguments_.pack) {
      return std::make_unique<data::PackedExamples>(std::move(examples), seq_);
    }
    return std::make_unique<data::ExampleData>(std::move(examples));
  }

  const RunDataArguments& arguments_;
  const RunTokenizer tokenizer_;
  const text::ByteTokenizer bytes_;
  const std::vector<ValidationFiles> sets_;
  std::vector<Source> sources_;
  bool holds_text_ = false;
  int64_t seq_ = 0;
  data::BatchFields fields_;
  std::unique_ptr<data::Dataset> training_;
  std::vector<std::unique_ptr<data::Dataset>> validation_;
};

}  // namespace

void add_run_data_options(CLI::App& verb, RunDataArguments& arguments) {
  verb.add_option("--data", arguments.data,
                  "UTF-8 text, llm.c or nanoGPT .bin files, or records: .jsonl, .json, .csv or "
                  ".tsv, each also with .gz")
      ->required();
  verb.add_option("--validation", arguments.validation,
                  "Files to evaluate on (default: a part of the data); NAME=FILE for several sets");
  verb.add_option("--validation-fraction", arguments.validation_fraction,
                  "Without --validation: the last part of text or tokens, or so many of the "
                  "examples (default 0.05)")
      ->check([](const std::string& text) {
        double value = 0.0;
        const bool fits = CLI::detail::lexical_cast(text, value) && value > 0.0 && value < 1.0;
        return fits ? std::string() : "must lie between 0 and 1, not " + text;
      });
  add_example_options(verb, arguments.examples);
  verb.add_flag("--pack", arguments.pack,
                "Records: several examples in a row of --seq tokens, each a document of its own");
  verb.add_flag("--pad-to-longest", arguments.pad_to_longest,
                "Records: all batches as long as --seq (default: as the longest of a batch, a "
                "multiple of 8)");
  verb.add_flag("--group-by-length", arguments.group_by_length,
                "Records: batches of examples that are about as long as each other, within an "
                "epoch (default: in random order)");
  verb.add_option("--cache", arguments.cache,
                  "Records: folder for their tokens (default: .zinc-cache beside the data)");
}

std::vector<ValidationFiles> validation_files(const RunDataArguments& arguments) {
  std::vector<ValidationFiles> sets;
  for (const std::string& word : arguments.validation) {
    // A path that has a '=' in its first folder is written as ./a=b.
    const size_t equals = word.substr(0, word.find('/')).find('=');
    const std::string name = equals == std::string::npos ? "" : word.substr(0, equals);
    const std::string file = equals == std::string::npos ? word : word.substr(equals + 1);
    if (equals == 0 || file.empty()) {
      throw ConfigError(fmt::format("--validation '{}' must be FILE or NAME=FILE", word));
    }
    if (name.find_first_not_of(kNameCharacters) != std::string::npos) {
      throw ConfigError(
          fmt::format("--validation {}: the name '{}' must have letters, digits, '.', '_' and "
                      "'-' alone; a path with a '=' is written as ./{}",
                      word, name, word));
    }
    auto set = std::ranges::find(sets, name, &ValidationFiles::name);
    if (set == sets.end()) set = sets.insert(set, {.name = name, .files = {}});
    set->files.push_back(file);
  }
  const auto without = std::ranges::find(sets, "", &ValidationFiles::name);
  if (sets.size() > 1 && without != sets.end()) {
    throw ConfigError(
        fmt::format("--validation {}: with several sets each file has a name, as in NAME={}",
                    without->files.front(), without->files.front()));
  }
  return sets;
}

std::vector<std::string> validation_names(const RunDataArguments& arguments) {
  std::vector<std::string> names;
  for (ValidationFiles& set : validation_files(arguments)) names.push_back(std::move(set.name));
  if (names.empty()) names.emplace_back();
  return names;
}

std::unique_ptr<RunData> find_run_data(const RunDataArguments& arguments,
                                       const RunTokenizer& tokenizer) {
  if (arguments.group_by_length && (arguments.pack || arguments.pad_to_longest)) {
    throw ConfigError(
        fmt::format("--group-by-length saves padding, and {} makes all rows as long as --seq; "
                    "give one of them",
                    arguments.pack ? "--pack" : "--pad-to-longest"));
  }
  std::vector<std::string> files = arguments.data;
  for (const ValidationFiles& set : validation_files(arguments)) {
    files.insert(files.end(), set.files.begin(), set.files.end());
  }
  const auto with_fields = std::ranges::count_if(files, data::has_field_name);
  if (with_fields == std::ssize(files) || arguments.examples.given()) {
    return std::make_unique<Examples>(arguments, tokenizer);
  }
  if (with_fields > 0) {
    throw ConfigError(fmt::format(
        "--data: {} of {} files hold records, the others text or tokens; give one kind, or say "
        "by --fields what the lines of text are (--fields text=text)",
        with_fields, files.size()));
  }
  if (arguments.pack || arguments.pad_to_longest || arguments.group_by_length ||
      !arguments.cache.empty()) {
    throw ConfigError(
        "--pack, --pad-to-longest, --group-by-length and --cache are of files of records, as "
        ".jsonl");
  }
  return std::make_unique<TokenStreams>(arguments, tokenizer);
}

}  // namespace zinc::apps
