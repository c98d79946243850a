#include "generate/texts_of_ranks.h"

#include <exception>
#include <functional>
#include <memory>
#include <utility>

#include "comm/gather_values.h"
#include "core/error.h"
#include "generate/text_generator.h"

namespace zinc::generate {
namespace {

// One rank among those that share the weights.
class RankWriter {
 public:
  RankWriter(zero::Engine& engine, const GenerateOptions& options)
      : engine_(engine), options_(options) {}

  std::vector<GeneratedTexts> write(std::vector<std::vector<int32_t>> prompts,
                                    const OnToken& on_token) {
    std::vector<GeneratedTexts> texts;
    std::unique_ptr<TextGenerator> generator;
    const bool has_prompts = !prompts.empty();
    if (has_prompts) attempt([&] { generator = make(std::move(prompts), options_); });
    const bool writes = generator != nullptr;
    if (!writes) generator = make({{0}}, {.max_tokens = 1});
    begins_passes_together_ = true;
    if (writes) attempt([&] { texts = generator->write(on_token); });
    begins_passes_together_ = false;
    while (comm::any_rank(engine_.world(), false)) generator->pass_along();
    if (failure_ != nullptr) std::rethrow_exception(failure_);
    return texts;
  }

 private:
  // In the constructor of a TextGenerator all ranks make the same passes.
  std::unique_ptr<TextGenerator> make(std::vector<std::vector<int32_t>> prompts,
                                      const GenerateOptions& options) {
    return std::make_unique<TextGenerator>(engine_.model(), std::move(prompts), options,
                                           [this](const std::function<void()>& pass) {
                                             if (begins_passes_together_) {
                                               comm::any_rank(engine_.world(), true);
                                             }
                                             engine_.predict(pass);
                                           });
  }
  template <class Work>
  void attempt(const Work& work) {
    try {
      work();
    } catch (const CommError&) {
      throw;  // the peers are gone
    } catch (...) {
      failure_ = std::current_exception();
    }
  }

  zero::Engine& engine_;
  const GenerateOptions& options_;
  bool begins_passes_together_ = false;
  std::exception_ptr failure_;
};

}  // namespace

std::vector<GeneratedTexts> write_texts(zero::Engine& engine,
                                        std::vector<std::vector<int32_t>> prompts,
                                        const GenerateOptions& options, const OnToken& on_token) {
  if (engine.config().zero.stage == 3) {
    return RankWriter(engine, options).write(std::move(prompts), on_token);
  }
  if (prompts.empty()) return {};
  return TextGenerator(engine.model(), std::move(prompts), options,
                       [&](const std::function<void()>& pass) { engine.predict(pass); })
      .write(on_token);
}

}  // namespace zinc::generate
