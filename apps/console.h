// apps/console.h: what `zinc train` shows while it runs: a live line on a terminal, plain lines
// elsewhere, a table at the head.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "train/trainer.h"

namespace zinc::apps {

inline constexpr double kEvaluationLineSeconds = 5.0;

// Prints to stdout (figures) and stderr (the live line). Made on rank 0; silent on others. Output
// that cannot be written is dropped, and does not end the run.
class Console : public train::TrainerObserver {
 public:
  // `print_every`: steps between printed lines where stdout is no terminal, and between lines that
  // stay above the live line where it is.
  Console(bool speaks, int64_t print_every);
  ~Console() override;

  void table(const std::string& title,
             const std::vector<std::pair<std::string, std::string>>& rows);
  void line(const std::string& text);  // stays on the screen
  // The function is called once, when stdout's pipe is closed, so that nobody reads it.
  void when_output_is_closed(std::function<void()> closed) { closed_ = std::move(closed); }
  // From now on shows the lines that `notes` returns in addition to the present ones, each once,
  // after the step in which it came.
  void show_new(std::function<std::vector<std::string>()> notes);
  void on_step(const train::StepMetrics& metrics, const train::Progress& progress) override;
  // On a terminal as the live line, elsewhere as a line every kEvaluationLineSeconds.
  void on_evaluating(const train::EvaluationProgress& progress) override;
  void on_evaluate(const train::EvaluationResult& result) override;
  void on_note(const std::string& text) override { line("note: " + text); }

 private:
  void clear_live_line();
  void draw_live_line(const std::string& text);

  bool speaks_;
  bool terminal_;
  bool live_ = false;
  int64_t print_every_;
  std::function<void()> closed_;
  std::function<std::vector<std::string>()> notes_;
  size_t notes_shown_ = 0;
  std::chrono::steady_clock::time_point last_drawn_{};
  double evaluation_shown_ = 0.0;  // seconds of the evaluation under way
};

}  // namespace zinc::apps
