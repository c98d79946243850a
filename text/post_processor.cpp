#include "text/post_processor.h"

#include <utility>

#include "core/error.h"
#include "text/json_parts.h"
#include "text/vocabulary.h"

namespace zinc::text {
namespace {

constexpr size_t kMaxTemplates = 16;
constexpr size_t kMaxTemplateParts = 64;

int32_t parse_special_id(const files::json::Value& value) {
  return static_cast<int32_t>(value.as_int64(0, kMaxVocabulary - 1));
}

// ["<s>", 0]
int32_t parse_named_id(const files::json::Value& pair) {
  if (pair.size() != 2) pair.fail("expected [token, id]");
  return parse_special_id(pair.at(size_t{1}));
}

}  // namespace

PostProcessor PostProcessor::around(std::vector<int32_t> before, std::vector<int32_t> behind) {
  PostProcessor result;
  before.push_back(kText);
  before.insert(before.end(), behind.begin(), behind.end());
  if (before.size() > 1) result.templates_.push_back(std::move(before));
  return result;
}

void PostProcessor::add(const files::json::Value& part) {
  const files::json::Value& type = part.at("type");
  if (templates_.size() >= kMaxTemplates) part.fail(str("more than ", kMaxTemplates, " steps"));
  if (type.is_string("Sequence")) {
    require_known_keys(part, {"type", "processors"});
    for (const files::json::Value& inner : part.at("processors").as_array()) add(inner);
  } else if (type.is_string("ByteLevel")) {
    require_known_keys(part, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
  } else if (type.is_string("RobertaProcessing") || type.is_string("BertProcessing")) {
    require_known_keys(part, {"type", "sep", "cls", "trim_offsets", "add_prefix_space"});
    templates_.push_back({parse_named_id(part.at("cls")), kText, parse_named_id(part.at("sep"))});
  } else if (type.is_string("TemplateProcessing")) {
    require_known_keys(part, {"type", "single", "pair", "special_tokens"});
    const files::json::Value& specials = part.at("special_tokens");
    std::vector<int32_t> ids;
    if (part.at("single").size() > kMaxTemplateParts) {
      part.at("single").fail(str("more than ", kMaxTemplateParts, " parts"));
    }
    for (const files::json::Value& piece : part.at("single").as_array()) {
      require_known_keys(piece, {"Sequence", "SpecialToken"});
      if (const files::json::Value* special = piece.find("SpecialToken")) {
        const files::json::Value& name = special->at("id");
        const files::json::Value* token = specials.find(name.as_string());
        if (token == nullptr) name.fail("is not among the special_tokens of the template");
        if (token->at("ids").size() > kMaxTemplateParts) token->fail("has too many ids");
        for (const files::json::Value& id : token->at("ids").as_array()) {
          ids.push_back(parse_special_id(id));
        }
      } else if (piece.at("Sequence").at("id").is_string("A")) {
        ids.push_back(kText);
      } else {
        piece.fail("the template of one text has the sequence A only");
      }
    }
    templates_.push_back(std::move(ids));
  } else {
    refuse_type(type, "post-processor",
                "BertProcessing, ByteLevel, RobertaProcessing, Sequence, TemplateProcessing");
  }
}

PostProcessor PostProcessor::parse(const files::json::Value* part) {
  PostProcessor result;
  if (part != nullptr && !part->is_null()) result.add(*part);
  return result;
}

std::vector<int32_t> PostProcessor::apply(std::vector<int32_t> ids) const {
  for (const std::vector<int32_t>& parts : templates_) {
    std::vector<int32_t> all;
    for (const int32_t part : parts) {
      if (part == kText) {
        all.insert(all.end(), ids.begin(), ids.end());
      } else {
        all.push_back(part);
      }
    }
    ids = std::move(all);
  }
  return ids;
}

}  // namespace zinc::text
