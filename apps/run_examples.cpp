#include "apps/run_examples.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "core/error.h"
#include "files/input_file.h"
#include "files/json/parser.h"
#include "files/json/writer.h"
#include "hub/family.h"
#include "train/metrics/progress.h"

namespace zinc::apps {
namespace {

data::Mask parse_mask(const std::string& name) {
  for (const data::Mask mask : {data::Mask::prompt_tokens, data::Mask::offsets, data::Mask::none}) {
    if (name == name_of(mask)) return mask;
  }
  throw ConfigError(fmt::format("--mask must be prompt, offsets or none, not '{}'", name));
}

// The text as a shell shows it: ends of lines as \n.
std::string escaped(std::string_view text) {
  std::string shown;
  for (const char c : text) {
    if (c == '\n') {
      shown += "\\n";
    } else if (c == '\t') {
      shown += "\\t";
    } else {
      shown += c;
    }
  }
  return shown;
}

std::string place_list(const data::CountedPlaces& counted) {
  std::string list;
  for (const std::string& place : counted.places) list += (list.empty() ? "" : ", ") + place;
  const int64_t more = counted.count - static_cast<int64_t>(counted.places.size());
  return more > 0 ? fmt::format("{} and {} more", list, more) : list;
}

void require_pattern_fits(const ExampleArguments& arguments, const data::FieldMap& fields) {
  if (arguments.pattern.empty()) return;
  if (!arguments.chat.empty() && arguments.chat != "plain") {
    throw ConfigError("--pattern and --chat both say how a prompt and its answer become a text");
  }
  if (fields.prompt.empty()) {
    throw ConfigError(fmt::format("--pattern joins a prompt and an answer, but the fields are {}",
                                  fields.describe()));
  }
}

// The text of a folder's chat template, of all where there are several; empty: there is none.
std::string chat_template_of(const std::string& folder) {
  constexpr int64_t kMostBytes = int64_t{16} << 20;
  if (files::file_exists(folder + "/chat_template.jinja")) {
    return files::read_text_file(folder + "/chat_template.jinja", kMostBytes);
  }
  const std::string file = folder + "/tokenizer_config.json";
  if (!files::file_exists(file)) return {};
  const files::json::Value config = files::json::parse_file(file);
  const files::json::Value* found = config.is_object() ? config.find("chat_template") : nullptr;
  if (found == nullptr || found->is_null()) return {};
  return found->is_string() ? found->as_string() : files::json::write(*found);
}

// A template that does not even write the format's marks.
bool has_another_template(const std::string& folder, data::ChatFormat format) {
  if (folder.empty()) return false;
  const std::string text = chat_template_of(folder);
  if (text.empty()) return false;
  const auto markers = data::markers_of(format);
  return markers.empty() || std::ranges::none_of(markers, [&](std::string_view marker) {
           return text.find(marker) != std::string::npos;
         });
}

}  // namespace

bool ExampleArguments::given() const {
  return !classes.empty() || !fields.empty() || !pattern.empty() || !chat.empty() ||
         mask != "prompt" || no_end || skip_bad != 0 || mlm_probability != 0.0;
}

void add_example_options(CLI::App& verb, ExampleArguments& arguments) {
  verb.add_option("--fields", arguments.fields,
                  "Which field of a record is what, as in prompt=question,answer=reply or "
                  "text=body (default: by looking at the first records)");
  verb.add_option("--pattern", arguments.pattern,
                  "How a prompt and its answer become a text (default \"{}\\n{}\")");
  verb.add_option(
      "--chat", arguments.chat,
      "Format of conversations: llama3, chatml, mistral, chatglm3 or plain (default: of "
      "messages the one whose marks are the tokenizer's tokens, else plain)");
  verb.add_option("--mask", arguments.mask,
                  "What is not trained: prompt (default), as many tokens as the prompt has alone; "
                  "offsets, what holds no byte of an answer; none, train on all");
  verb.add_option("--classes", arguments.classes,
                  "Classifiers: names of the classes in their order, as neg,pos (default: id2label "
                  "of the model's config.json, else records have numbers)")
      ->delimiter(',');
  verb.add_option("--mlm-probability", arguments.mlm_probability,
                  "Models of masked tokens: the share of tokens that are hidden (default 0.15)")
      ->check([](const std::string& text) {
        double value = 0.0;
        const bool fits = CLI::detail::lexical_cast(text, value) && value > 0.0 && value <= 1.0;
        return fits ? std::string() : "must lie between 0 and 1, not " + text;
      });
  verb.add_flag("--no-end", arguments.no_end, "Do not end examples with the end-of-text token");
  verb.add_option("--skip-bad", arguments.skip_bad,
                  "Damaged records that are left out; more are an error (default 0)")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 53));
}

data::ExampleSettings settings_of(const ExampleArguments& arguments, const std::string& file,
                                  const text::Tokenizer* tokenizer, const ExampleLimits& limits) {
  data::ExampleSettings settings{.fields = arguments.fields.empty()
                                               ? data::look_for_fields(file)
                                               : data::parse_fields(arguments.fields),
                                 .mask = parse_mask(arguments.mask),
                                 .max_tokens = limits.max_tokens,
                                 .end_token = !arguments.no_end,
                                 .vocabulary_size = limits.vocabulary_size};
  if (!settings.fields.tokens.empty()) {
    settings.loss_masks = data::loss_masks_of(data::first_records(file));
  }
  require_pattern_fits(arguments, settings.fields);
  if (!arguments.pattern.empty()) {
    settings.pattern = data::parse_pattern_of_prompt(arguments.pattern);
  }
  if (settings.fields.tokens.empty() && tokenizer == nullptr) {
    throw ConfigError(fmt::format("{} holds text: --tokenizer must name its tokenizer", file));
  }
  if (!arguments.chat.empty()) {
    settings.format = data::parse_chat_format(arguments.chat);
    if (!settings.fields.text.empty() || !settings.fields.tokens.empty()) {
      throw ConfigError(
          fmt::format("--chat formats messages, or prompts with answers, but the "
                      "fields are {}",
                      settings.fields.describe()));
    }
  } else if (!settings.fields.messages.empty()) {
    settings.format = data::chat_format_of(*tokenizer).value_or(data::ChatFormat::plain);
  }
  return settings;
}

void set_objective(data::ExampleSettings& settings, const hub::ModelConfigFile& model,
                   const ExampleArguments& arguments) {
  const hub::ModelObjective objective = hub::objective(model.config);
  const std::string_view type = hub::model_type(model.config);
  const bool of_classes = objective.kind == hub::Objective::class_of_text;
  const bool guesses = objective.kind == hub::Objective::masked_tokens;
  if (arguments.mlm_probability != 0.0 && !guesses) {
    throw ConfigError(fmt::format(
        "--mlm-probability hides tokens that are to be guessed, and {} learns {}", type,
        objective.kind == hub::Objective::next_tokens ? "the tokens that follow" : "none of them"));
  }
  if (!arguments.classes.empty() && !of_classes) {
    throw ConfigError(fmt::format("--classes names classes of texts, and {} learns none", type));
  }
  if (objective.kind == hub::Objective::next_tokens) return;
  const data::FieldMap& fields = settings.fields;
  if (guesses) {
    if (fields.text.empty() && fields.tokens.empty()) {
      throw ConfigError(fmt::format(
          "{} learns to guess tokens of a text, but the records have {}; say by --fields text=NAME "
          "which field is the text{}",
          type, fields.describe(),
          fields.answer.empty() ? "" : ", or by --classes which classes it is to learn"));
    }
    settings.labels = data::LabelsOf::masked;
    return;
  }
  if (!of_classes && objective.kind != hub::Objective::answer) {
    throw ConfigError(fmt::format(
        "zinc makes no {} of files of records, which {} learns; a program can, by "
        "zinc::data::make_dataset()",
        objective.kind == hub::Objective::classes_of_tokens ? "classes of tokens" : "batches",
        type));
  }
  const bool has_answer = !fields.answer.empty() || fields.has_seen(fields.labels);
  if (settings.format != data::ChatFormat::plain) {
    throw ConfigError(
        fmt::format("{} reads a text whole, and no chat; leave --chat out, and name "
                    "by --fields the text and what is learned of it",
                    type));
  }
  if (!has_answer) {
    throw ConfigError(fmt::format(
        "{} learns {} of a text, but the records have {}; say by --fields {} which field is what",
        type, of_classes ? "the class" : "the answer", fields.describe(),
        of_classes ? "prompt=TEXT,answer=CLASS" : "prompt=TEXT,answer=ANSWER"));
  }
  settings.labels = of_classes ? data::LabelsOf::row : data::LabelsOf::text;
  if (!of_classes) return;
  settings.num_classes = objective.num_classes;
  settings.classes = arguments.classes.empty() ? hub::class_names(model) : arguments.classes;
  if (!settings.classes.empty() && std::ssize(settings.classes) != settings.num_classes) {
    throw ConfigError(fmt::format("{} names {} classes, but the model has {} (num_labels)",
                                  arguments.classes.empty() ? "config.json" : "--classes",
                                  settings.classes.size(), settings.num_classes));
  }
}

std::string describe_settings(const data::ExampleSettings& settings) {
  std::string words = settings.fields.describe();
  const bool plain = settings.format == data::ChatFormat::plain;
  if (settings.labels == data::LabelsOf::masked) return words + "; tokens guessed";
  if (settings.labels == data::LabelsOf::row) {
    const std::string names =
        settings.classes.empty() ? "" : fmt::format(": {}", fmt::join(settings.classes, ", "));
    return words + fmt::format("; {} classes{}", settings.num_classes, names);
  }
  if (settings.labels == data::LabelsOf::text && !settings.fields.tokens.empty()) {
    return words + "; labels written";
  }
  if (!settings.fields.messages.empty() || !plain) {
    words += fmt::format("; chat {}", name_of(settings.format));
  } else if (!settings.fields.prompt.empty()) {
    const data::PromptPattern& pattern = settings.pattern;
    words += fmt::format("; pattern \"{}{{}}{}{{}}{}\"", escaped(pattern.before),
                         escaped(pattern.between), escaped(pattern.behind));
  }
  if (settings.labels == data::LabelsOf::text) return words + "; answers written";
  if (!settings.fields.text.empty() || settings.mask == data::Mask::none) {
    return words + "; all trained";
  }
  if (!settings.fields.tokens.empty()) {
    std::vector<std::string> by = settings.loss_masks;
    if (settings.fields.has_seen(settings.fields.labels)) by.insert(by.begin(), "labels");
    return words +
           (by.empty() ? "; all trained" : fmt::format("; trained by {}", fmt::join(by, ", ")));
  }
  const bool offsets =
      settings.mask == data::Mask::offsets || !plain || !settings.fields.messages.empty();
  return words + (offsets ? "; answers trained" : "; trained behind the prompt");
}

std::vector<std::string> notes_on(const data::ExampleSettings& settings,
                                  const text::Tokenizer* tokenizer, const std::string& folder) {
  std::vector<std::string> notes;
  if (tokenizer == nullptr) return notes;
  if (!settings.fields.messages.empty() && has_another_template(folder, settings.format)) {
    notes.push_back(
        fmt::format("the tokenizer's own chat template is not rendered: messages get the format "
                    "{}, and --chat names another",
                    name_of(settings.format)));
  }
  std::string spelled;
  for (const std::string_view marker : data::markers_of(settings.format)) {
    if (tokenizer->encode(marker).size() == 1) continue;
    spelled += fmt::format("{}{}", spelled.empty() ? "" : ", ", marker);
  }
  if (!spelled.empty()) {
    notes.push_back(
        fmt::format("the tokenizer has no tokens for {}: they are spelled out", spelled));
  }
  const bool ends =
      settings.labels == data::LabelsOf::tokens || settings.labels == data::LabelsOf::text;
  const bool wants_end = ends && settings.end_token && settings.fields.tokens.empty() &&
                         !data::ends_itself(settings.format);
  if (wants_end && !tokenizer->end_of_text()) {
    notes.emplace_back("the tokenizer names no token that ends a text: examples are not ended");
  }
  return notes;
}

std::vector<std::string> lines_of(const data::ExampleCounts& counts) {
  const auto short_count = [](int64_t count) {
    return train::format_count(static_cast<double>(count));
  };
  std::vector<std::string> lines{
      fmt::format("{} records, {} examples of {} tokens, {} of them trained; the longest has {}",
                  counts.records, counts.examples, short_count(counts.tokens),
                  short_count(counts.targets), counts.longest)};
  if (counts.truncated.count > 0) {
    lines.push_back(fmt::format("{} are cut, {} tokens are lost: {}", counts.truncated.count,
                                counts.cut_tokens, place_list(counts.truncated)));
  }
  if (counts.all_masked.count > 0) {
    lines.push_back(fmt::format("{} have nothing to learn and are left out: {}",
                                counts.all_masked.count, place_list(counts.all_masked)));
  }
  if (!counts.unused.empty()) {
    std::string fields;
    for (const auto& [name, records] : counts.unused) {
      fields += fmt::format("{}{} (of {} {})", fields.empty() ? "" : ", ", name, records,
                            records == 1 ? "record" : "records");
    }
    lines.push_back("fields that are not used: " + fields);
  }
  if (counts.damaged.count > 0) {
    lines.push_back(fmt::format("{} are damaged and left out; the first: {}", counts.damaged.count,
                                counts.damaged.places.front()));
  }
  return lines;
}

}  // namespace zinc::apps
