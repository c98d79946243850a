#include "train/metrics/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <vector>

namespace zinc::train {
namespace {

std::string remaining(const Progress& p) {
  const auto steps = static_cast<double>(std::max<int64_t>(p.total_steps - p.step, 0));
  return "ETA " + format_duration(steps * p.seconds_per_step);
}

std::string norm_or_skip(const Progress& p) {
  return p.skipped ? "overflow: skipped" : fmt::format("gnorm {:.3f}", p.grad_norm);
}

std::string milliseconds(const Progress& p) {
  return fmt::format("{:.1f} ms", 1e3 * p.seconds_per_step);
}

std::string speed(const Progress& p) { return format_count(p.tokens_per_second) + " tok/s"; }

}  // namespace

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0.0) return "?";
  const auto s = static_cast<int64_t>(std::llround(std::min(seconds, 1e15)));
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  if (s < 86400) return fmt::format("{}h{:02}m", s / 3600, s % 3600 / 60);
  return fmt::format("{}d{:02}h", s / 86400, s % 86400 / 3600);
}

std::string format_bytes(int64_t bytes) {
  static constexpr std::array<std::string_view, 5> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024.0;
  size_t unit = 0;
  for (; value >= 1023.95 && unit + 1 < kUnits.size(); ++unit) value /= 1024.0;
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string format_count(double count) {
  static constexpr std::array<std::string_view, 4> kUnits = {"k", "M", "G", "T"};
  if (!(std::abs(count) >= 999.5)) return fmt::format("{:.0f}", count);
  double value = count / 1e3;
  size_t unit = 0;
  for (; std::abs(value) >= 999.5 && unit + 1 < kUnits.size(); ++unit) value /= 1e3;
  const int digits = std::abs(value) < 9.995 ? 2 : std::abs(value) < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}{}", value, digits, kUnits[unit]);
}

std::string progress_line(const Progress& p) {
  const auto width = static_cast<int>(std::to_string(p.total_steps).size());
  std::string line = fmt::format("step {:>{}}/{} | epoch {:.2f} | loss {:.4f}", p.step, width,
                                 p.total_steps, p.epoch, p.loss);
  if (p.val_loss) line += fmt::format(" | val {:.4f}", *p.val_loss);
  line += fmt::format(" | {} | lr {:.2e}", norm_or_skip(p), p.lr);
  if (p.seconds_per_step > 0.0) line += " | " + milliseconds(p);
  if (p.tokens_per_second > 0.0) line += " | " + speed(p);
  if (p.flops_per_second) line += " | " + format_count(*p.flops_per_second) + "FLOP/s";
  if (p.flops_utilisation) line += fmt::format(" | {:.1f}% MFU", 100.0 * *p.flops_utilisation);
  if (p.swap) {
    line += fmt::format(" | swap {:.1f} ms, waited {:.1f} ms",
                        1e-6 * static_cast<double>(p.swap->busy_ns),
                        1e-6 * static_cast<double>(p.swap->stall_ns));
  }
  line += " | mem " + format_bytes(p.peak_bytes);
  if (p.loss_scale) line += fmt::format(" | scale {:g}", *p.loss_scale);
  if (p.seconds_per_step > 0.0) line += " | " + remaining(p);
  return line;
}

std::string evaluation_line(const EvaluationProgress& p) {
  std::string line = fmt::format("evaluation {}{}{}{}/{} batches", p.set.empty() ? "" : "of ",
                                 p.set, p.set.empty() ? "" : " ", p.batches, p.total_batches);
  if (p.batches == 0) return line;
  const double left = static_cast<double>(p.total_batches - p.batches);
  return line + fmt::format(" | {} | ETA {}", format_duration(p.seconds),
                            format_duration(left * p.seconds / static_cast<double>(p.batches)));
}

std::string breakdown_line(const PhaseSeconds& seconds) {
  return fmt::format("time (ms) | fwd: {:.2f} | bwd: {:.2f} | bwd_allreduce: {:.2f} | step: {:.2f}",
                     1e3 * seconds.forward, 1e3 * seconds.backward,
                     1e3 * seconds.gradient_reduction, 1e3 * seconds.step);
}

std::string live_line(const Progress& p, int width) {
  constexpr int kBarColumns = 16;
  const double done =
      p.total_steps > 0 ? static_cast<double>(p.step) / static_cast<double>(p.total_steps) : 0.0;
  const int filled = static_cast<int>(std::clamp(done, 0.0, 1.0) * kBarColumns);
  std::string line = fmt::format("[{:#>{}}{:->{}}] {}/{}", "", filled, "", kBarColumns - filled,
                                 p.step, p.total_steps);
  std::vector<std::string> figures = {fmt::format("loss {:.4f}", p.loss)};
  if (p.val_loss) figures.push_back(fmt::format("val {:.4f}", *p.val_loss));
  if (p.seconds_per_step > 0.0) figures.push_back(remaining(p));
  if (p.tokens_per_second > 0.0) figures.push_back(speed(p));
  figures.push_back(norm_or_skip(p));
  figures.push_back(fmt::format("lr {:.2e}", p.lr));
  if (p.flops_utilisation) {
    figures.push_back(fmt::format("{:.1f}% MFU", 100.0 * *p.flops_utilisation));
  }
  figures.push_back("mem " + format_bytes(p.peak_bytes));
  if (p.seconds_per_step > 0.0) figures.push_back(milliseconds(p));
  for (const std::string& figure : figures) {
    if (static_cast<int>(line.size() + 3 + figure.size()) > width) break;
    line += " | " + figure;
  }
  return line.substr(0, static_cast<size_t>(std::max(width, 0)));
}

}  // namespace zinc::train
