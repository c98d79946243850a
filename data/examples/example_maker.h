// data/examples/example_maker.h: makes tokens of a record, and decides which of them are trained.
//
// Note [What is trained]
// A prompt and its answer become one text, by the pattern (plain) or by a chat format. The text is
// encoded as a whole, with the special tokens that the tokenizer puts around a text (chat formats
// write their own). A text longer than max_tokens loses its end, but keeps special tokens behind
// the end. Then the end-of-text token is added, if it is not the last token already, if there is
// room, and if the format does not end a text itself.
//
// Mask decides which tokens a model learns. It learns a token from the tokens before it, so the
// first token of an example is never a target.
//
//   prompt_tokens  all but the first n. n is the number of tokens of the prompt encoded alone, with
//                  what stands before it in the pattern. Tokens that cross the border make this
//                  differ from where the answer begins. What stands between prompt and answer is
//                  trained. For plain prompts with answers only
//   offsets        the tokens that hold a byte of the answer
//   none           all tokens
//
// For chats prompt_tokens means offsets: what the assistant says, and the token that ends it.
//
// With labels apart (LabelsOf::text, LabelsOf::row) the tokens are those of the prompt, or of the
// text, with the tokenizer's special tokens; spaces at the prompt's end are left out. The model
// learns the tokens of the answer with its special tokens, or the class. Both are cut to
// max_tokens.
//
// With tokens to guess (LabelsOf::masked) the tokens are those of the text, with the tokenizer's
// special tokens. The model learns the tokens that a batch hides: any but special ones.
//
// Beside token ids, "attention_mask" leaves out the tokens that have 0. "completion_mask",
// "loss_mask", "assistant_masks" and "assistant_mask" keep tokens that have 0 from being trained,
// as labels of -100 do. "position_ids" must count the tokens that are left from 0.
//
// Offsets count along the text of the tokens. If a tokenizer changes the text (lower case, normal
// forms), trained text and other text are encoded separately instead.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset.h"
#include "data/examples/chat_format.h"
#include "data/examples/field_map.h"
#include "data/examples/prompt_pattern.h"
#include "data/records/record_reader.h"
#include "text/tokenizer.h"

namespace zinc::data {

enum class Mask : uint8_t { prompt_tokens, offsets, none };  // Note [What is trained]
std::string_view name_of(Mask mask);

struct ExampleSettings {
  FieldMap fields;
  ChatFormat format = ChatFormat::plain;
  PromptPattern pattern{};  // for ChatFormat::plain
  Mask mask = Mask::prompt_tokens;
  int64_t max_tokens = 0;       // in an example
  bool end_token = true;        // added where there is room
  int64_t vocabulary_size = 0;  // of the model; 0: the tokenizer's
  // The kind of labels that the model learns: the field "answer" is a text or a class.
  LabelsOf labels = LabelsOf::tokens;
  int64_t num_classes = 0;             // for LabelsOf::row
  std::vector<std::string> classes{};  // their names in order; empty: records have only numbers
  // Beside token ids: the loss masks that the first records have, for messages.
  std::vector<std::string> loss_masks{};
};

struct Example {
  std::vector<int32_t> tokens;
  // For each token: 1 where a model learns it. Separate labels stand behind the tokens; a class is
  // a number instead of a token.
  std::vector<uint8_t> trained;
  int64_t cut_tokens = 0;  // tokens for which max_tokens left no room

  int64_t num_targets() const;  // trained tokens but the first of the example
};

// The prompt and the reference answer of a record, for a model that writes an answer itself.
struct Question {
  std::string prompt;  // all text before the answer: of a conversation, before the last one
  std::string answer;
};

class ExampleMaker {
 public:
  // `tokenizer` must outlive it; null where records hold token ids. InvalidArgument for max_tokens
  // below 2. DataError where the tokenizer has more tokens than vocabulary_size, or if tokens are
  // to be guessed and it has no mask token.
  ExampleMaker(const text::Tokenizer* tokenizer, const ExampleSettings& settings);

  // May be called from several threads. DataError with the record's place for a field that is
  // missing or of another kind, for ids outside the vocabulary, and for labels that are neither
  // -100 nor the token itself.
  Example make(const Record& record) const;
  // The fields of a record that hold something and are not used; of messages as
  // "messages.reasoning_content".
  std::vector<std::string> unused_fields(const Record& record) const;
  // The text of a record in parts; empty if the record holds token ids.
  std::vector<TextSpan> render(const Record& record) const;

  // DataError also for a record that has no answer: text alone, or token ids.
  Question question(const Record& record) const;
  // The tokens of a question's prompt, without the special tokens that stand behind a text, unless
  // labels are apart.
  std::vector<int32_t> encode_prompt(std::string_view prompt) const;
  // The token that ends an answer; absent where nothing does.
  std::optional<int32_t> end_of_answer() const;

  const ExampleSettings& settings() const { return settings_; }

 private:
  Example with_labels_apart(const Record& record) const;
  Example to_be_guessed(const Record& record) const;
  // The class that a field of a record names.
  int32_t class_of(const files::json::Value& value, const Record& record) const;
  Example from_ids(const Record& record) const;
  // For each token, whether the list beside the tokens has a 1; empty: the record has no such list.
  // DataError where the list has another length, or other values than 0 and 1.
  std::vector<bool> marks_of(const Record& record, std::string_view name) const;
  // The tokens of a record that its attention mask does not hide. `kept`: their indices.
  std::vector<int32_t> attended_ids(const Record& record, std::vector<size_t>& kept) const;
  int32_t id_of(const files::json::Value& value, const Record& record, std::string_view what) const;
  // Labels that are ignored are left out.
  std::vector<int32_t> ids_of(const files::json::Value& values, const Record& record,
                              std::string_view what) const;
  std::vector<int32_t> encode(std::string_view text) const;
  void mark(std::span<const TextSpan> spans, std::string_view text, Example& example) const;
  bool mark_by_offsets(std::span<const TextSpan> spans, std::string_view text,
                       Example& example) const;
  void encode_apart(std::span<const TextSpan> spans, Example& example) const;
  // Cuts the example to max_tokens, but keeps `tail` special tokens behind the text.
  void cut(size_t tail, Example& example) const;
  void add_end(Example& example) const;
  std::string prompt_of(const Record& record) const;
  std::vector<Message> messages_of(const Record& record) const;
  bool counts_prompt() const;

  const text::Tokenizer* tokenizer_;
  ExampleSettings settings_;
  std::vector<int32_t> lead_, tail_;  // special tokens around a text
};

// The positions up to which the tokens spell `text`: of each token the byte behind its last one. A
// space that sentencepiece puts in front of a text is not counted. Absent where the tokens spell
// another text.
std::optional<std::vector<int64_t>> token_ends(const text::Tokenizer& tokenizer,
                                               std::span<const int32_t> tokens,
                                               std::string_view text);

}  // namespace zinc::data
