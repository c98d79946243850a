#include "apps/evaluate/evaluate_model.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "apps/command.h"
#include "apps/generate/generation_options.h"
#include "apps/rank_job.h"
#include "apps/run_examples.h"
#include "apps/run_tokenizer.h"
#include "comm/agreement.h"
#include "comm/world.h"
#include "core/device_checks.h"
#include "core/error.h"
#include "core/exit_codes.h"
#include "core/philox.h"
#include "data/loader.h"
#include "files/atomic_file.h"
#include "files/json/writer.h"
#include "hub/family.h"
#include "hub/model_config.h"
#include "text/scores/labels.h"
#include "train/evaluation/choice_questions.h"
#include "train/evaluation/evaluated_model.h"
#include "train/evaluation/written_answers.h"
#include "train/metrics/progress.h"

namespace zinc::apps {
namespace {

constexpr int64_t kPadToMultiple = 8;  // tokens, of a batch of examples
// Ranks with whole weights meet at the end alone.
constexpr std::chrono::hours kPatienceUntilTheEnd{24 * 7};

struct EvaluationMetrics {
  bool perplexity = false;
  bool choice = false;
  std::vector<std::string> of_texts{};
};

EvaluationMetrics parse_metrics(const std::vector<std::string>& names) {
  EvaluationMetrics metrics;
  for (const std::string& name : names) {
    if (name == "perplexity") {
      metrics.perplexity = true;
    } else if (name == "choice") {
      metrics.choice = true;
    } else {
      text::score_of(name, std::vector<text::TextPair>{});  // throws for a name that is none
      metrics.of_texts.push_back(name);
    }
  }
  if (metrics.choice && (metrics.perplexity || !metrics.of_texts.empty())) {
    throw ConfigError(
        "--metric choice reads questions with choices, which other metrics do not; give it alone");
  }
  return metrics;
}

// Questions whose answers are written, and how.
struct Writing {
  std::vector<data::ExampleMaker> makers;  // of each file
  std::vector<std::vector<train::PlacedQuestion>> questions;
};

struct Figure {
  std::string name;
  double value = 0.0;
};

// One evaluation, in the order in which it is made.
class EvaluationJob final : public RankJob {
 public:
  explicit EvaluationJob(const ModelEvaluation& options) : options_(options) {}

  void prepare() override {
    metrics_ = parse_metrics(options_.metrics);
    const std::optional<DType> dtype = parse_dtype(options_.dtype);
    if (!dtype || !is_float(*dtype) || *dtype == DType::f64) {
      throw ConfigError(fmt::format("--dtype must be f32, bf16 or f16, not '{}'", options_.dtype));
    }
    dtype_ = *dtype;
    require_device(parse_device(options_.device), dtype_);
    config_ = hub::read_model_config(options_.model);
    tokenizer_ = find_tokenizer(options_.tokenizer, options_.model);
    positions_ = hub::max_positions(config_.config);
    seq_ = options_.seq > 0 ? options_.seq : std::min(positions_, kDefaultSequence);
    require_positions("--seq", seq_);
    require_positions("--context", options_.generate.context);
    if (options_.stop_token >= 0) {
      text::require_in_vocabulary("--stop-token", {&options_.stop_token, 1}, vocabulary());
    }
    classifies_ = hub::objective(config_.config).kind == hub::Objective::class_of_text;
    if (metrics_.perplexity || classifies_) {
      data_ = find_run_data(options_.data, tokenizer_);
      data_->fit(config_, seq_);
    }
    if (metrics_.choice) read_choices();
    if (!metrics_.of_texts.empty() && !classifies_) read_all_questions();
    weights_ = fingerprint_of_weights(options_.model);
  }

  comm::World connect(bool prepared) override {
    return apps::connect({.device = options_.device,
                          .num_threads = options_.num_threads,
                          .sharded = options_.sharded},
                         prepared);
  }

  std::vector<RankStep> steps(comm::World& world) override {
    return {RankStep::together([&] {
              world.communicator().set_deadline(kPatienceUntilTheEnd);
              comm::require_agreement(world, std::array{fingerprint()});
            }),
            RankStep::together([&] { prepare_data(world); }), RankStep::together([&] {
              const auto deadline = comm::ConnectOptions{}.deadline;
              if (options_.sharded) world.communicator().set_deadline(deadline);
              open(world);
            }),
            RankStep::together([&] { run(world); }), RankStep::together([&] {
              if (world.is_main()) print();
            })};
  }

 private:
  comm::Fingerprint fingerprint() const {
    std::string text;
    for (const std::string& name : options_.metrics) text += name + ' ';
    text += str(seq_, ' ', options_.batch, ' ', options_.limit, ' ', options_.sharded, ' ',
                weights_, ' ', options_.dtype, ' ', words_of(options_.generate), ' ',
                options_.stop_token, ' ', options_.stop_text, ' ');
    if (data_ != nullptr) text += str(data_->hash(), ' ');
    for (const auto& file : writing_.questions) {
      for (const train::PlacedQuestion& one : file) {
        text += one.question.prompt + '\n' + one.question.answer + '\n';
      }
    }
    for (const train::ChoiceQuestion& one : choices_) {
      text += str(one.question, '\n', one.choices.size(), '\n');
    }
    return {"model, data and settings of the evaluation", hash_text(text)};
  }

  // Tokens of the records, made by one rank of each host.
  void prepare_data(comm::World& world) {
    if (data_ == nullptr) return;
    const std::atomic<bool> never{false};
    if (world.info().local_rank == 0) {
      data_->prepare(never, [&](const std::string& text) { live(world, text); });
      live(world, "");
    }
  }

  void open(comm::World& world) {
    if (data_ != nullptr) data_->open();
    model_.emplace(
        options_.model, config_.config, world,
        train::EvaluatedModelOptions{.dtype = dtype_,
                                     .sharded = options_.sharded,
                                     .sequences = data_ != nullptr ? options_.batch : 1,
                                     .positions = data_ != nullptr && !metrics_.choice &&
                                                          (metrics_.of_texts.empty() || classifies_)
                                                      ? seq_
                                                      : positions_});
  }

  void run(comm::World& world) {
    if (metrics_.perplexity) find_perplexity(world);
    if (metrics_.choice) find_choices(world);
    if (!metrics_.of_texts.empty() && classifies_) find_classes(world);
    if (!metrics_.of_texts.empty() && !classifies_) write_texts(world);
  }

  void print() const {
    files::json::Writer json;
    json.begin_object().member("model", options_.model).member("examples", examples_);
    if (metrics_.perplexity) json.member("tokens", targets_);
    for (const Figure& figure : figures_) json.member(figure.name, figure.value);
    if (options_.json) return fmt::print("{}\n", json.end_object().take());
    fmt::print("model      {}: {}, vocabulary {}, {}\n", options_.model,
               hub::model_type(config_.config), vocabulary(), zinc::name_of(dtype_));
    fmt::print("tokenizer  {}\n", tokenizer_.describe());
    for (const std::string& line : lines_) fmt::print("{}\n", line);
    fmt::print("\n");
    for (const Figure& figure : figures_) fmt::print("{:16} {:.6f}\n", figure.name, figure.value);
  }

  int64_t vocabulary() const { return hub::vocabulary_size(config_.config); }

  const text::Tokenizer& text_tokenizer() const {
    return tokenizer_.tokenizer != nullptr ? *tokenizer_.tokenizer : bytes_;
  }

  void require_positions(std::string_view option, int64_t value) const {
    if (value <= positions_) return;
    throw ConfigError(
        fmt::format("{} {} is longer than the model's {} positions", option, value, positions_));
  }

  void read_choices() {
    for (const std::string& path : options_.data.data) {
      require_own_tokens(tokenizer_, path, text_tokenizer().vocabulary_size(), vocabulary());
      const std::string& given = options_.data.examples.fields;
      std::optional<train::ChoiceFields> fields;
      if (!given.empty()) fields = train::parse_choice_fields(given);
      auto questions = train::read_choice_questions(path, fields ? &*fields : nullptr,
                                                    options_.data.examples.skip_bad);
      lines_.push_back(fmt::format("{}: {} questions with choices", path, questions.size()));
      choices_.insert(choices_.end(), std::make_move_iterator(questions.begin()),
                      std::make_move_iterator(questions.end()));
    }
    std::vector<train::ChoiceQuestion> some;
    for (const int64_t i : train::spread_indices(std::ssize(choices_), options_.limit)) {
      some.push_back(choices_[static_cast<size_t>(i)]);
    }
    choices_ = std::move(some);
    pattern_.between = " ";
    if (!options_.data.examples.pattern.empty()) {
      pattern_ = data::parse_pattern_of_prompt(options_.data.examples.pattern);
    }
  }

  void read_all_questions() {
    for (const std::string& path : options_.data.data) {
      data::ExampleSettings settings =
          settings_of(options_.data.examples, path, &text_tokenizer(),
                      {.max_tokens = positions_, .vocabulary_size = 0});
      if (!settings.fields.text.empty() || !settings.fields.tokens.empty()) {
        throw ConfigError(fmt::format(
            "--metric {} compares answers, but {} has {} and no answers; --metric perplexity is "
            "for such data, or say by --fields prompt=NAME,answer=NAME which field is what",
            metrics_.of_texts.front(), path, settings.fields.describe()));
      }
      set_objective(settings, config_, options_.data.examples);
      require_own_tokens(tokenizer_, path, text_tokenizer().vocabulary_size(), vocabulary());
      data::ExampleMaker& maker = writing_.makers.emplace_back(&text_tokenizer(), settings);
      writing_.questions.push_back(
          train::read_questions(path, maker, options_.data.examples.skip_bad));
      lines_.push_back(fmt::format("{}: {}", path, describe_settings(settings)));
    }
    require_labels();
    limit_questions();
  }

  // --limit over all files together.
  void limit_questions() {
    std::vector<std::pair<size_t, size_t>> places;
    for (size_t f = 0; f < writing_.questions.size(); ++f) {
      for (size_t i = 0; i < writing_.questions[f].size(); ++i) places.emplace_back(f, i);
    }
    std::vector<std::vector<train::PlacedQuestion>> some(writing_.questions.size());
    for (const int64_t i : train::spread_indices(std::ssize(places), options_.limit)) {
      const auto [file, number] = places[static_cast<size_t>(i)];
      some[file].push_back(std::move(writing_.questions[file][number]));
    }
    writing_.questions = std::move(some);
  }

  // f1 is of one label, which has to be there.
  void require_labels() const {
    if (std::ranges::find(metrics_.of_texts, "f1") == metrics_.of_texts.end()) return;
    std::vector<std::string> labels;
    for (const auto& file : writing_.questions) {
      for (const train::PlacedQuestion& one : file) {
        if (one.question.answer == options_.scores.positive) return;
        if (std::ranges::find(labels, one.question.answer) == labels.end() && labels.size() < 4) {
          labels.push_back(one.question.answer);
        }
      }
    }
    throw ConfigError(fmt::format(
        "--metric f1 is of the label '{}' (--positive), which no answer is; the first are '{}'. "
        "f1_micro and f1_macro are of all labels",
        options_.scores.positive, fmt::join(labels, "', '")));
  }

  data::EvaluationSet set_of(const comm::World& world) const {
    return {*data_->validation().front(),
            {.batch = options_.batch,
             .seq_len = seq_,
             .pad_multiple = data_->has_lengths() ? kPadToMultiple : 0,
             .max_samples = options_.limit,
             .rank = world.rank(),
             .world = world.size()}};
  }

  // Finds the class of each text, and the figures that compare classes.
  void find_classes(comm::World& world) {
    const data::EvaluationSet set = set_of(world);
    std::vector<std::vector<int32_t>> found, wanted;
    train::for_each_of_rank(world, set.num_batches(), [&](int64_t item) {
      const nn::Batch batch = set.batch(item >= 0 ? item / world.size() : set.num_rounds() - 1);
      std::vector<int32_t> classes = model_->classify(batch);
      if (item < 0) return;
      const std::vector<int64_t> wide = batch["labels"].to_vector<int64_t>();
      std::vector<int32_t> labels(wide.begin(), wide.end());
      while (!labels.empty() && labels.back() == nn::kIgnoredLabel)
        labels.pop_back();  // empty rows
      classes.resize(labels.size());
      found.push_back(std::move(classes));
      wanted.push_back(std::move(labels));
      live(world, fmt::format("classes: {}/{} batches", item + 1, set.num_batches()));
    });
    live(world, "");
    found = train::gather_items(world, set.num_batches(), found);
    wanted = train::gather_items(world, set.num_batches(), wanted);
    std::vector<std::string> names = options_.data.examples.classes;
    if (names.empty()) names = hub::class_names(config_);
    const auto name_of = [&](int32_t index) {
      return names.empty() ? str(index) : names[static_cast<size_t>(index)];
    };
    std::vector<text::TextPair> pairs;
    for (size_t i = 0; i < found.size(); ++i) {
      for (size_t row = 0; row < found[i].size(); ++row) {
        pairs.push_back(
            {.prediction = name_of(found[i][row]), .references = {name_of(wanted[i][row])}});
      }
    }
    examples_ = set.num_samples();
    if (!metrics_.perplexity) {
      for (std::string& line : data_->notes()) lines_.push_back(std::move(line));
    }
    lines_.push_back(fmt::format("classes of {} {}", examples_, data_->samples_are()));
    score(pairs, world);
  }

  void score(const std::vector<text::TextPair>& pairs, const comm::World& world) {
    for (const std::string& metric : metrics_.of_texts) {
      figures_.push_back({metric, text::score_of(metric, pairs, options_.scores)});
    }
    note_strangers(pairs);
    if (!options_.predictions.empty() && world.is_main()) save(pairs);
  }

  void find_perplexity(comm::World& world) {
    const data::EvaluationSet set = set_of(world);
    std::vector<double> sums, targets;
    train::for_each_of_rank(world, set.num_batches(), [&](int64_t item) {
      const zero::Evaluation part = model_->evaluate(
          set.batch(static_cast<int64_t>(item >= 0 ? item / world.size() : set.num_rounds() - 1)));
      if (item < 0) return;
      sums.push_back(part.loss_sum);
      targets.push_back(static_cast<double>(part.num_targets));
      live(world, fmt::format("perplexity: {}/{} batches", item + 1, set.num_batches()));
    });
    live(world, "");
    // Batch after batch in the order of their index, whoever computed them.
    zero::Evaluation total;
    const std::vector<double> all_sums = train::gather_items(world, set.num_batches(), sums);
    const std::vector<double> all_targets = train::gather_items(world, set.num_batches(), targets);
    for (size_t i = 0; i < all_sums.size(); ++i) {
      total += {.loss_sum = all_sums[i], .num_targets = static_cast<int64_t>(all_targets[i])};
    }
    if (total.num_targets == 0) {
      throw DataError(fmt::format(
          "{}: no token of {} {} is one that the model is asked for; give more of them, or for a "
          "model of hidden tokens a larger --mlm-probability",
          data_->validation().front()->describe(), set.num_samples(), data_->samples_are()));
    }
    if (!std::isfinite(total.mean())) {
      throw NumericsError(fmt::format(
          "the mean loss over {} is not a number: the weights of '{}' are damaged, or too large "
          "for {}",
          data_->validation().front()->describe(), options_.model, zinc::name_of(dtype_)));
    }
    examples_ = set.num_samples();
    targets_ = total.num_targets;
    for (std::string& line : data_->notes()) lines_.push_back(std::move(line));
    lines_.push_back(fmt::format("perplexity of {} trained tokens in {} of {} {}", targets_,
                                 examples_, data_->validation().front()->num_samples(),
                                 data_->samples_are()));
    figures_.push_back({"loss", total.mean()});
    figures_.push_back({"perplexity", text::perplexity(total.mean())});
  }

  void find_choices(comm::World& world) {
    const train::ChoiceScores scores = train::score_choices(
        *model_, text_tokenizer(), pattern_, choices_,
        [&](int64_t done) { live(world, fmt::format("choices: {} scored", done)); });
    live(world, "");
    examples_ = scores.questions;
    lines_.push_back(fmt::format("{} choices of {} questions", scores.choices, scores.questions));
    figures_ = {{"acc", scores.acc},
                {"acc_error", scores.acc_error},
                {"acc_norm", scores.acc_norm},
                {"acc_norm_error", scores.acc_norm_error},
                {"acc_bytes", scores.acc_bytes},
                {"acc_bytes_error", scores.acc_bytes_error}};
  }

  void write_texts(comm::World& world) {
    train::WriteOptions write{.generate = options_.generate, .stop_text = options_.stop_text};
    if (write.generate.context == 0) write.generate.context = positions_;
    if (options_.stop_token >= 0) write.generate.stop_tokens = {options_.stop_token};
    std::vector<text::TextPair> pairs;
    int64_t tokens = 0, cut = 0;
    for (size_t f = 0; f < writing_.makers.size(); ++f) {
      if (writing_.questions[f].empty()) continue;
      train::WriteOptions own = write;
      if (own.stop_text.empty()) own.stop_text = writing_.makers[f].settings().pattern.behind;
      train::WrittenAnswers answers =
          train::write_answers(*model_, text_tokenizer(), writing_.makers[f], writing_.questions[f],
                               own, [&](int64_t done) {
                                 live(world, fmt::format("{}: {}/{} answers", options_.data.data[f],
                                                         done, writing_.questions[f].size()));
                               });
      live(world, "");
      tokens += answers.tokens;
      cut += answers.cut_prompts;
      pairs.insert(pairs.end(), std::make_move_iterator(answers.pairs.begin()),
                   std::make_move_iterator(answers.pairs.end()));
    }
    examples_ = std::ssize(pairs);
    lines_.push_back(fmt::format("{} answers of {} tokens", pairs.size(), tokens));
    if (cut > 0) {
      lines_.push_back(
          fmt::format("note: {} prompts are longer than {} tokens: the model does "
                      "not see their front",
                      cut, write.generate.context));
    }
    score(pairs, world);
  }

  // A model may write anything: notes the answers that are none of the labels.
  void note_strangers(const std::vector<text::TextPair>& pairs) {
    const bool of_labels = std::ranges::any_of(metrics_.of_texts, [](const std::string& metric) {
      return metric == "accuracy" || metric.starts_with("f1");
    });
    std::set<std::string> labels;
    for (const text::TextPair& pair : pairs) labels.insert(pair.references.front());
    const auto strangers = std::ranges::count_if(
        pairs, [&](const text::TextPair& pair) { return !labels.contains(pair.prediction); });
    if (!of_labels || strangers == 0) return;
    lines_.push_back(fmt::format("note: {} of {} answers are none of the {} labels of the data",
                                 strangers, pairs.size(), labels.size()));
  }

  void save(const std::vector<text::TextPair>& pairs) const {
    std::string text;
    for (const text::TextPair& pair : pairs) {
      files::json::Writer line;
      line.begin_object().member("prediction", pair.prediction);
      line.member("reference", pair.references.front());
      text += line.end_object().take() + '\n';
    }
    files::write_file_atomically(options_.predictions, text);
  }

  // A line that the next one takes the place of; empty: none.
  static void live(const comm::World& world, const std::string& text) {
    if (!world.is_main() || isatty(STDERR_FILENO) != 1) return;
    fmt::print(stderr, "\r{}\033[K", text);
  }

  const ModelEvaluation& options_;
  EvaluationMetrics metrics_;
  DType dtype_ = DType::f32;
  hub::ModelConfigFile config_;
  RunTokenizer tokenizer_;
  const text::ByteTokenizer bytes_;
  int64_t positions_ = 0, seq_ = 0;
  uint64_t weights_ = 0;
  bool classifies_ = false;
  std::unique_ptr<RunData> data_;
  Writing writing_;
  std::vector<train::ChoiceQuestion> choices_;
  data::PromptPattern pattern_;
  std::optional<train::EvaluatedModel> model_;
  int64_t examples_ = 0, targets_ = 0;
  std::vector<std::string> lines_;
  std::vector<Figure> figures_;
};

}  // namespace

int evaluate_model(const ModelEvaluation& options) {
  return run_on_ranks(std::make_unique<EvaluationJob>(options));
}

void add_model_evaluation_options(CLI::App& verb, ModelEvaluation& options) {
  options.data.evaluates = true;
  verb.add_option("--model", options.model, "Folder with config.json and safetensors");
  verb.add_option("--data", options.data.data,
                  "What the model is evaluated on: files as zinc train reads them");
  verb.add_option(
      "--tokenizer", options.tokenizer,
      "Folder or file of the tokenizer (default: that of the model's folder, or bytes)");
  add_example_options(verb, options.data.examples);
  verb.add_option("--cache", options.data.cache,
                  "Records: folder for their tokens (default: .zinc-cache beside the data)");
  verb.add_option("--limit", options.limit,
                  "Only so many examples, evenly spread over the data (default: all)")
      ->check(CLI::PositiveNumber);
  verb.add_option("--seq", options.seq,
                  "Most tokens of an example for perplexity (default 256, or the model's positions "
                  "if fewer)")
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 31));
  verb.add_option("--batch", options.batch, "Sequences at once for perplexity (default 4)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  verb.add_option("--tokens", options.generate.max_tokens,
                  "Most tokens of a written answer (default 256)")
      ->check(CLI::PositiveNumber);
  add_sampling_options(verb, options.generate);
  verb.add_option("--stop-token", options.stop_token,
                  "A token that ends an answer (default: the chat format's or the tokenizer's)");
  verb.add_option("--stop-text", options.stop_text,
                  "Text that ends an answer and does not belong to it");
  verb.add_option("--save-predictions", options.predictions,
                  "File for the written answers, as --pairs reads them");
  verb.add_option("--dtype", options.dtype, "f32 (default), bf16 or f16");
  verb.add_option("--device", options.device,
                  "cpu (default); cuda: a GPU for each rank of a host; cuda:<i>");
  verb.add_option("--threads", options.num_threads, "Per rank (default: cores / ranks)")
      ->check(CLI::PositiveNumber);
  verb.add_flag("--sharded", options.sharded,
                "Spread the weights over the ranks: for a model that no rank can hold alone");
}

}  // namespace zinc::apps
