#include "text/token_model.h"

#include "text/bpe_model.h"
#include "text/json_parts.h"
#include "text/unigram_model.h"
#include "text/wordpiece_model.h"

namespace zinc::text {

std::unique_ptr<TokenModel> parse_token_model(const files::json::Value& part, bool bytes) {
  const files::json::Value* type = part.find("type");
  const auto is = [&](std::string_view name, std::string_view key) {
    return type != nullptr ? type->is_string(name) : part.find(key) != nullptr;
  };
  if (is("BPE", "merges")) return BpeModel::parse(part, bytes);
  if (bytes) part.fail("ByteLevel is supported for the model BPE only");
  if (is("WordPiece", "max_input_chars_per_word")) return WordPieceModel::parse(part);
  if (is("Unigram", "unk_id")) return UnigramModel::parse(part);
  if (type == nullptr) part.fail("key \"type\" is missing");
  refuse_type(*type, "model", "BPE, Unigram, WordPiece");
}

}  // namespace zinc::text
