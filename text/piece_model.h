// text/piece_model.h: models of sentencepiece (spiece.model, tokenizer.model), by
// libsentencepiece.
//
// Without that library (Debian: libsentencepiece-dev) the functions throw ConfigError, which names
// it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace zinc::text {

enum class PieceKind : uint8_t { text, unknown, control, byte };

// Several threads may use one at once.
class PieceModel {
 public:
  virtual ~PieceModel() = default;
  virtual int32_t size() const = 0;  // pieces are 0 .. size - 1
  virtual PieceKind kind(int32_t piece) const = 0;
  virtual const std::string& text(int32_t piece) const = 0;
  // -1: the model has none.
  virtual int32_t begin_id() const = 0;
  virtual int32_t end_id() const = 0;
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
  // Pieces below size(). A setting of the model decides how many spaces are removed from the front.
  virtual std::string decode(std::span<const int32_t> pieces) const = 0;
};

// DataError where the file is no model.
std::unique_ptr<PieceModel> load_piece_model(const std::string& path);

struct PieceTraining {
  std::vector<std::string> files;  // UTF-8 text, a sentence a line
  std::string prefix;              // for <prefix>.model and <prefix>.vocab
  int64_t vocabulary_size = 8192;
  bool bpe = false;                    // false: Unigram
  double character_coverage = 0.9995;  // the rest of the characters becomes bytes
  int threads = 1;
};
// Trains with byte fallback, so that every text has tokens. DataError where the library refuses.
void train_piece_model(const PieceTraining& training);

}  // namespace zinc::text
