#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <unordered_map>

#include "core/error.h"
#include "files/input_file.h"
#include "text/piece_model.h"

namespace zinc::text {
namespace {

constexpr int64_t kMaxModelBytes = int64_t{256} << 20;

class SentencePieceModel final : public PieceModel {
 public:
  explicit SentencePieceModel(const std::string& path) : path_(path) {
    const sentencepiece::util::Status status =
        processor_.LoadFromSerializedProto(files::read_text_file(path, kMaxModelBytes));
    if (!status.ok()) {
      throw DataError(str(path, ": is no sentencepiece model: ", status.ToString()));
    }
  }
  int32_t size() const override { return processor_.GetPieceSize(); }
  PieceKind kind(int32_t piece) const override {
    if (processor_.IsUnknown(piece)) return PieceKind::unknown;
    if (processor_.IsControl(piece)) return PieceKind::control;
    return processor_.IsByte(piece) ? PieceKind::byte : PieceKind::text;
  }
  const std::string& text(int32_t piece) const override { return processor_.IdToPiece(piece); }
  int32_t begin_id() const override { return processor_.bos_id(); }
  int32_t end_id() const override { return processor_.eos_id(); }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    std::vector<int> pieces;
    const sentencepiece::util::Status status =
        processor_.Encode(absl::string_view(text.data(), text.size()), &pieces);
    if (!status.ok()) throw DataError(str(path_, ": ", status.ToString()));
    ids.insert(ids.end(), pieces.begin(), pieces.end());
  }
  std::string decode(std::span<const int32_t> pieces) const override {
    std::string text;
    const sentencepiece::util::Status status =
        processor_.Decode(std::vector<int>(pieces.begin(), pieces.end()), &text);
    if (!status.ok()) throw DataError(str(path_, ": ", status.ToString()));
    return text;
  }

 private:
  std::string path_;
  sentencepiece::SentencePieceProcessor processor_;
};

}  // namespace

std::unique_ptr<PieceModel> load_piece_model(const std::string& path) {
  return std::make_unique<SentencePieceModel>(path);
}

void train_piece_model(const PieceTraining& training) {
  std::string files;
  for (const std::string& file : training.files) {
    // The library takes a list with commas.
    if (file.find(',') != file.npos) throw DataError(str(file, ": has a comma in its name"));
    files += files.empty() ? file : "," + file;
  }
  const std::unordered_map<std::string, std::string> arguments{
      {"input", files},
      {"model_prefix", training.prefix},
      {"vocab_size", std::to_string(training.vocabulary_size)},
      {"model_type", training.bpe ? "bpe" : "unigram"},
      {"character_coverage", str(training.character_coverage)},
      {"byte_fallback", "true"},
      {"num_threads", std::to_string(training.threads)},
      {"minloglevel", "1"}};
  const sentencepiece::util::Status status = sentencepiece::SentencePieceTrainer::Train(arguments);
  if (!status.ok()) throw DataError(str("sentencepiece: ", status.ToString()));
}

}  // namespace zinc::text
