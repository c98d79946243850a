// data/examples/chat_format.h: conversations as the text that a family of models was trained on.
//
//   llama3    <|begin_of_text|>, then for a message <|start_header_id|>ROLE<|end_header_id|>, two
//             ends of line, the text without space around it, <|eot_id|>
//   chatml    <|im_start|>ROLE, an end of line, the text, <|im_end|>, an end of line
//   mistral   <s>, then in turns [INST] USER [/INST] and ASSISTANT</s>
//   chatglm3  [gMASK]sop, then for a message <|ROLE|>, an end of line, a space, the text
//   plain     the texts, an end of line between two
//
// The first four are the published chat templates of Llama 3, of ChatML as Qwen has it without its
// default system message, of Mistral 7B Instruct v0.2 and of ChatGLM3. Mistral's has no place for a
// system message: it stands before the first message of the user, an empty line between them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files/json/value.h"
#include "text/tokenizer.h"

namespace zinc::data {

enum class Speaker : uint8_t { system, user, assistant };

struct Message {
  Speaker speaker = Speaker::user;
  std::string text;
  bool trained = true;  // the assistant's words are trained
};

// Part of a text, and whether a model is to learn it.
struct TextSpan {
  std::string text;
  bool trained = false;
  friend bool operator==(const TextSpan&, const TextSpan&) = default;
};

enum class ChatFormat : uint8_t { plain, llama3, chatml, mistral, chatglm3 };
std::string_view name_of(ChatFormat format);
// ConfigError that names the formats.
ChatFormat parse_chat_format(const std::string& name);

// A list of {"role": ..., "content": ...} or {"from": ..., "value": ...}. Roles: system; user or
// human; assistant, gpt, chatgpt, bot or model. "weight": 0, "train": false and "loss": false keep
// an assistant's item from being trained. DataError with its place for anything else, for calls of
// tools, which no format writes, and for a list without an assistant.
std::vector<Message> read_messages(const files::json::Value& list);
// Keys of the list's items that are not read and hold something: "reasoning_content".
std::vector<std::string> unused_keys(const files::json::Value& list);

// Renders messages as text. The assistant's words are trained, with the token that ends them.
// DataError with `place` where the format cannot express the messages: mistral has the user and the
// assistant in turns.
std::vector<TextSpan> render_chat(ChatFormat format, std::span<const Message> messages,
                                  std::string_view place);

// The text of a conversation up to where the assistant answers.
std::string render_prompt(ChatFormat format, std::vector<Message> messages, std::string_view place);

// True if the format's own token ends the assistant's words, so that no end-of-text token belongs
// behind them.
bool ends_itself(ChatFormat format);
// The token that ends the assistant's words: "<|eot_id|>"; empty where ends_itself() is false.
std::string_view end_mark(ChatFormat format);

// The tokens by which a format marks who speaks.
std::span<const std::string_view> markers_of(ChatFormat format);
// The format whose markers are tokens of this tokenizer; absent where none is.
std::optional<ChatFormat> chat_format_of(const text::Tokenizer& tokenizer);

}  // namespace zinc::data
