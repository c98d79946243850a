#include "core/error.h"
#include "text/piece_model.h"

namespace zinc::text {

std::unique_ptr<PieceModel> load_piece_model(const std::string& path) {
  throw ConfigError(str(path,
                        " is a sentencepiece model and needs libsentencepiece, which this build "
                        "of zinc has not: install libsentencepiece-dev and build again"));
}

void train_piece_model(const PieceTraining&) {
  throw ConfigError(
      "training a sentencepiece model needs libsentencepiece, which this build of zinc has not: "
      "install libsentencepiece-dev and build again");
}

}  // namespace zinc::text
