// data/examples/field_map.h: the fields of a record that hold its messages, prompt, answer, text or
// tokens.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/records/record_reader.h"

namespace zinc::data {

// Names of lists beside token ids: tokens that have 0 in one of them are not trained.
inline constexpr std::array<std::string_view, 4> kLossMasks{"completion_mask", "loss_mask",
                                                            "assistant_masks", "assistant_mask"};

// Names of fields; empty: there is none. One of these is there: messages; prompt and answer; text;
// tokens.
struct FieldMap {
  std::string messages{};  // a list of {"role", "content"} or {"from", "value"}
  std::string system{};    // stands before the prompt; may be missing in a record
  std::string prompt{};
  std::string input{};  // follows the prompt on a separate line; may be missing or empty
  std::string answer{};
  std::string text{};
  std::string tokens{};     // a list of token ids
  std::string labels{};     // beside `tokens`: the same ids, -100 where nothing is trained
  bool by_looking = false;  // find_fields() made it: optional fields may be missing in a record
  std::vector<std::string> unseen{};  // optional fields that it knows, but has not found yet

  // "prompt=instruction, input=input, answer=output". Without unseen fields.
  std::string describe() const;
  bool has_seen(const std::string& name) const;
  friend bool operator==(const FieldMap&, const FieldMap&) = default;
};

// The first of these shapes whose fields all records have:
//   messages | conversations | input_ids (labels) | instruction, output (input) |
//   prompt, completion | prompt, response | question, answer | input, target | input, output |
//   dialogue, summary | content, summary | text, summary | text, label | text
// A field "system" is used, too. Fields in parentheses, and "system", are used wherever a later
// record has them, even if none of these records does. DataError that names the fields that are
// there, or the first record of another kind than the records before it.
FieldMap find_fields(std::span<const Record> records);

// The names of kLossMasks that one of the records has.
std::vector<std::string> loss_masks_of(std::span<const Record> records);

// "prompt=question,answer=reply": a part's name, '=', the field's. ConfigError for a part that does
// not exist, and where the parts make no example.
FieldMap parse_fields(std::string_view text);

// The value of a required field. DataError that names the fields that the record has.
const files::json::Value& require_field(const Record& record, const std::string& name);

}  // namespace zinc::data
