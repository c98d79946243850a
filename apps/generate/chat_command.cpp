// zinc chat: a conversation with a model in a terminal.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "apps/command.h"
#include "apps/generate/generation_options.h"
#include "apps/help/help_text.h"
#include "comm/world.h"
#include "core/device_checks.h"
#include "core/error.h"
#include "core/exit_codes.h"
#include "data/examples/chat_format.h"
#include "data/examples/example_maker.h"
#include "hub/model.h"
#include "text/stop_strings.h"
#include "text/tokenizer_folder.h"
#include "train/evaluation/evaluated_model.h"

namespace zinc::apps {
namespace {

struct ChatArguments {
  std::string model;
  std::string adapter;
  std::string tokenizer;
  std::string system;
  std::string format;
  GenerationArguments generation{};
  std::string dtype = "f32";
  std::string device = "cpu";
  int num_threads = 0;
};

class Conversation {
 public:
  Conversation(const ChatArguments& arguments, comm::World& world)
      : arguments_(arguments),
        config_(hub::read_model_config(arguments.model).config),
        positions_(positions_of_writer(arguments.model, config_)),
        tokenizer_(tokenizer_of(arguments, hub::vocabulary_size(config_))),
        format_(format_of(arguments, *tokenizer_)),
        maker_(tokenizer_.get(),
               {.fields = {.messages = "messages"}, .format = format_, .max_tokens = 2}),
        stops_(*tokenizer_, arguments.generation.stop_strings),
        model_(arguments.model, config_, world,
               {.dtype = *parse_dtype(arguments.dtype), .adapter = arguments.adapter}),
        goes_on_(nn::find_interface<nn::EncoderDecoderLm>(model_.model()) == nullptr) {
    SettledOptions settled = settled_options(arguments.generation, arguments.model, config_,
                                             positions_, tokenizer_.get());
    if (!settled.note.empty()) fmt::print(stderr, "note: {}\n", settled.note);
    options_ = std::move(settled.options);
    options_.cache_limit = memory_for_cache(world);
    const std::optional<int32_t> end = maker_.end_of_answer();
    if (arguments.generation.stop_tokens.empty() && end) options_.stop_tokens.push_back(*end);
    if (!stops_.empty()) {
      options_.ends = [this](std::span<const int32_t> tokens) { return stops_.end(tokens); };
    }
    reset();
  }

  void reset() {
    messages_.clear();
    if (!arguments_.system.empty()) messages_.push_back({data::Speaker::system, arguments_.system});
  }

  // Prints the answer as it is written.
  void say(const std::string& text) {
    messages_.push_back({data::Speaker::user, text});
    const std::vector<int32_t> prompt = fitting_prompt();
    text::AnswerStream stream(*tokenizer_, stops_, goes_on_);
    std::string answer;
    const auto show = [&](const std::string& more) {
      answer += more;
      std::fwrite(more.data(), 1, more.size(), stdout);
      std::fflush(stdout);
    };
    model_.generate({prompt}, options_, [&](int64_t, int32_t token) { show(stream.push(token)); });
    show(stream.finish());
    std::fwrite("\n", 1, 1, stdout);
    std::fflush(stdout);
    messages_.push_back({data::Speaker::assistant, answer});
    ++options_.seed;  // the same question may be answered in another way
  }

 private:
  static std::unique_ptr<text::Tokenizer> tokenizer_of(const ChatArguments& arguments,
                                                       int64_t vocabulary) {
    if (!arguments.tokenizer.empty()) return text::load_tokenizer(arguments.tokenizer);
    if (text::has_tokenizer(arguments.model)) return text::load_tokenizer(arguments.model);
    if (vocabulary == 256) return std::make_unique<text::ByteTokenizer>();
    throw DataError(
        fmt::format("'{}' has a vocabulary of {} and no tokenizer: give one by "
                    "--tokenizer (a model of bytes has a vocabulary of 256)",
                    arguments.model, vocabulary));
  }

  static data::ChatFormat format_of(const ChatArguments& arguments,
                                    const text::Tokenizer& tokenizer) {
    if (!arguments.format.empty()) return data::parse_chat_format(arguments.format);
    if (const auto found = data::chat_format_of(tokenizer)) return *found;
    throw ConfigError(fmt::format(
        "'{}': its tokenizer has the marks of no chat format; name the one that the model was "
        "trained on by --chat: llama3, chatml, mistral, chatglm3 or plain",
        arguments.model));
  }

  std::vector<int32_t> prompt_tokens() const {
    const std::vector<int32_t> tokens =
        maker_.encode_prompt(data::render_prompt(format_, messages_, "the conversation"));
    text::require_in_vocabulary("the conversation", tokens, hub::vocabulary_size(config_));
    return tokens;
  }

  // If the conversation and an answer are longer than the model sees, drops the oldest question
  // with its answer.
  std::vector<int32_t> fitting_prompt() {
    std::vector<int32_t> tokens = prompt_tokens();
    const int64_t seen = options_.context > 0 ? options_.context : positions_;
    if (seen == 0) return tokens;
    const int64_t room = seen - std::min(options_.max_tokens, seen / 2);
    const auto first = messages_.begin() + (arguments_.system.empty() ? 0 : 1);
    while (std::ssize(tokens) > room && messages_.end() - first > 1) {
      messages_.erase(first, first + 2);
      tokens = prompt_tokens();
      fmt::print(stderr,
                 "note: the oldest question is forgotten: the conversation is longer than "
                 "the {} tokens that the model sees\n",
                 seen);
    }
    if (std::ssize(tokens) <= seen || options_.context > 0) return tokens;
    messages_.pop_back();
    throw DataError(fmt::format(
        "the message{} makes {} tokens, the model has {} positions; shorten it, or let the model "
        "see the last tokens alone by --context {}",
        arguments_.system.empty() ? "" : ", behind the text of --system,", tokens.size(),
        positions_, positions_));
  }

  const ChatArguments& arguments_;
  hub::ModelConfig config_;
  int64_t positions_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  data::ChatFormat format_;
  data::ExampleMaker maker_;
  text::StopStrings stops_;
  train::EvaluatedModel model_;
  bool goes_on_;  // the answer, from the prompt
  generate::GenerateOptions options_;
  std::vector<data::Message> messages_;
};

int chat(const ChatArguments& arguments) {
  const std::optional<DType> dtype = parse_dtype(arguments.dtype);
  if (!dtype || !is_float(*dtype) || *dtype == DType::f64) {
    throw ConfigError(fmt::format("--dtype must be f32, bf16 or f16, not '{}'", arguments.dtype));
  }
  const Device device = parse_device(arguments.device);
  require_device(device, *dtype);
  comm::World world = comm::connect({.device = device,
                                     .num_threads = arguments.num_threads,
                                     .execution = ContextOptions::Execution::inline_all});
  if (world.size() > 1) throw ConfigError("zinc chat talks from one process; start it alone");
  Conversation conversation(arguments, world);
  const bool on_terminal = isatty(STDIN_FILENO) == 1;
  if (on_terminal) fmt::print("/reset forgets what was said, /exit ends\n");
  std::string line;
  while (true) {
    if (on_terminal) fmt::print("> ");
    std::fflush(stdout);
    if (!std::getline(std::cin, line) || line == "/exit") break;
    if (line == "/reset") {
      conversation.reset();
      continue;
    }
    if (line.empty()) continue;
    try {
      conversation.say(line);
    } catch (const DataError& error) {
      if (!on_terminal) throw;
      fmt::print(stderr, "zinc: {}\n", error.what());
    }
  }
  if (on_terminal) fmt::print("\n");
  return kDone;
}

}  // namespace

void add_chat_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<ChatArguments>();
  CLI::App* verb = app.add_subcommand("chat", "Talk with a model: a message a line");
  verb->add_option("--model", options->model, "Folder with config.json and weights")->required();
  verb->add_option("--adapter", options->adapter, "Folder of an adapter of that model");
  verb->add_option("--tokenizer", options->tokenizer,
                   "Folder or file of the tokenizer (default: that of the model's folder)");
  verb->add_option("--system", options->system, "What the model is told before the conversation");
  verb->add_option("--chat", options->format,
                   "Chat format: llama3, chatml, mistral, chatglm3 or plain (default: the one "
                   "whose marks the tokenizer has)");
  add_generation_options(*verb, options->generation);
  verb->add_option("--dtype", options->dtype, "f32 (default), bf16 or f16");
  verb->add_option("--device", options->device, "cpu (default), cuda or cuda:<i>");
  verb->add_option("--threads", options->num_threads, "0: all cores (default)");
  begin_help(*verb, {"--model", "--system", "--tokens", "--temperature"},
             "zinc chat --model model-folder --adapter tuned/final", "docs/generation.md");
  put_into(*verb, kOfModel, {"--adapter", "--tokenizer", "--chat"});
  put_into(*verb, kOfMemory, {"--dtype"});
  put_into(*verb, kOfRanks, {"--device", "--threads"});
  verb->callback([options, &action] { action = [options] { return chat(*options); }; });
}

}  // namespace zinc::apps
