#include <cmath>
#include <map>

#include "core/error.h"
#include "files/json/writer.h"
#include "train/config/key.h"
#include "train/config/row.h"

namespace zinc::train {
namespace {

// Another name has the setting of the key that it stands for.
void complete(Key& key, const std::vector<Key>& all) {
  if (key.stands_for.empty()) return;
  const std::string block(key.block());
  const std::string target = block.empty() ? key.stands_for : str(block, ".", key.stands_for);
  for (const Key& other : all) {
    if (other.path != target) continue;
    if (key.setting.type == KeyType::any) key.setting = other.setting;
    key.range = other.range;
    key.unit = other.unit;
    key.note =
        str(key.key_class == KeyClass::deprecated ? "use " : "another name of ", key.stands_for);
    return;
  }
  bug_check(false, "the table of keys: ", key.path, " stands for no key");
}

std::vector<Key> make_table() {
  const Rows rows{
      batch_rows(),  optimizer_rows(),  scheduler_rows(), precision_rows(), gradient_rows(),
      zero_rows(),   activation_rows(), aio_rows(),       monitor_rows(),   sparse_attention_rows(),
      absent_rows(), zinc_rows()};
  std::vector<Key> keys(rows.begin(), rows.end());
  const std::vector<Key> written = keys;
  for (Key& key : keys) complete(key, written);
  return keys;
}

bool has_default(const Key& key) {
  return key.key_class == KeyClass::works && !key.is_block() && key.stands_for.empty();
}

std::string default_of(const Key& key) {
  if (!has_default(key)) return {};
  if (!key.default_note.empty()) return key.default_note;
  const files::json::Value value = key.default_json();
  return value.is_null() ? "" : files::json::write(value);
}

std::string line_of(const Key& key) {
  std::string text = key.only_with.empty() ? key.note : str(key.only_with, ": ", key.note);
  if (!key.auto_note.empty()) text += str("; \"auto\": ", key.auto_note);
  if (!key.option.empty()) text += str("; `", key.option, "`");
  return text;
}

}  // namespace

const std::vector<Key>& config_keys() {
  static const std::vector<Key> keys = make_table();
  return keys;
}

const Key* find_key(std::string_view path) {
  static const auto by_path = [] {
    std::map<std::string_view, const Key*> found;
    for (const Key& key : config_keys()) found.emplace(key.path, &key);
    return found;
  }();
  const auto at = by_path.find(path);
  return at == by_path.end() ? nullptr : at->second;
}

const std::vector<const Key*>& keys_of(std::string_view block) {
  static const auto by_block = [] {
    std::map<std::string_view, std::vector<const Key*>> found;
    for (const Key& key : config_keys()) found[key.block()].push_back(&key);
    return found;
  }();
  static const std::vector<const Key*> none;
  const auto at = by_block.find(block);
  return at == by_block.end() ? none : at->second;
}

std::string config_keys_markdown() {
  std::string text = "| key | class | values | default | note |\n|---|---|---|---|---|\n";
  for (const Key& key : config_keys()) {
    text += str("| `", key.path, "` | ", name_of(key.key_class), " | ", values_of(key), " | ",
                default_of(key), " | ", line_of(key), " |\n");
  }
  return text;
}

std::string config_keys_json() {
  files::json::Writer json(2);
  json.begin_array();
  const auto member = [&](std::string_view name, const std::string& text) {
    if (!text.empty()) json.member(name, text);
  };
  for (const Key& key : config_keys()) {
    const Bounds& range = key.range;
    json.begin_object();
    json.member("key", key.path).member("class", name_of(key.key_class));
    json.member("type", name_of(key.setting.type));
    member("unit", key.unit);
    if (std::isfinite(range.least)) json.member("minimum", range.least);
    if (std::isfinite(range.most)) json.member("maximum", range.most);
    if (range.positive) json.member("exclusive_minimum", 0);
    if (range.multiple_of != 1) json.member("multiple_of", range.multiple_of);
    if (!key.setting.choices.empty()) {
      json.key("choices").begin_array();
      for (const std::string& choice : key.setting.choices) json.value(choice);
      json.end_array();
    }
    if (has_default(key) && key.default_note.empty()) json.member("default", key.default_json());
    member("default_note", key.default_note);
    member("auto", key.auto_note);
    member("flag", key.option);
    member("only_with", key.only_with);
    member("stands_for", key.stands_for);
    member("note", key.note);
    json.end_object();
  }
  json.end_array();
  return json.take() + "\n";
}

}  // namespace zinc::train
