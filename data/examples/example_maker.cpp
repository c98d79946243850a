#include "data/examples/example_maker.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/error.h"
#include "nn/batch.h"

namespace zinc::data {
namespace {

constexpr std::string_view kAttentionMask = "attention_mask", kPositions = "position_ids";

}  // namespace

std::string_view name_of(Mask mask) {
  switch (mask) {
    case Mask::prompt_tokens:
      return "prompt";
    case Mask::offsets:
      return "offsets";
    case Mask::none:
      return "none";
  }
  return "?";
}

int64_t Example::num_targets() const {
  if (trained.empty()) return 0;
  return std::count(trained.begin() + 1, trained.end(), uint8_t{1});
}

std::optional<std::vector<int64_t>> token_ends(const text::Tokenizer& tokenizer,
                                               std::span<const int32_t> tokens,
                                               std::string_view text) {
  std::vector<int64_t> ends;
  ends.reserve(tokens.size());
  size_t at = 0;
  std::string spelled;
  for (const int32_t token : tokens) {
    spelled.clear();
    tokenizer.append_bytes(token, false, spelled);
    std::string_view bytes = spelled;
    if (!text.substr(at).starts_with(bytes) && bytes.starts_with(' ')) bytes.remove_prefix(1);
    if (!text.substr(at).starts_with(bytes)) return std::nullopt;
    at += bytes.size();
    ends.push_back(static_cast<int64_t>(at));
  }
  if (at != text.size()) return std::nullopt;
  return ends;
}

ExampleMaker::ExampleMaker(const text::Tokenizer* tokenizer, const ExampleSettings& settings)
    : tokenizer_(tokenizer), settings_(settings) {
  require(settings.max_tokens >= 2, "examples: max_tokens must be at least 2, not ",
          settings.max_tokens);
  require(tokenizer != nullptr || !settings.fields.tokens.empty(),
          "examples: text needs a tokenizer");
  if (settings.labels == LabelsOf::masked && (tokenizer == nullptr || !tokenizer->mask_token())) {
    throw DataError(str(
        "examples of hidden tokens need a tokenizer with a mask, as <mask> or ", "[MASK]; ",
        tokenizer == nullptr ? "give one by --tokenizer" : str(tokenizer->name(), " has none")));
  }
  if (tokenizer == nullptr) return;
  if (settings_.vocabulary_size == 0) settings_.vocabulary_size = tokenizer->vocabulary_size();
  const bool encodes = settings.fields.tokens.empty() || settings.labels == LabelsOf::masked;
  if (encodes && tokenizer->vocabulary_size() > settings_.vocabulary_size) {
    throw DataError(str("the tokenizer ", tokenizer->name(), " has a vocabulary of ",
                        tokenizer->vocabulary_size(), ", the model one of ",
                        settings_.vocabulary_size, "; give the model's own by --tokenizer"));
  }
  const std::vector<int32_t> around = tokenizer->encode_with_specials("a");
  const std::vector<int32_t> bare = tokenizer->encode("a");
  const auto inner = std::search(around.begin(), around.end(), bare.begin(), bare.end());
  if (inner == around.end()) return;
  lead_.assign(around.begin(), inner);
  tail_.assign(inner + static_cast<std::ptrdiff_t>(bare.size()), around.end());
}

bool ExampleMaker::counts_prompt() const {
  return settings_.mask == Mask::prompt_tokens && settings_.format == ChatFormat::plain &&
         !settings_.fields.prompt.empty();
}

std::vector<int32_t> ExampleMaker::encode(std::string_view text) const {
  const bool own_specials = settings_.format != ChatFormat::plain;
  return own_specials ? tokenizer_->encode(text) : tokenizer_->encode_with_specials(text);
}

std::string ExampleMaker::prompt_of(const Record& record) const {
  std::string prompt = text_of(require_field(record, settings_.fields.prompt));
  const files::json::Value* input =
      settings_.fields.input.empty() ? nullptr : record.fields.find(settings_.fields.input);
  const std::string more = input == nullptr ? "" : text_of(*input);
  if (!more.empty()) prompt += (prompt.empty() ? "" : "\n") + more;
  return prompt;
}

// The messages of a record: its list of messages, or its prompt and answer.
std::vector<Message> ExampleMaker::messages_of(const Record& record) const {
  const FieldMap& fields = settings_.fields;
  std::vector<Message> messages;
  const files::json::Value* system =
      fields.system.empty() ? nullptr : record.fields.find(fields.system);
  const std::string said = system == nullptr ? "" : text_of(*system);
  if (!said.empty()) messages.push_back({Speaker::system, said});
  if (!fields.messages.empty()) {
    const std::vector<Message> chat = read_messages(require_field(record, fields.messages));
    if (!messages.empty() && chat.front().speaker == Speaker::system) {
      if (chat.front().text != said) {
        throw DataError(str(record.place, ": the field \"", fields.system,
                            "\" and the first message are two system messages; keep one"));
      }
      messages.clear();
    }
    messages.insert(messages.end(), chat.begin(), chat.end());
    return messages;
  }
  messages.push_back({Speaker::user, prompt_of(record)});
  messages.push_back({Speaker::assistant, text_of(require_field(record, fields.answer))});
  return messages;
}

std::vector<TextSpan> ExampleMaker::render(const Record& record) const {
  const FieldMap& fields = settings_.fields;
  if (!fields.tokens.empty()) return {};
  if (!fields.text.empty()) return {{text_of(require_field(record, fields.text)), true}};
  if (!fields.messages.empty() || settings_.format != ChatFormat::plain) {
    return render_chat(settings_.format, messages_of(record), record.place);
  }
  const std::vector<Message> messages = messages_of(record);
  const std::string system =
      messages.front().speaker == Speaker::system ? messages.front().text + "\n" : "";
  const PromptPattern& pattern = settings_.pattern;
  const std::string& prompt = messages[messages.size() - 2].text;
  return {{pattern.before + system + prompt + pattern.between, false},
          {messages.back().text + pattern.behind, true}};
}

Question ExampleMaker::question(const Record& record) const {
  const FieldMap& fields = settings_.fields;
  if (!fields.text.empty() || !fields.tokens.empty()) {
    throw DataError(str(record.place, ": has ", fields.describe(),
                        " and no answer that a text could be compared with"));
  }
  if (fields.messages.empty() && settings_.format == ChatFormat::plain) {
    return {.prompt = render(record).front().text,
            .answer = text_of(require_field(record, fields.answer))};
  }
  std::vector<Message> messages = messages_of(record);
  while (messages.back().speaker != Speaker::assistant) messages.pop_back();
  std::string answer = std::move(messages.back().text);
  messages.pop_back();
  return {.prompt = render_prompt(settings_.format, std::move(messages), record.place),
          .answer = std::move(answer)};
}

std::vector<int32_t> ExampleMaker::encode_prompt(std::string_view prompt) const {
  if (settings_.labels != LabelsOf::tokens) {
    while (prompt.ends_with(' ') || prompt.ends_with('\n')) prompt.remove_suffix(1);
  }
  std::vector<int32_t> tokens = encode(prompt);
  if (settings_.labels != LabelsOf::tokens) return tokens;
  const size_t behind = settings_.format == ChatFormat::plain ? tail_.size() : 0;
  tokens.resize(tokens.size() - std::min(behind, tokens.size()));
  return tokens;
}

std::optional<int32_t> ExampleMaker::end_of_answer() const {
  const std::string_view mark = end_mark(settings_.format);
  if (!mark.empty()) {
    const std::vector<int32_t> tokens = tokenizer_->encode(mark);
    if (tokens.size() == 1) return tokens.front();
  }
  return tokenizer_->end_of_text();
}

Example ExampleMaker::with_labels_apart(const Record& record) const {
  const FieldMap& fields = settings_.fields;
  const bool of_classes = settings_.labels == LabelsOf::row;
  Example source{.tokens = {}, .trained = {}}, target{.tokens = {}, .trained = {}};
  if (fields.tokens.empty()) {
    source.tokens = encode_prompt(render(record).front().text);
  } else {
    std::vector<size_t> kept;
    source.tokens = attended_ids(record, kept);
  }
  const files::json::Value& answer =
      require_field(record, fields.tokens.empty() ? fields.answer : fields.labels);
  if (of_classes) {
    target.tokens = {class_of(answer, record)};
  } else if (fields.tokens.empty()) {
    target.tokens = tokenizer_->encode_with_specials(text_of(answer) + settings_.pattern.behind);
  } else {
    target.tokens = ids_of(answer, record, "label");
  }
  if (source.tokens.empty()) throw DataError(str(record.place, ": has an empty text"));
  const size_t tail = fields.tokens.empty() ? tail_.size() : 0;
  for (Example* part : {&source, &target}) {
    part->trained.assign(part->tokens.size(), part == &target ? 1 : 0);
    cut(tail, *part);
  }
  if (!of_classes && fields.tokens.empty()) add_end(target);
  source.cut_tokens += target.cut_tokens;
  source.tokens.insert(source.tokens.end(), target.tokens.begin(), target.tokens.end());
  source.trained.insert(source.trained.end(), target.trained.begin(), target.trained.end());
  return source;
}

int32_t ExampleMaker::class_of(const files::json::Value& value, const Record& record) const {
  const std::string name = text_of(value);
  const auto found = std::ranges::find(settings_.classes, name);
  if (found != settings_.classes.end()) {
    return static_cast<int32_t>(found - settings_.classes.begin());
  }
  int64_t number = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  const bool is_number = error == std::errc() && end == name.data() + name.size();
  if (is_number && 0 <= number && number < settings_.num_classes) {
    return static_cast<int32_t>(number);
  }
  std::string known;
  for (const std::string& one : settings_.classes) known += (known.empty() ? "" : ", ") + one;
  throw DataError(str(record.place, ": \"", name, "\" is no class of the model's ",
                      settings_.num_classes,
                      known.empty() ? str("; they are 0 to ", settings_.num_classes - 1,
                                          ", and names of them are given by --classes")
                                    : str(": ", known)));
}

Example ExampleMaker::to_be_guessed(const Record& record) const {
  const FieldMap& fields = settings_.fields;
  Example example{.tokens = {}, .trained = {}};
  if (fields.tokens.empty()) {
    example.tokens = encode(text_of(require_field(record, fields.text)));
  } else {
    std::vector<size_t> kept;
    example.tokens = attended_ids(record, kept);
  }
  for (const int32_t token : example.tokens) {
    example.trained.push_back(tokenizer_->is_special(token) ? 0 : 1);
  }
  cut(fields.tokens.empty() ? tail_.size() : 0, example);
  return example;
}

Example ExampleMaker::make(const Record& record) const {
  if (settings_.labels == LabelsOf::masked) return to_be_guessed(record);
  if (settings_.labels != LabelsOf::tokens) return with_labels_apart(record);
  if (!settings_.fields.tokens.empty()) return from_ids(record);
  const std::vector<TextSpan> spans = render(record);
  std::string text;
  for (const TextSpan& span : spans) text += span.text;
  Example example{.tokens = encode(text), .trained = {}};
  if (counts_prompt()) {
    example.trained.assign(example.tokens.size(), 1);
  } else {
    mark(spans, text, example);
  }
  cut(settings_.format == ChatFormat::plain ? tail_.size() : 0, example);
  add_end(example);
  if (counts_prompt()) {
    std::string_view prompt = spans.front().text;
    prompt.remove_suffix(settings_.pattern.between.size());
    const size_t masked = std::min(encode(prompt).size(), example.trained.size());
    std::fill_n(example.trained.begin(), masked, uint8_t{0});
  }
  return example;
}

void ExampleMaker::add_end(Example& example) const {
  const std::optional<int32_t> end = tokenizer_->end_of_text();
  if (!end || !settings_.end_token || ends_itself(settings_.format)) return;
  if (!example.tokens.empty() && example.tokens.back() == *end) return;
  if (static_cast<int64_t>(example.tokens.size()) >= settings_.max_tokens) return;
  example.tokens.push_back(*end);
  example.trained.push_back(1);
}

void ExampleMaker::cut(size_t tail, Example& example) const {
  const auto room = static_cast<size_t>(settings_.max_tokens);
  if (example.tokens.size() <= room) return;
  const size_t lost = example.tokens.size() - room;
  example.cut_tokens = static_cast<int64_t>(lost);
  const auto last = static_cast<std::ptrdiff_t>(room - std::min(tail, room));
  const auto erase = [&](auto& values) {
    values.erase(values.begin() + last, values.begin() + last + static_cast<std::ptrdiff_t>(lost));
  };
  erase(example.tokens);
  erase(example.trained);
}

void ExampleMaker::mark(std::span<const TextSpan> spans, std::string_view text,
                        Example& example) const {
  const bool all = settings_.mask == Mask::none ||
                   std::ranges::all_of(spans, [](const TextSpan& span) { return span.trained; });
  if (all) {
    example.trained.assign(example.tokens.size(), 1);
  } else if (!mark_by_offsets(spans, text, example)) {
    encode_apart(spans, example);
  }
}

bool ExampleMaker::mark_by_offsets(std::span<const TextSpan> spans, std::string_view text,
                                   Example& example) const {
  const bool specials = settings_.format == ChatFormat::plain;
  const size_t lead = specials ? lead_.size() : 0, tail = specials ? tail_.size() : 0;
  if (example.tokens.size() < lead + tail) return false;
  const auto inner = std::span(example.tokens).subspan(lead, example.tokens.size() - lead - tail);
  const auto ends = token_ends(*tokenizer_, inner, text);
  if (!ends) return false;
  example.trained.assign(lead, 0);
  size_t span = 0;
  int64_t span_end = static_cast<int64_t>(spans[0].text.size());
  for (size_t i = 0; i < ends->size(); ++i) {
    const int64_t begin = i == 0 ? 0 : (*ends)[i - 1];
    while (begin >= span_end && span + 1 < spans.size()) {
      span_end += static_cast<int64_t>(spans[++span].text.size());
    }
    bool trained = spans[span].trained;
    int64_t end = span_end;
    for (size_t next = span + 1; next < spans.size() && (*ends)[i] > end; ++next) {
      trained = trained || spans[next].trained;
      end += static_cast<int64_t>(spans[next].text.size());
    }
    example.trained.push_back(trained ? 1 : 0);
  }
  example.trained.insert(example.trained.end(), tail, spans.back().trained ? 1 : 0);
  return true;
}

void ExampleMaker::encode_apart(std::span<const TextSpan> spans, Example& example) const {
  const bool specials = settings_.format == ChatFormat::plain;
  example.tokens.clear();
  example.trained.clear();
  const auto append = [&](std::span<const int32_t> tokens, bool trained) {
    example.tokens.insert(example.tokens.end(), tokens.begin(), tokens.end());
    example.trained.insert(example.trained.end(), tokens.size(), trained ? 1 : 0);
  };
  if (specials) append(lead_, false);
  for (const TextSpan& span : spans) append(tokenizer_->encode(span.text), span.trained);
  if (specials) append(tail_, spans.back().trained);
}

int32_t ExampleMaker::id_of(const files::json::Value& value, const Record& record,
                            std::string_view what) const {
  const int64_t id = value.as_int64(), vocabulary = settings_.vocabulary_size;
  if (id < 0 || (vocabulary > 0 && id >= vocabulary)) {
    const std::string problem =
        str(what, " ", id, " is outside the vocabulary of ", vocabulary, " tokens");
    if (value.source() != nullptr) value.fail(problem);
    throw DataError(str(record.place, ": ", problem));
  }
  return static_cast<int32_t>(id);
}

std::vector<int32_t> ExampleMaker::ids_of(const files::json::Value& values, const Record& record,
                                          std::string_view what) const {
  std::vector<int32_t> ids;
  for (const files::json::Value& value : values.as_array()) {
    if (what == "label" && value.as_int64() == nn::kIgnoredLabel) continue;
    ids.push_back(id_of(value, record, what));
  }
  return ids;
}

std::vector<bool> ExampleMaker::marks_of(const Record& record, std::string_view name) const {
  std::vector<bool> marks;
  const files::json::Value* values = record.fields.find(name);
  if (values == nullptr || values->is_null()) return marks;
  const size_t tokens = require_field(record, settings_.fields.tokens).size();
  if (values->size() != tokens) {
    values->fail(
        str("\"", name, "\" has ", values->size(), " values, but there are ", tokens, " tokens"));
  }
  for (const files::json::Value& value : values->as_array()) {
    const int64_t mark = value.is_bool() ? int64_t{value.as_bool()} : value.as_int64();
    if (mark != 0 && mark != 1) {
      value.fail(str("a value of \"", name, "\" is 0 or 1, not ", mark));
    }
    marks.push_back(mark == 1);
  }
  return marks;
}

std::vector<int32_t> ExampleMaker::attended_ids(const Record& record,
                                                std::vector<size_t>& kept) const {
  const std::vector<int32_t> all =
      ids_of(require_field(record, settings_.fields.tokens), record, "token");
  const std::vector<bool> attended = marks_of(record, kAttentionMask);
  std::vector<int32_t> ids;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!attended.empty() && !attended[i]) continue;
    kept.push_back(i);
    ids.push_back(all[i]);
  }
  const files::json::Value* positions = record.fields.find(kPositions);
  if (positions == nullptr || positions->is_null()) return ids;
  if (positions->size() != all.size()) {
    positions->fail(
        str("there are ", positions->size(), " position_ids, but ", all.size(), " tokens"));
  }
  for (size_t i = 0; i < kept.size(); ++i) {
    if (positions->at(kept[i]).as_int64() == static_cast<int64_t>(i)) continue;
    positions->at(kept[i]).fail(
        str("token ", i, " stands at position ", positions->at(kept[i]).as_int64(),
            ": zinc counts the tokens of a record from 0. Leave position_ids out, and give each "
            "text a record of its own (--pack joins them)"));
  }
  return ids;
}

Example ExampleMaker::from_ids(const Record& record) const {
  const FieldMap& fields = settings_.fields;
  std::vector<size_t> kept;
  Example example{.tokens = attended_ids(record, kept), .trained = {}};
  example.trained.assign(example.tokens.size(), 1);
  const bool masks = settings_.mask != Mask::none;
  const files::json::Value* labels = nullptr;
  if (masks && !fields.labels.empty()) {
    labels = fields.by_looking ? record.fields.find(fields.labels)
                               : &require_field(record, fields.labels);
  }
  if (labels != nullptr && !labels->is_null()) {
    const size_t tokens = require_field(record, fields.tokens).size();
    if (labels->size() != tokens) {
      labels->fail(str("there are ", labels->size(), " labels, but ", tokens, " tokens"));
    }
    for (size_t i = 0; i < kept.size(); ++i) {
      const files::json::Value& label = labels->at(kept[i]);
      if (label.as_int64() == nn::kIgnoredLabel) {
        example.trained[i] = 0;
      } else if (id_of(label, record, "label") != example.tokens[i]) {
        label.fail(str("label ", label.as_int64(), " stands beside token ", example.tokens[i],
                       ": a label is the token itself or -100"));
      }
    }
  }
  for (const std::string_view name : kLossMasks) {
    const std::vector<bool> learned = masks ? marks_of(record, name) : std::vector<bool>{};
    for (size_t i = 0; i < kept.size() && !learned.empty(); ++i) {
      if (!learned[kept[i]]) example.trained[i] = 0;
    }
  }
  cut(0, example);
  return example;
}

std::vector<std::string> ExampleMaker::unused_fields(const Record& record) const {
  const FieldMap& fields = settings_.fields;
  const bool of_ids = !fields.tokens.empty();
  const bool of_tokens = of_ids && settings_.labels == LabelsOf::tokens;
  const bool masks = of_tokens && settings_.mask != Mask::none;
  std::vector<std::string> unused;
  for (const files::json::Member& member : record.fields.as_object()) {
    const std::string& name = member.key;
    const bool is_part = name == fields.messages || name == fields.system ||
                         name == fields.prompt || name == fields.input || name == fields.answer ||
                         name == fields.text || name == fields.tokens ||
                         (name == fields.labels && settings_.labels != LabelsOf::masked &&
                          (masks || settings_.labels != LabelsOf::tokens));
    const bool is_beside = (of_ids && (name == kAttentionMask || name == kPositions)) ||
                           (masks && std::ranges::count(kLossMasks, name) > 0);
    if (!is_part && !is_beside && !is_empty(member.value)) unused.push_back(name);
  }
  if (fields.messages.empty()) return unused;
  for (const std::string& key : unused_keys(require_field(record, fields.messages))) {
    unused.push_back(str(fields.messages, ".", key));
  }
  return unused;
}

}  // namespace zinc::data
