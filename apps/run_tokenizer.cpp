#include "apps/run_tokenizer.h"

#include <fmt/format.h>

#include "core/error.h"
#include "files/atomic_file.h"
#include "files/input_file.h"
#include "text/tokenizer_folder.h"

namespace zinc::apps {

std::string RunTokenizer::describe() const {
  if (tokenizer == nullptr) return "bytes";
  return fmt::format("{}, {} tokens", tokenizer->name(), tokenizer->vocabulary_size());
}

std::string RunTokenizer::note(bool replaced, int64_t vocabulary) const {
  if (!problem.empty()) return "note: the tokenizer of --init is copied, not used: " + problem;
  if (!replaced) return {};
  return fmt::format("note: text {}, so the model's vocabulary is replaced by {}",
                     tokenizer == nullptr ? "is read as bytes" : "has the tokenizer's tokens",
                     vocabulary);
}

data::TokenSequence RunTokenizer::open(const std::vector<std::string>& files) const {
  return data::TokenSequence::open(files, data::TokenFormat::automatic, tokenizer.get());
}

RunTokenizer find_tokenizer(const std::string& flag, const std::string& init) {
  RunTokenizer found;
  if (!flag.empty()) {
    found.tokenizer = text::load_tokenizer(flag);
    found.folder = flag;
    return found;
  }
  if (init.empty() || !files::folder_exists(init)) return found;
  found.folder = init;
  if (!text::has_tokenizer(init)) return found;
  try {
    found.tokenizer = text::load_tokenizer(init);
  } catch (const Error& error) {
    found.problem = error.what();
  }
  return found;
}

void require_own_tokens(const RunTokenizer& tokenizer, std::string_view data, int64_t made,
                        int64_t vocabulary) {
  if (made == 0 || vocabulary == made) return;
  if (tokenizer.tokenizer != nullptr) {
    if (made < vocabulary) return;
    throw DataError(fmt::format("{}: the tokenizer {} has a vocabulary of {}, the model one of {}",
                                data, tokenizer.tokenizer->name(), made, vocabulary));
  }
  throw DataError(fmt::format(
      "{}: text is read as bytes, the tokens of a vocabulary of {}, but the model has one of "
      "{}; give its tokenizer by --tokenizer, or .bin files (zinc tokenize prepare, llm.c, "
      "nanoGPT) that it made{}{}",
      data, made, vocabulary, tokenizer.problem.empty() ? "" : "\n  ", tokenizer.problem));
}

}  // namespace zinc::apps
