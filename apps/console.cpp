#include "apps/console.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string_view>
#include <utility>

namespace zinc::apps {
namespace {

constexpr auto kRedrawInterval = std::chrono::milliseconds(100);

int terminal_width() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

// Writes the text. Returns 0, or the errno of a write that failed; the rest is then dropped.
int write_all(int file, std::string_view text) {
  constexpr int kPatienceMs = 1000;  // with a reader whose pipe does not wait
  while (!text.empty()) {
    const ssize_t n = ::write(file, text.data(), text.size());
    if (n >= 0) {
      text.remove_prefix(static_cast<size_t>(n));
      continue;
    }
    if (errno == EINTR) continue;
    pollfd room{.fd = file, .events = POLLOUT, .revents = 0};
    if (errno != EAGAIN || ::poll(&room, 1, kPatienceMs) <= 0) return errno;
  }
  return 0;
}

}  // namespace

Console::Console(bool speaks, int64_t print_every)
    : speaks_(speaks),
      terminal_(speaks && isatty(STDOUT_FILENO) == 1 && isatty(STDERR_FILENO) == 1),
      print_every_(std::max<int64_t>(1, print_every)) {}

Console::~Console() { clear_live_line(); }

void Console::clear_live_line() {
  if (!live_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  live_ = false;
}

void Console::line(const std::string& text) {
  if (!speaks_) return;
  clear_live_line();
  if (write_all(STDOUT_FILENO, text + '\n') != EPIPE) return;
  if (const auto closed = std::exchange(closed_, nullptr)) closed();
}

void Console::table(const std::string& title,
                    const std::vector<std::pair<std::string, std::string>>& rows) {
  size_t width = 0;
  for (const auto& [name, value] : rows) width = std::max(width, name.size());
  line(title);
  for (const auto& [name, value] : rows) line(fmt::format("  {:<{}}  {}", name, width, value));
}

void Console::show_new(std::function<std::vector<std::string>()> notes) {
  notes_shown_ = notes().size();
  notes_ = std::move(notes);
}

void Console::on_step(const train::StepMetrics& metrics, const train::Progress& progress) {
  if (!speaks_) return;
  if (notes_) {
    const std::vector<std::string> notes = notes_();
    while (notes_shown_ < notes.size()) line("note: " + notes[notes_shown_++]);
  }
  const bool prints = metrics.step == 1 || metrics.step % print_every_ == 0 || metrics.skipped ||
                      metrics.val_loss || progress.step == progress.total_steps;
  if (prints) line(train::progress_line(progress));
  if (metrics.breakdown && metrics.step % print_every_ == 0) {
    line(train::breakdown_line(*metrics.breakdown));
  }
  draw_live_line(train::live_line(progress, terminal_width() - 1));
}

void Console::draw_live_line(const std::string& text) {
  const auto now = std::chrono::steady_clock::now();
  if (!terminal_ || now - last_drawn_ < kRedrawInterval) return;
  last_drawn_ = now;
  std::fprintf(stderr, "\r\033[K%s", text.c_str());
  std::fflush(stderr);
  live_ = true;
}

void Console::on_evaluating(const train::EvaluationProgress& progress) {
  if (!speaks_) return;
  if (progress.batches == 0) evaluation_shown_ = 0.0;
  if (terminal_) {
    draw_live_line(train::evaluation_line(progress));
  } else if (progress.seconds - evaluation_shown_ >= kEvaluationLineSeconds) {
    evaluation_shown_ = progress.seconds;
    line(train::evaluation_line(progress));
  }
}

void Console::on_evaluate(const train::EvaluationResult& result) {
  std::string text = fmt::format("step {:>5} | val loss {:.4f} nats", result.step, result.val_loss);
  for (const train::SetLoss& set : result.sets) {
    if (!set.name.empty()) text += fmt::format(" | {} {:.4f}", set.name, set.loss);
  }
  line(text + (result.best ? " | best" : ""));
}

}  // namespace zinc::apps
