// zinc generate: texts from a folder of weights, on all ranks that there are.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "apps/command.h"
#include "apps/generate/generation_options.h"
#include "apps/help/help_text.h"
#include "apps/rank_job.h"
#include "comm/agreement.h"
#include "comm/world.h"
#include "core/context.h"
#include "core/device_checks.h"
#include "core/error.h"
#include "core/exit_codes.h"
#include "core/philox.h"
#include "data/records/record_reader.h"
#include "files/atomic_file.h"
#include "files/json/writer.h"
#include "hub/model.h"
#include "text/stop_strings.h"
#include "text/tokenizer_folder.h"
#include "train/evaluation/evaluated_model.h"

namespace zinc::apps {
namespace {

constexpr std::chrono::hours kGeneratingRanksWait{24 * 7};  // ranks with whole weights

struct GenerateArguments {
  std::string model;
  std::string adapter;
  std::string tokenizer;
  std::string prompt = "\n";
  std::string prompts;  // file
  std::string out;      // file; empty: stdout
  GenerationArguments generation{};
  int64_t batch_size = 8;
  std::string dtype = "f32";
  std::string device = "cpu";
  int num_threads = 0;
  bool sharded = false;
};

struct Prompt {
  std::string text;  // empty where the file has token ids
  std::vector<int32_t> tokens;
};

// The texts of a batch as numbers that ranks can gather, and back.
std::vector<int32_t> packed(const std::vector<generate::GeneratedTexts>& batch) {
  std::vector<int32_t> numbers;
  for (const generate::GeneratedTexts& texts : batch) {
    for (const generate::GeneratedText& text : texts) {
      const auto score = std::bit_cast<std::array<int32_t, 2>>(text.score);
      numbers.insert(numbers.end(), {static_cast<int32_t>(text.tokens.size()), text.stopped ? 1 : 0,
                                     score[0], score[1]});
      numbers.insert(numbers.end(), text.tokens.begin(), text.tokens.end());
    }
  }
  return numbers;
}

std::vector<generate::GeneratedText> unpacked(std::span<const int32_t> numbers) {
  std::vector<generate::GeneratedText> texts;
  while (!numbers.empty()) {
    const auto count = static_cast<size_t>(numbers[0]);
    generate::GeneratedText& text = texts.emplace_back();
    text.stopped = numbers[1] != 0;
    text.score = std::bit_cast<double>(std::array{numbers[2], numbers[3]});
    text.tokens.assign(numbers.begin() + 4, numbers.begin() + 4 + static_cast<int64_t>(count));
    numbers = numbers.subspan(4 + count);
  }
  return texts;
}

class GenerationJob final : public RankJob {
 public:
  explicit GenerationJob(const GenerateArguments& arguments) : arguments_(arguments) {}

  void prepare() override {
    const std::optional<DType> dtype = parse_dtype(arguments_.dtype);
    if (!dtype || !is_float(*dtype) || *dtype == DType::f64) {
      throw ConfigError(
          fmt::format("--dtype must be f32, bf16 or f16, not '{}'", arguments_.dtype));
    }
    dtype_ = *dtype;
    require_device(parse_device(arguments_.device), dtype_);
    if (arguments_.prompts.empty() && !arguments_.out.empty()) {
      throw ConfigError("--out is for the texts of --prompts; leave it out to see the text");
    }
    config_ = hub::read_model_config(arguments_.model).config;
    const bool has_tokenizer =
        !arguments_.tokenizer.empty() || text::has_tokenizer(arguments_.model);
    if (has_tokenizer) {
      tokenizer_ = text::load_tokenizer(arguments_.tokenizer.empty() ? arguments_.model
                                                                     : arguments_.tokenizer);
    } else if (vocabulary() == 256) {
      tokenizer_ = std::make_unique<text::ByteTokenizer>();
    }
    if (tokenizer_ != nullptr) {
      stops_.emplace(*tokenizer_, arguments_.generation.stop_strings);
    } else if (!arguments_.generation.stop_strings.empty()) {
      text_tokenizer();
    }
    read_prompts();
    positions_ = positions_of_writer(arguments_.model, config_);
    SettledOptions settled = settled_options(arguments_.generation, arguments_.model, config_,
                                             positions_, tokenizer_.get());
    note_ = std::move(settled.note);
    options_ = std::move(settled.options);
    require_prompts_fit();
    weights_ = fingerprint_of_weights(arguments_.model, arguments_.adapter);
  }

  comm::World connect(bool prepared) override {
    return apps::connect({.device = arguments_.device,
                          .num_threads = arguments_.num_threads,
                          .sharded = arguments_.sharded},
                         prepared);
  }

  std::vector<RankStep> steps(comm::World& world) override {
    return {RankStep::together([&] {
              if (!arguments_.sharded) world.communicator().set_deadline(kGeneratingRanksWait);
              comm::require_agreement(world, std::array{fingerprint()});
            }),
            RankStep::together([&] { open(world); }), RankStep::together([&] { run(world); }),
            RankStep::together([&] {
              if (world.is_main()) save();
            })};
  }

 private:
  comm::Fingerprint fingerprint() const {
    std::string text = str(arguments_.sharded, ' ', arguments_.batch_size, ' ', weights_, ' ',
                           arguments_.dtype, ' ', words_of(options_), '\n');
    for (const std::string& stop : arguments_.generation.stop_strings) text += stop + '\n';
    for (const Prompt& prompt : prompts_) {
      for (const int32_t token : prompt.tokens) text += str(' ', token);
      text += '\n';
    }
    return {"model, prompts and settings of the generation", hash_text(text)};
  }

  void open(comm::World& world) {
    if (world.is_main() && !note_.empty()) fmt::print(stderr, "note: {}\n", note_);
    if (stops_ && !stops_->empty()) {
      options_.ends = [this](std::span<const int32_t> tokens) { return stops_->end(tokens); };
    }
    model_.emplace(arguments_.model, config_, world,
                   train::EvaluatedModelOptions{.dtype = dtype_,
                                                .sharded = arguments_.sharded,
                                                .positions = hub::max_positions(config_),
                                                .adapter = arguments_.adapter});
    options_.cache_limit = memory_for_cache(world);
    is_encoder_decoder_ = nn::find_interface<nn::EncoderDecoderLm>(model_->model()) != nullptr;
  }

  void run(comm::World& world) {
    if (arguments_.prompts.empty()) return write_one(world);
    const int64_t count =
        (std::ssize(prompts_) + arguments_.batch_size - 1) / arguments_.batch_size;
    std::vector<std::vector<int32_t>> mine;
    train::for_each_of_rank(world, count, [&](int64_t item) {
      std::vector<std::vector<int32_t>> batch;
      const int64_t first = item * arguments_.batch_size;
      const int64_t last = std::min(first + arguments_.batch_size, std::ssize(prompts_));
      for (int64_t i = first; item >= 0 && i < last; ++i) {
        batch.push_back(prompts_[static_cast<size_t>(i)].tokens);
      }
      generate::GenerateOptions own = options_;
      own.seed += static_cast<uint64_t>(std::max<int64_t>(first, 0));
      const auto texts = model_->generate(std::move(batch), own);
      if (item < 0) return;
      mine.push_back(packed(texts));
      if (world.is_main() && isatty(STDERR_FILENO) == 1) {
        fmt::print(stderr, "\rprompts: {}/{}\033[K", last, prompts_.size());
      }
    });
    for (const std::vector<int32_t>& batch : train::gather_items(world, count, mine)) {
      for (generate::GeneratedText& text : unpacked(batch)) texts_.push_back(std::move(text));
    }
    if (world.is_main() && isatty(STDERR_FILENO) == 1) fmt::print(stderr, "\r\033[K");
  }

  // The lines of --prompts, by the first rank.
  void save() const {
    if (arguments_.prompts.empty()) return;
    std::string lines;
    const auto of_each = static_cast<size_t>(options_.num_return_sequences);
    for (size_t p = 0, t = 0; p < prompts_.size(); ++p) {
      for (size_t n = 0; n < of_each && t < texts_.size(); ++n, ++t) {
        lines += line_of(prompts_[p], texts_[t], n) + '\n';
      }
    }
    if (!arguments_.out.empty()) return files::write_file_atomically(arguments_.out, lines);
    std::fwrite(lines.data(), 1, lines.size(), stdout);
  }

  int64_t vocabulary() const { return hub::vocabulary_size(config_); }

  const text::Tokenizer& text_tokenizer() const {
    if (tokenizer_ != nullptr) return *tokenizer_;
    throw DataError(fmt::format(
        "'{}' has a vocabulary of {} and no tokenizer: give one by --tokenizer (a model of bytes "
        "has a vocabulary of 256), or token ids by --prompts, as \"input_ids\"",
        arguments_.model, vocabulary()));
  }

  Prompt prompt_of(std::string text, const std::string& place) const {
    Prompt prompt{.text = std::move(text), .tokens = {}};
    prompt.tokens = text_tokenizer().encode_with_specials(prompt.text);
    if (prompt.tokens.empty()) throw ConfigError(fmt::format("{} must not be empty", place));
    text::require_in_vocabulary(place, prompt.tokens, vocabulary());
    return prompt;
  }

  Prompt prompt_of(const data::Record& record) const {
    if (const files::json::Value* ids = record.fields.find("input_ids")) {
      Prompt prompt;
      for (const files::json::Value& id : ids->as_array()) {
        prompt.tokens.push_back(static_cast<int32_t>(id.as_int64(0, int64_t{1} << 30)));
      }
      if (prompt.tokens.empty()) ids->fail("a prompt must have at least one token");
      text::require_in_vocabulary(record.place, prompt.tokens, vocabulary());
      return prompt;
    }
    for (const char* name : {"prompt", "text"}) {
      const files::json::Value* text = record.fields.find(name);
      if (text != nullptr) return prompt_of(data::text_of(*text), record.place + ": the prompt");
    }
    throw DataError(record.place +
                    ": no field \"prompt\" (text), \"text\" or \"input_ids\" (token ids)");
  }

  void read_prompts() {
    if (arguments_.prompts.empty()) {
      prompts_ = {prompt_of(arguments_.prompt, "--prompt")};
      return;
    }
    data::use_records(arguments_.prompts, std::nullopt,
                      [&](const data::Record& record) { prompts_.push_back(prompt_of(record)); });
  }

  void require_prompts_fit() const {
    for (size_t i = 0; options_.context == 0 && positions_ > 0 && i < prompts_.size(); ++i) {
      if (std::ssize(prompts_[i].tokens) <= positions_) continue;
      throw DataError(fmt::format(
          "prompt {} has {} tokens, the model {} positions; shorten it, or let the model see its "
          "last tokens alone by --context {}",
          i + 1, prompts_[i].tokens.size(), positions_, positions_));
    }
  }

  static void show(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }

  std::string text_of(const generate::GeneratedText& generated) const {
    text::AnswerStream stream(*tokenizer_, *stops_, !is_encoder_decoder_);
    std::string text;
    for (const int32_t token : generated.tokens) text += stream.push(token);
    return text + stream.finish();
  }

  // --prompt: what the first rank writes is seen while it comes.
  void write_one(comm::World& world) {
    if (!world.is_main()) {
      if (arguments_.sharded) model_->generate({}, options_);
      return;
    }
    const std::string before = is_encoder_decoder_ ? "" : arguments_.prompt;
    text::AnswerStream stream(*tokenizer_, *stops_, !is_encoder_decoder_);
    const bool streams = options_.num_return_sequences == 1;
    bool begun = false;  // what is refused prints nothing
    const auto show_next = [&](const std::string& more) {
      show(begun ? more : before + more);
      begun = true;
    };
    const auto texts =
        model_->generate({prompts_.front().tokens}, options_, [&](int64_t, int32_t token) {
          if (streams) show_next(stream.push(token));
        });
    if (streams) return show_next(stream.finish() + "\n");
    for (size_t i = 0; i < texts.front().size(); ++i) {
      show(fmt::format("[{}] {}{}\n", i + 1, before, text_of(texts.front()[i])));
    }
  }

  std::string line_of(const Prompt& prompt, const generate::GeneratedText& text,
                      size_t number) const {
    files::json::Writer line;
    line.begin_object();
    const auto ids = [&](const char* name, const std::vector<int32_t>& tokens) {
      line.key(name).begin_array();
      for (const int32_t token : tokens) line.value(token);
      line.end_array();
    };
    if (prompt.text.empty()) {
      ids("input_ids", prompt.tokens);
    } else {
      line.member("prompt", prompt.text);
    }
    if (options_.num_return_sequences > 1) line.member("sequence", static_cast<int64_t>(number));
    if (tokenizer_ != nullptr) line.member("text", text_of(text));
    ids("tokens", text.tokens);
    line.member("finish", text.stopped ? "stop" : "length");
    if (options_.beams.num_beams > 1) line.member("score", text.score);
    return line.end_object().take();
  }

  const GenerateArguments& arguments_;
  DType dtype_ = DType::f32;
  hub::ModelConfig config_;
  std::unique_ptr<text::Tokenizer> tokenizer_;  // null: prompts are token ids
  std::optional<text::StopStrings> stops_;
  int64_t positions_ = 0;  // of the model; 0: no limit
  uint64_t weights_ = 0;
  generate::GenerateOptions options_;
  std::string note_;  // on them
  std::vector<Prompt> prompts_;
  bool is_encoder_decoder_ = false;
  std::optional<train::EvaluatedModel> model_;
  std::vector<generate::GeneratedText> texts_;  // of all prompts
};

}  // namespace

void add_generate_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<GenerateArguments>();
  CLI::App* verb = app.add_subcommand("generate", "Write text with trained weights");
  verb->add_option("--model", options->model,
                   "Folder with config.json and weights: safetensors or pytorch_model.bin")
      ->required();
  verb->add_option("--adapter", options->adapter, "Folder of an adapter of that model");
  verb->add_option("--tokenizer", options->tokenizer,
                   "Folder or file of the tokenizer (default: that of the model's folder)");
  CLI::Option* prompt =
      verb->add_option("--prompt", options->prompt, "Text to go on from (default: a line break)");
  verb->add_option("--prompts", options->prompts,
                   "File of records: \"prompt\" or \"text\", or \"input_ids\"")
      ->excludes(prompt);
  verb->add_option("--out", options->out,
                   "File for the texts of --prompts, a line of JSON each (default: the terminal)");
  verb->add_option("--batch-size", options->batch_size,
                   "Prompts of --prompts that are written side by side on a rank (default 8)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  add_generation_options(*verb, options->generation);
  verb->add_option("--num-return-sequences", options->generation.options.num_return_sequences,
                   "Texts for each prompt (default 1)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  verb->add_option("--dtype", options->dtype, "f32 (default), bf16 or f16");
  verb->add_option("--device", options->device,
                   "cpu (default); cuda: a GPU for each rank of a host; cuda:<i>");
  verb->add_option("--threads", options->num_threads, "Per rank (default: cores / ranks)");
  verb->add_flag("--sharded", options->sharded,
                 "Spread the weights over the ranks: for a model that no rank can hold alone");
  begin_help(*verb, {"--model", "--prompt", "--prompts", "--out", "--tokens", "--temperature"},
             "zinc generate --model run/final --prompt \"In the beginning\" --tokens 100",
             "docs/generation.md");
  put_into(*verb, kOfModel, {"--adapter", "--tokenizer"});
  put_into(*verb, kOfWriting, {"--num-return-sequences"});
  put_into(*verb, kOfMemory, {"--dtype", "--batch-size"});
  put_into(*verb, kOfRanks, {"--device", "--threads", "--sharded"});
  verb->callback([options, &action] {
    action = [options] { return run_on_ranks(std::make_unique<GenerationJob>(*options)); };
  });
}

}  // namespace zinc::apps
