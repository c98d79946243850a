#include "text/tokenizer_folder.h"

#include <array>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.h"
#include "files/atomic_file.h"
#include "files/input_file.h"
#include "files/json/parser.h"
#include "files/json/writer.h"
#include "files/utf8.h"
#include "text/bpe_model.h"
#include "text/json_parts.h"
#include "text/json_tokenizer.h"
#include "text/piece_tokenizer.h"
#include "text/wordpiece_model.h"

namespace zinc::text {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{256} << 20;
constexpr std::array<std::string_view, 9> kFileNames = {"tokenizer.json",
                                                        "tokenizer_config.json",
                                                        "special_tokens_map.json",
                                                        "added_tokens.json",
                                                        "vocab.json",
                                                        "merges.txt",
                                                        "vocab.txt",
                                                        "spiece.model",
                                                        "tokenizer.model"};
constexpr std::array<std::string_view, 2> kSettingsNames = {"tokenizer_config.json",
                                                            "special_tokens_map.json"};

files::json::Value read_json(const std::string& path) {
  return files::json::parse_file(path, {.max_bytes = kMaxFileBytes});
}

// tokenizer_config.json and special_tokens_map.json of a folder.
class Settings {
 public:
  explicit Settings(const std::string& folder) {
    for (const std::string_view name : kSettingsNames) {
      const std::string path = str(folder, '/', name);
      if (files::file_exists(path)) files_.push_back(read_json(path));
    }
  }
  // "eos_token" and the like: a text, or an object with its "content".
  std::optional<std::string> token(std::string_view key) const {
    for (const files::json::Value& file : files_) {
      const files::json::Value* value = file.find(key);
      if (value == nullptr || value->is_null()) continue;
      return value->is_object() ? value->at("content").as_string() : value->as_string();
    }
    return std::nullopt;
  }
  const files::json::Value* find(std::string_view key) const {
    for (const files::json::Value& file : files_) {
      const files::json::Value* value = file.find(key);
      if (value != nullptr && !value->is_null()) return value;
    }
    return nullptr;
  }
  bool flag(std::string_view key, bool otherwise) const {
    const files::json::Value* value = find(key);
    return value == nullptr ? otherwise : value->as_bool();
  }

 private:
  std::vector<files::json::Value> files_;
};

// The tokens that a folder's settings name, and others, as far as the vocabulary has them.
std::vector<AddedToken> special_tokens(const Settings& settings, const Vocabulary& vocabulary,
                                       std::vector<std::string> names) {
  for (const char* key : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                          "cls_token", "mask_token"}) {
    if (const auto name = settings.token(key)) names.push_back(*name);
  }
  std::vector<AddedToken> tokens;
  for (const std::string& name : names) {
    const std::optional<int32_t> id = vocabulary.find(name);
    bool known = !id;
    for (const AddedToken& token : tokens) known = known || token.id == *id;
    if (known || name.empty()) continue;
    tokens.push_back({.id = *id, .content = name, .special = true});
  }
  return tokens;
}

// added_tokens.json: {"<token>": id, ...}, beyond the vocabulary.
void append_added_tokens(const std::string& folder, const Vocabulary& vocabulary,
                         std::vector<AddedToken>& tokens) {
  const std::string path = folder + "/added_tokens.json";
  if (!files::file_exists(path)) return;
  const files::json::Value root = read_json(path);
  for (const files::json::Member& member : root.as_object()) {
    const auto id = static_cast<int32_t>(member.value.as_int64(0, kMaxVocabulary - 1));
    if (vocabulary.find(member.key)) continue;
    if (vocabulary.has(id)) member.value.fail("is the id of another token in the vocabulary");
    tokens.push_back({.id = id, .content = member.key, .special = true});
  }
}

files::json::Value built_in(std::string text) {
  return files::json::parse(std::move(text), "built in");
}

// GPT-2's files, also RoBERTa's.
std::unique_ptr<Tokenizer> load_byte_level(const std::string& vocab_path,
                                           const std::string& merges_path) {
  const Settings settings(files::parent_folder(vocab_path));
  BpeModel::Merges merges;
  const std::string text = files::read_text_file(merges_path, kMaxFileBytes);
  int64_t number = 0;
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line(text.data() + at, end - at);
    at = end + 1;
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    const size_t space = line.find(' ');
    if (space == line.npos || line.find(' ', space + 1) != line.npos) {
      throw DataError(
          str(merges_path, ":", number, ": a merge is two parts with a space between them"));
    }
    merges.emplace_back(line.substr(0, space), line.substr(space + 1));
  }
  Vocabulary vocabulary = Vocabulary::parse(read_json(vocab_path));
  std::vector<AddedToken> added = special_tokens(settings, vocabulary, {"<|endoftext|>"});
  append_added_tokens(files::parent_folder(vocab_path), vocabulary, added);
  const std::string spaced = settings.flag("add_prefix_space", false) ? "true" : "false";
  const files::json::Value bytes =
      built_in(R"({"type": "ByteLevel", "use_regex": true, "add_prefix_space": )" + spaced + "}");
  const files::json::Value* kind = settings.find("tokenizer_class");
  PostProcessor around;
  if (kind != nullptr && kind->as_string().starts_with("Roberta")) {
    const auto begin = vocabulary.find("<s>"), end = vocabulary.find("</s>");
    if (begin && end) around = PostProcessor::around({*begin}, {*end});
  }
  return std::make_unique<JsonTokenizer>(JsonTokenizer::Parts{
      .name = vocab_path,
      .pre_tokenizer = PreTokenizer::parse(&bytes),
      .model = std::make_unique<BpeModel>(std::move(vocabulary), merges, BpeOptions{.bytes = true}),
      .added_tokens = std::move(added),
      .post_processor = std::move(around),
      .decoder = TokenDecoder::parse(&bytes),
      .end_of_text = settings.token("eos_token").value_or("<|endoftext|>"),
      .mask_token = settings.token("mask_token").value_or("<mask>")});
}

// BERT's file: a token a line.
std::unique_ptr<Tokenizer> load_wordpiece(const std::string& path) {
  const Settings settings(files::parent_folder(path));
  Vocabulary vocabulary;
  const std::string text = files::read_text_file(path, kMaxFileBytes);
  if (const auto bad = files::first_invalid_utf8(std::string_view(text))) {
    throw DataError(str(path, ": not UTF-8 at byte ", *bad));
  }
  int32_t id = 0;
  for (size_t at = 0; at < text.size(); ++id) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    at = end + 1;
    if (line.ends_with('\r')) line.pop_back();
    if (!vocabulary.add(line, id)) {
      throw DataError(str(path, ":", id + 1, ": '", line, "' is there twice"));
    }
  }
  const bool lower = settings.flag("do_lower_case", true);
  const bool accents = settings.flag("strip_accents", lower);
  const bool chinese = settings.flag("tokenize_chinese_chars", true);
  const auto word = [](bool value) { return value ? "true" : "false"; };
  const files::json::Value normalizer = built_in(
      str(R"({"type": "BertNormalizer", "lowercase": )", word(lower), R"(, "strip_accents": )",
          word(accents), R"(, "handle_chinese_chars": )", word(chinese), "}"));
  const files::json::Value words = built_in(R"({"type": "BertPreTokenizer"})");
  const files::json::Value decoder = built_in(R"({"type": "WordPiece"})");
  std::vector<AddedToken> added =
      special_tokens(settings, vocabulary, {"[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"});
  append_added_tokens(files::parent_folder(path), vocabulary, added);
  const auto begin = vocabulary.find("[CLS]"), end = vocabulary.find("[SEP]");
  PostProcessor around;
  if (begin && end) around = PostProcessor::around({*begin}, {*end});
  return std::make_unique<JsonTokenizer>(JsonTokenizer::Parts{
      .name = path,
      .normalizer = Normalizer::parse(&normalizer),
      .pre_tokenizer = PreTokenizer::parse(&words),
      .model = std::make_unique<WordPieceModel>(
          std::move(vocabulary),
          WordPieceOptions{.unknown = settings.token("unk_token").value_or("[UNK]")}),
      .added_tokens = std::move(added),
      .post_processor = std::move(around),
      .decoder = TokenDecoder::parse(&decoder),
      .end_of_text = settings.token("sep_token").value_or("[SEP]"),
      .mask_token = settings.token("mask_token").value_or("[MASK]")});
}

// tokenizer_config.json's "added_tokens_decoder": {"<id>": {"content": ...}, ...}.
void append_listed_tokens(const Settings& settings, std::vector<AddedToken>& tokens) {
  const files::json::Value* list = settings.find("added_tokens_decoder");
  if (list == nullptr) return;
  for (const files::json::Member& member : list->as_object()) {
    const std::optional<files::json::Number> id = files::json::Number::parse(member.key);
    if (!id || !id->to_int64() || *id->to_int64() < 0 || *id->to_int64() >= kMaxVocabulary) {
      member.value.fail("the key must be a token id");
    }
    const files::json::Value& token = member.value;
    tokens.push_back({.id = static_cast<int32_t>(*id->to_int64()),
                      .content = token.at("content").as_string(),
                      .single_word = zinc::text::flag(token, "single_word", false),
                      .strip_left = zinc::text::flag(token, "lstrip", false),
                      .strip_right = zinc::text::flag(token, "rstrip", false),
                      .special = zinc::text::flag(token, "special", true)});
  }
}

// The class that the settings name decides the tokens around a text and the tokens beside the
// model's.
std::unique_ptr<Tokenizer> load_pieces(const std::string& path) {
  // THUDM's tokenization_chatglm.py: these follow the model's own pieces in this order.
  static constexpr std::string_view kChatGlm[] = {"[MASK]",   "[gMASK]",       "[sMASK]",
                                                  "sop",      "eop",           "<|system|>",
                                                  "<|user|>", "<|assistant|>", "<|observation|>"};
  constexpr int64_t kMaxExtraIds = 10'000;
  const Settings settings(files::parent_folder(path));
  PieceTokenizer::Parts parts{.name = path, .model = load_piece_model(path)};
  const int32_t size = parts.model->size(), begin = parts.model->begin_id(),
                end = parts.model->end_id();
  const files::json::Value* kind = settings.find("tokenizer_class");
  const std::string name = kind == nullptr ? std::string() : kind->as_string();
  std::vector<AddedToken> tokens;
  append_listed_tokens(settings, tokens);
  const std::string extra = files::parent_folder(path) + "/added_tokens.json";
  if (files::file_exists(extra)) {
    const files::json::Value root = read_json(extra);
    for (const files::json::Member& member : root.as_object()) {
      tokens.push_back({.id = static_cast<int32_t>(member.value.as_int64(0, kMaxVocabulary - 1)),
                        .content = member.key,
                        .special = true});
    }
  }
  if (name.starts_with("ChatGLM")) {
    int32_t id = size;
    for (const std::string_view token : kChatGlm) {
      tokens.push_back({.id = id++, .content = std::string(token), .special = true});
    }
    parts.post_processor = PostProcessor::around({size + 1, size + 3}, {});  // [gMASK] sop
  } else if (name.starts_with("T5")) {
    const files::json::Value* count = settings.find("extra_ids");
    const int64_t extra_ids = count == nullptr ? 100 : count->as_int64(0, kMaxExtraIds);
    for (int64_t i = 0; i < extra_ids; ++i) {
      tokens.push_back({.id = static_cast<int32_t>(size + extra_ids - 1 - i),
                        .content = str("<extra_id_", i, '>'),
                        .special = true});
    }
    if (end >= 0) parts.post_processor = PostProcessor::around({}, {end});
  } else {
    std::vector<int32_t> before, behind;
    if (begin >= 0 && settings.flag("add_bos_token", true)) before.push_back(begin);
    if (end >= 0 && settings.flag("add_eos_token", false)) behind.push_back(end);
    parts.post_processor = PostProcessor::around(before, behind);
  }
  // The same token may be named in several files.
  std::vector<AddedToken> distinct;
  for (AddedToken& token : tokens) {
    bool known = token.content.empty();
    for (const AddedToken& other : distinct) {
      if (other.id == token.id && other.content != token.content) {
        throw DataError(str(path, ": token id ", token.id, " is '", other.content, "' and '",
                            token.content, "'"));
      }
      known = known || other.id == token.id;
    }
    if (!known) distinct.push_back(std::move(token));
  }
  parts.added_tokens = std::move(distinct);
  if (end >= 0) parts.end_of_text = end;
  return std::make_unique<PieceTokenizer>(std::move(parts));
}

std::unique_ptr<Tokenizer> load_json(const std::string& path) {
  const Settings settings(files::parent_folder(path));
  const std::optional<std::string> end = settings.token("eos_token");
  const std::optional<std::string> mask = settings.token("mask_token");
  std::unique_ptr<JsonTokenizer> tokenizer = JsonTokenizer::parse(read_json(path), path, end, mask);
  // If no file names the token, it is looked up by the names that model families use.
  const auto named = [&](const std::optional<std::string>& said,
                         std::initializer_list<const char*> names) {
    if (said) return said;
    for (const char* name : names) {
      if (tokenizer->find(name)) return std::optional<std::string>(name);
    }
    return said;
  };
  const auto end_found = named(end, {"<|endoftext|>", "<|end_of_text|>", "</s>", "[SEP]"});
  const auto mask_found = named(mask, {"<mask>", "[MASK]"});
  if (end_found == end && mask_found == mask) return tokenizer;
  return JsonTokenizer::parse(read_json(path), path, end_found, mask_found);
}

// The file that a folder's tokenizer is read from; empty where there is none.
std::string main_file(const std::string& folder) {
  const auto there = [&](std::string_view name) {
    return files::file_exists(str(folder, '/', name));
  };
  if (there("tokenizer.json")) return folder + "/tokenizer.json";
  if (there("vocab.json") && there("merges.txt")) return folder + "/vocab.json";
  if (there("vocab.txt")) return folder + "/vocab.txt";
  if (there("spiece.model")) return folder + "/spiece.model";
  if (there("tokenizer.model")) return folder + "/tokenizer.model";
  return {};
}

}  // namespace

std::span<const std::string_view> tokenizer_file_names() { return kFileNames; }

bool has_tokenizer(const std::string& folder) {
  return files::folder_exists(folder) && !main_file(folder).empty();
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path) {
  if (files::folder_exists(path)) {
    const std::string file = main_file(path);
    if (!file.empty()) return load_tokenizer(file);
    throw DataError(str(path,
                        ": holds no tokenizer: none of tokenizer.json, vocab.json with "
                        "merges.txt, vocab.txt, spiece.model, tokenizer.model"));
  }
  const std::string name = files::file_name(path);
  if (name == "vocab.json" || name == "merges.txt") {
    const std::string folder = files::parent_folder(path);
    return load_byte_level(folder + "/vocab.json", folder + "/merges.txt");
  }
  if (name.ends_with(".txt")) return load_wordpiece(path);
  if (name.ends_with(".model")) return load_pieces(path);
  return load_json(path);
}

}  // namespace zinc::text
