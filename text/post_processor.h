// text/post_processor.h: the special tokens that stand around a text: the "post_processor" of
// a tokenizer.json, for one text (not for pairs).
#pragma once

#include <cstdint>
#include <vector>

#include "files/json/value.h"

namespace zinc::text {

class PostProcessor {
 public:
  // `part`: null, or an object: BertProcessing, ByteLevel (no effect on ids), RobertaProcessing,
  // Sequence, TemplateProcessing. DataError where it asks for something else.
  static PostProcessor parse(const files::json::Value* part);
  // [before] text [behind], once.
  static PostProcessor around(std::vector<int32_t> before, std::vector<int32_t> behind);

  bool changes_nothing() const { return templates_.empty(); }
  std::vector<int32_t> apply(std::vector<int32_t> ids) const;

 private:
  // Ids to write; kText stands for the text.
  static constexpr int32_t kText = -1;
  void add(const files::json::Value& part);
  std::vector<std::vector<int32_t>> templates_;
};

}  // namespace zinc::text
