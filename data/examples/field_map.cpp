#include "data/examples/field_map.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/edit_distance.h"
#include "core/error.h"

namespace zinc::data {
namespace {

struct Part {
  std::string_view name;
  std::string FieldMap::*field;
};

constexpr std::array<Part, 8> kParts{{{"messages", &FieldMap::messages},
                                      {"system", &FieldMap::system},
                                      {"prompt", &FieldMap::prompt},
                                      {"input", &FieldMap::input},
                                      {"answer", &FieldMap::answer},
                                      {"text", &FieldMap::text},
                                      {"input_ids", &FieldMap::tokens},
                                      {"labels", &FieldMap::labels}}};

// Fields that all records of a shape have, then those that some may have.
struct FieldShape {
  FieldMap required;
  FieldMap optional{};
};

const std::vector<FieldShape>& shapes() {
  static const std::vector<FieldShape> kShapes{
      {{.messages = "messages"}, {.system = "system"}},
      {{.messages = "conversations"}, {.system = "system"}},
      {{.tokens = "input_ids"}, {.labels = "labels"}},
      {{.prompt = "instruction", .answer = "output"}, {.system = "system", .input = "input"}},
      {{.prompt = "prompt", .answer = "completion"}, {.system = "system"}},
      {{.prompt = "prompt", .answer = "response"}, {.system = "system"}},
      {{.prompt = "question", .answer = "answer"}, {.system = "system"}},
      {{.prompt = "input", .answer = "target"}, {.system = "system"}},
      {{.prompt = "input", .answer = "output"}, {.system = "system"}},
      {{.prompt = "dialogue", .answer = "summary"}},
      {{.prompt = "content", .answer = "summary"}},
      {{.prompt = "text", .answer = "summary"}},
      {{.prompt = "text", .answer = "label"}},
      {{.text = "text"}},
  };
  return kShapes;
}

std::string names_of(const Record& record) {
  std::string names;
  for (const files::json::Member& member : record.fields.as_object()) {
    names += str(names.empty() ? "" : ", ", "\"", member.key, "\"");
  }
  return names.empty() ? "none" : names;
}

bool has(const Record& record, const std::string& name) {
  return name.empty() || record.fields.find(name) != nullptr;
}

std::string list_shapes() {
  std::string list;
  for (const FieldShape& shape : shapes()) {
    list += list.empty() ? "" : "; ";
    std::string fields;
    for (const Part& part : kParts) {
      const std::string& name = shape.required.*part.field;
      if (!name.empty()) fields += str(fields.empty() ? "" : ", ", name);
    }
    list += fields;
  }
  return list;
}

// The first shape that all records have; null: none.
const FieldShape* shape_of(std::span<const Record> records) {
  for (const FieldShape& shape : shapes()) {
    const auto fits = [&](const Record& record) {
      return std::ranges::all_of(
          kParts, [&](const Part& part) { return has(record, shape.required.*part.field); });
    };
    if (std::ranges::all_of(records, fits)) return &shape;
  }
  return nullptr;
}

}  // namespace

std::string FieldMap::describe() const {
  std::string words;
  for (const Part& part : kParts) {
    const std::string& name = this->*part.field;
    if (has_seen(name)) words += str(words.empty() ? "" : ", ", part.name, "=", name);
  }
  return words;
}

bool FieldMap::has_seen(const std::string& name) const {
  return !name.empty() && std::ranges::find(unseen, name) == unseen.end();
}

std::vector<std::string> loss_masks_of(std::span<const Record> records) {
  std::vector<std::string> masks;
  for (const std::string_view mask : kLossMasks) {
    const std::string name(mask);
    if (std::ranges::any_of(records, [&](const Record& record) { return has(record, name); })) {
      masks.push_back(name);
    }
  }
  return masks;
}

FieldMap find_fields(std::span<const Record> records) {
  require(!records.empty(), "find_fields: there are no records");
  const FieldShape* shape = shape_of(records);
  if (shape == nullptr) {
    size_t other = 0;
    while (shape_of(records.first(other + 1)) != nullptr) ++other;
    throw DataError(
        other == 0
            ? str(records.front().place, ": the fields ", names_of(records.front()),
                  " are none of the known sets (", list_shapes(),
                  "); say which is what, as in --fields prompt=NAME,answer=NAME, or text=NAME")
            : str(records[other].place, ": the fields ", names_of(records[other]),
                  " are of another kind of record than those before it, which have ",
                  names_of(records[other - 1]), "; give a file for each kind"));
  }
  FieldMap found = shape->required;
  found.by_looking = true;
  for (const Part& part : kParts) {
    const std::string& name = shape->optional.*part.field;
    if (name.empty()) continue;
    found.*part.field = name;
    const auto there = [&](const Record& record) { return has(record, name); };
    if (std::ranges::none_of(records, there)) found.unseen.push_back(name);
  }
  return found;
}

FieldMap parse_fields(std::string_view text) {
  FieldMap map;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string_view item = text.substr(at, end - at);
    at = end + 1;
    const size_t equals = item.find('=');
    if (equals == item.npos || equals + 1 == item.size()) {
      throw ConfigError(
          str("--fields: '", item, "' is not PART=FIELD, as in prompt=question,answer=reply"));
    }
    const std::string name(item.substr(0, equals));
    const auto part =
        std::ranges::find_if(kParts, [&](const Part& each) { return each.name == name; });
    if (part == kParts.end()) {
      std::vector<std::string> names;
      for (const Part& each : kParts) names.emplace_back(each.name);
      const std::string nearest = nearest_name(name, names);
      throw ConfigError(str("--fields: there is no part '", name,
                            "'; parts are messages, system, prompt, input, answer, text, "
                            "input_ids and labels",
                            nearest.empty() ? "" : str("; did you mean ", nearest, "?")));
    }
    map.*part->field = item.substr(equals + 1);
  }
  const int kinds = static_cast<int>(!map.messages.empty()) +
                    static_cast<int>(!map.prompt.empty() && !map.answer.empty()) +
                    static_cast<int>(!map.text.empty()) + static_cast<int>(!map.tokens.empty());
  const bool halves = map.prompt.empty() != map.answer.empty();
  const bool strays = (map.prompt.empty() && !(map.input.empty() && map.system.empty())) ||
                      (map.tokens.empty() && !map.labels.empty());
  if (kinds != 1 || halves || strays) {
    throw ConfigError(str("--fields ", text,
                          ": an example is made of messages; of prompt and answer (with input "
                          "and system where there are some); of text; or of input_ids (with "
                          "labels)"));
  }
  return map;
}

const files::json::Value& require_field(const Record& record, const std::string& name) {
  const files::json::Value* value = record.fields.find(name);
  if (value == nullptr || value->is_null()) {
    throw DataError(str(record.place, value == nullptr ? ": has no field \"" : ": field \"", name,
                        value == nullptr ? "\"; it has " : "\" is null; there are ",
                        names_of(record)));
  }
  return *value;
}

}  // namespace zinc::data
