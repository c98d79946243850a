// zinc data: shows the examples that a run would learn from files of records.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apps/command.h"
#include "apps/machine.h"
#include "apps/run_examples.h"
#include "core/error.h"
#include "core/exit_codes.h"
#include "files/json/writer.h"
#include "files/utf8.h"
#include "hub/model_config.h"
#include "text/tokenizer_folder.h"

namespace zinc::apps {
namespace {

struct DataArguments {
  std::vector<std::string> files;
  std::string tokenizer;
  std::string model;
  std::string color = "auto";
  int64_t seq = 0;
  int64_t examples = 1;
  bool json = false;
  ExampleArguments example;
};

// The marks that set trained text apart.
struct Marks {
  std::string_view trained, masked, reset;
};

Marks marks_for(const std::string& color) {
  const bool terminal = isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr;
  if (color == "always" || (color == "auto" && terminal)) {
    return {"\033[1;32m", "\033[2m", "\033[0m"};
  }
  return {"⟦", "", "⟧"};
}

// Controls would disturb a terminal; those from U+0080 to U+009F have two bytes.
std::string printable(const std::string& text) {
  std::string shown;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool has_two_bytes =
        byte == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    const bool is_control = byte < 0x20 && text[i] != '\n' && text[i] != '\t';
    shown += is_control || byte == 0x7f || has_two_bytes ? '?' : text[i];
    if (has_two_bytes) ++i;
  }
  return shown;
}

std::string text_of_tokens(const text::Tokenizer* tokenizer, const data::Example& example,
                           size_t begin, size_t end) {
  std::string text;
  bool first = begin == 0;
  for (size_t i = begin; i < end; ++i) {
    if (tokenizer == nullptr) {
      text += fmt::format("{}{}", i == begin ? "" : " ", example.tokens[i]);
    } else {
      first = tokenizer->append_bytes(example.tokens[i], first, text);
    }
  }
  return printable(files::replace_invalid_utf8(text));
}

// Runs of tokens that are trained, or are not, in turn.
std::string marked_text(const text::Tokenizer* tokenizer, const data::Example& example,
                        const Marks& marks) {
  std::string shown;
  for (size_t begin = 0; begin < example.tokens.size();) {
    size_t end = begin;
    while (end < example.tokens.size() && example.trained[end] == example.trained[begin]) ++end;
    const bool trained = example.trained[begin] != 0;
    const std::string_view mark = trained ? marks.trained : marks.masked;
    shown += fmt::format("{}{}{}", mark, text_of_tokens(tokenizer, example, begin, end),
                         mark.empty() ? "" : marks.reset);
    begin = end;
  }
  return shown;
}

void print_json(const std::string& file, const data::ExampleSettings& settings,
                const data::ExampleCounts& counts) {
  files::json::Writer writer;
  writer.begin_object().member("file", file).member("fields", settings.fields.describe());
  writer.member("chat", name_of(settings.format)).member("records", counts.records);
  writer.member("examples", counts.examples).member("tokens", counts.tokens);
  writer.member("trained", counts.targets).member("longest", counts.longest);
  writer.member("truncated", counts.truncated.count).member("cut_tokens", counts.cut_tokens);
  writer.member("all_masked", counts.all_masked.count).member("damaged", counts.damaged.count);
  writer.key("unused").begin_object();
  for (const auto& [name, records] : counts.unused) writer.member(name, records);
  writer.end_object();
  fmt::print("{}\n", writer.end_object().take());
}

ExampleLimits limits_of(const DataArguments& options) {
  ExampleLimits limits{.max_tokens = options.seq > 0 ? options.seq : kDefaultSequence};
  if (options.model.empty()) return limits;
  const hub::ModelConfig config = hub::find_model_config(options.model).config;
  limits.vocabulary_size = hub::vocabulary_size(config);
  const int64_t positions = hub::max_positions(config);
  if (options.seq == 0) limits.max_tokens = std::min(positions, kDefaultSequence);
  if (options.seq > positions) {
    throw ConfigError(
        fmt::format("--seq {} is longer than the model's {} positions", options.seq, positions));
  }
  return limits;
}

void show_file(const DataArguments& options, const std::string& file,
               const text::Tokenizer* tokenizer, const ExampleLimits& limits) {
  data::ExampleSettings settings = settings_of(options.example, file, tokenizer, limits);
  if (!options.model.empty()) {
    set_objective(settings, hub::find_model_config(options.model), options.example);
  }
  const data::ExampleMaker maker(tokenizer, settings);
  const std::unique_ptr<data::RecordReader> reader = data::open_records(file);
  const Marks marks = marks_for(options.color);
  int64_t shown = 0;
  const auto take = [&](const data::Record& record, const data::Example& example) {
    if (options.json || shown++ >= options.examples) return;
    fmt::print("{}: {} tokens, {} trained\n{}\n\n", record.place, example.tokens.size(),
               example.num_targets(), marked_text(tokenizer, example, marks));
  };
  if (!options.json) {
    fmt::print("{}: {}\n", file, describe_settings(settings));
    for (const std::string& note : notes_on(settings, tokenizer, options.tokenizer))
      fmt::print("note: {}\n", note);
    fmt::print("\n");
  }
  const data::ExampleCounts counts = data::make_examples(
      *reader, maker, {.threads = inspect_machine().cores, .skip_bad = options.example.skip_bad},
      take);
  if (options.json) return print_json(file, settings, counts);
  for (const std::string& line : lines_of(counts)) fmt::print("{}\n", line);
}

int show_data(const DataArguments& options) {
  std::unique_ptr<text::Tokenizer> tokenizer;
  if (options.tokenizer == "bytes") {
    tokenizer = std::make_unique<text::ByteTokenizer>();
  } else if (!options.tokenizer.empty()) {
    tokenizer = text::load_tokenizer(options.tokenizer);
  }
  const ExampleLimits limits = limits_of(options);
  for (const std::string& file : options.files) show_file(options, file, tokenizer.get(), limits);
  return kDone;
}

}  // namespace

void add_data_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<DataArguments>();
  CLI::App* group = app.add_subcommand("data", "What a run would learn from files of records");
  group->require_subcommand(1);
  CLI::App* verb =
      group->add_subcommand("show", "Print examples with what is trained, and count them");
  verb->add_option("files", options->files,
                   ".jsonl, .json, .csv, .tsv or .txt, each also with .gz; .bin with its .idx")
      ->required();
  verb->add_option("--tokenizer", options->tokenizer,
                   "Folder or file of the tokenizer, or bytes; needed for text");
  verb->add_option("--model", options->model,
                   "Model that the examples have to fit: preset, config.json or its folder");
  verb->add_option("--seq", options->seq,
                   "Most tokens of an example (default 256, or the model's positions)")
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 31));
  verb->add_option("--examples", options->examples, "Examples to print (default 1)")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 53));
  add_example_options(*verb, options->example);
  verb->add_option("--color", options->color,
                   "auto (default): on a terminal, unless NO_COLOR is set; always; never: trained "
                   "text stands in brackets")
      ->check(CLI::IsMember({"auto", "always", "never"}));
  verb->add_flag("--json", options->json, "Print the counts as JSON, a line for each file");
  verb->callback([options, &action] { action = [options] { return show_data(*options); }; });
}

}  // namespace zinc::apps
