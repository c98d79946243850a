#include "data/examples/chat_format.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "data/records/record_reader.h"

namespace zinc::data {
namespace {

constexpr std::array kFormats{ChatFormat::plain, ChatFormat::llama3, ChatFormat::chatml,
                              ChatFormat::mistral, ChatFormat::chatglm3};

constexpr std::array<std::string_view, 4> kLlama3Markers{"<|begin_of_text|>", "<|start_header_id|>",
                                                         "<|end_header_id|>", "<|eot_id|>"};
constexpr std::array<std::string_view, 2> kChatmlMarkers{"<|im_start|>", "<|im_end|>"};
constexpr std::array<std::string_view, 2> kMistralMarkers{"<s>", "</s>"};
constexpr std::array<std::string_view, 4> kChatglm3Markers{"[gMASK]", "sop", "<|user|>",
                                                           "<|assistant|>"};

std::string_view role_of(Speaker speaker) {
  switch (speaker) {
    case Speaker::system:
      return "system";
    case Speaker::user:
      return "user";
    case Speaker::assistant:
      return "assistant";
  }
  return "?";
}

Speaker speaker_of(const files::json::Value& role) {
  const std::string& name = role.as_string();
  if (name == "system") return Speaker::system;
  if (name == "user" || name == "human") return Speaker::user;
  for (const std::string_view other : {"assistant", "gpt", "chatgpt", "bot", "model"}) {
    if (name == other) return Speaker::assistant;
  }
  role.fail(str("nobody is called '", name, "'; roles are system, user (human), assistant (gpt)"));
}

std::string trimmed(const std::string& text) {
  constexpr std::string_view kSpace = " \t\n\r\f\v";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

// Spans in a row; neighbours of one kind are one.
class Spans {
 public:
  void add(std::string_view text, bool trained = false) {
    if (text.empty()) return;
    if (made_.empty() || made_.back().trained != trained) made_.push_back({"", trained});
    made_.back().text += text;
  }
  std::vector<TextSpan> take() { return std::move(made_); }

 private:
  std::vector<TextSpan> made_;
};

bool is_trained(const Message& message) {
  return message.speaker == Speaker::assistant && message.trained;
}

constexpr std::array<std::string_view, 2> kCalls{"tool_calls", "function_call"};
constexpr std::array<std::string_view, 3> kSwitches{"weight", "train", "loss"};

// Whether the item's switches, each of which is 0, 1, false or true, allow it to be trained.
bool learns(const files::json::Value& item) {
  bool learned = true;
  for (const std::string_view key : kSwitches) {
    const files::json::Value* value = item.find(key);
    if (value == nullptr || value->is_null()) continue;
    const double weight =
        value->is_bool() ? static_cast<double>(value->as_bool()) : value->as_double();
    if (weight != 0.0 && weight != 1.0) {
      value->fail(str("\"", key,
                      "\" of a message is 0 or 1 (false or true): zinc learns what is "
                      "said or leaves it out"));
    }
    learned = learned && weight == 1.0;
  }
  return learned;
}

void render_llama3(std::span<const Message> messages, Spans& spans) {
  spans.add("<|begin_of_text|>");
  for (const Message& message : messages) {
    spans.add(str("<|start_header_id|>", role_of(message.speaker), "<|end_header_id|>\n\n"));
    spans.add(trimmed(message.text) + "<|eot_id|>", is_trained(message));
  }
}

void render_chatml(std::span<const Message> messages, Spans& spans) {
  for (const Message& message : messages) {
    spans.add(str("<|im_start|>", role_of(message.speaker), "\n"));
    spans.add(message.text + "<|im_end|>", is_trained(message));
    spans.add("\n");
  }
}

void render_chatglm3(std::span<const Message> messages, Spans& spans) {
  spans.add("[gMASK]sop");
  for (const Message& message : messages) {
    spans.add(str("<|", role_of(message.speaker), "|>\n"));
    spans.add(" " + message.text, is_trained(message));
  }
}

void render_mistral(std::span<const Message> messages, std::string_view place, Spans& spans) {
  std::string before;
  if (!messages.empty() && messages.front().speaker == Speaker::system) {
    before = messages.front().text + "\n\n";
    messages = messages.subspan(1);
  }
  spans.add("<s>");
  for (size_t i = 0; i < messages.size(); ++i) {
    const Message& message = messages[i];
    const Speaker turn = i % 2 == 0 ? Speaker::user : Speaker::assistant;
    if (message.speaker != turn) {
      throw DataError(str(place, ": message ", i, " is the ", role_of(message.speaker),
                          "'s where the ", role_of(turn),
                          " has the word: in Mistral's format they take turns, behind one "
                          "system message at most"));
    }
    if (turn == Speaker::assistant) {
      spans.add(message.text + "</s>", is_trained(message));
    } else {
      spans.add(str("[INST] ", i == 0 ? before : "", message.text, " [/INST]"));
    }
  }
}

void render_plain(std::span<const Message> messages, Spans& spans) {
  for (size_t i = 0; i < messages.size(); ++i) {
    if (i > 0) spans.add("\n");
    spans.add(messages[i].text, is_trained(messages[i]));
  }
}

}  // namespace

std::string_view name_of(ChatFormat format) {
  switch (format) {
    case ChatFormat::plain:
      return "plain";
    case ChatFormat::llama3:
      return "llama3";
    case ChatFormat::chatml:
      return "chatml";
    case ChatFormat::mistral:
      return "mistral";
    case ChatFormat::chatglm3:
      return "chatglm3";
  }
  return "?";
}

ChatFormat parse_chat_format(const std::string& name) {
  for (const ChatFormat format : kFormats) {
    if (name == name_of(format)) return format;
  }
  throw ConfigError(str("--chat: there is no format '", name,
                        "'; formats are llama3, chatml, mistral, chatglm3 and plain"));
}

std::vector<Message> read_messages(const files::json::Value& list) {
  std::vector<Message> messages;
  for (const files::json::Value& item : list.as_array()) {
    for (const std::string_view key : kCalls) {
      const files::json::Value* calls = item.find(key);
      if (calls == nullptr || is_empty(*calls)) continue;
      calls->fail(str("a message has \"", key,
                      "\", which no chat format of zinc writes: put the "
                      "call into its text as the model is to write it"));
    }
    const bool short_names = item.find("from") != nullptr && item.find("role") == nullptr;
    messages.push_back({.speaker = speaker_of(item.at(short_names ? "from" : "role")),
                        .text = item.at(short_names ? "value" : "content").as_string(),
                        .trained = learns(item)});
  }
  const auto is_assistant = [](const Message& m) { return m.speaker == Speaker::assistant; };
  if (std::ranges::none_of(messages, is_assistant)) {
    list.fail("the assistant says nothing here: there is nothing to learn");
  }
  return messages;
}

std::vector<std::string> unused_keys(const files::json::Value& list) {
  std::vector<std::string> keys;
  for (const files::json::Value& item : list.as_array()) {
    const bool short_names = item.find("from") != nullptr && item.find("role") == nullptr;
    for (const files::json::Member& member : item.as_object()) {
      const std::string& key = member.key;
      const bool is_used =
          short_names ? key == "from" || key == "value" : key == "role" || key == "content";
      if (is_used || is_empty(member.value) || std::ranges::count(kSwitches, key) > 0 ||
          std::ranges::count(keys, key) > 0) {
        continue;
      }
      keys.push_back(key);
    }
  }
  return keys;
}

std::vector<TextSpan> render_chat(ChatFormat format, std::span<const Message> messages,
                                  std::string_view place) {
  Spans spans;
  switch (format) {
    case ChatFormat::plain:
      render_plain(messages, spans);
      break;
    case ChatFormat::llama3:
      render_llama3(messages, spans);
      break;
    case ChatFormat::chatml:
      render_chatml(messages, spans);
      break;
    case ChatFormat::mistral:
      render_mistral(messages, place, spans);
      break;
    case ChatFormat::chatglm3:
      render_chatglm3(messages, spans);
      break;
  }
  return spans.take();
}

std::string render_prompt(ChatFormat format, std::vector<Message> messages,
                          std::string_view place) {
  messages.push_back({Speaker::assistant, "x"});  // an empty text might have no span
  std::vector<TextSpan> spans = render_chat(format, messages, place);
  while (!spans.back().trained) spans.pop_back();
  spans.pop_back();
  std::string prompt;
  for (const TextSpan& span : spans) prompt += span.text;
  return prompt;
}

bool ends_itself(ChatFormat format) { return !end_mark(format).empty(); }

std::string_view end_mark(ChatFormat format) {
  switch (format) {
    case ChatFormat::llama3:
      return kLlama3Markers[3];
    case ChatFormat::chatml:
      return kChatmlMarkers[1];
    case ChatFormat::mistral:
      return kMistralMarkers[1];
    case ChatFormat::plain:
    case ChatFormat::chatglm3:
      break;
  }
  return {};
}

std::span<const std::string_view> markers_of(ChatFormat format) {
  switch (format) {
    case ChatFormat::plain:
      return {};
    case ChatFormat::llama3:
      return kLlama3Markers;
    case ChatFormat::chatml:
      return kChatmlMarkers;
    case ChatFormat::mistral:
      return kMistralMarkers;
    case ChatFormat::chatglm3:
      return kChatglm3Markers;
  }
  return {};
}

std::optional<ChatFormat> chat_format_of(const text::Tokenizer& tokenizer) {
  // <s> and </s> are tokens of many: they say nothing.
  for (const ChatFormat format : {ChatFormat::llama3, ChatFormat::chatml, ChatFormat::chatglm3}) {
    const auto is_token = [&](std::string_view marker) {
      return tokenizer.encode(marker).size() == 1;
    };
    if (std::ranges::all_of(markers_of(format), is_token)) return format;
  }
  return std::nullopt;
}

}  // namespace zinc::data
