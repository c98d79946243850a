#include <fmt/format.h>

#include <string>

#include "files/json/writer.h"
#include "plan/fit.h"

namespace zinc::plan {
namespace {

double mib(int64_t bytes) { return static_cast<double>(bytes) / 0x1p20; }

std::string tiers_text(const std::array<int64_t, kNumTiers>& reserved) {
  std::string text;
  for (int t = 0; t < kNumTiers; ++t) {
    const int64_t bytes = reserved[static_cast<size_t>(t)];
    if (bytes == 0 && t > 0) continue;
    text += fmt::format("{}{} {:.2f} MiB", text.empty() ? "" : ", ", name_of(static_cast<Tier>(t)),
                        mib(bytes));
  }
  return text;
}

std::string limits_text(const FitLimits& limits) {
  std::string text =
      fmt::format("{} {:.2f} MiB", limits.one_pool ? "memory" : "device", mib(limits.device));
  if (limits.host) text += fmt::format(", pinned_host {:.2f} MiB", mib(*limits.host));
  if (limits.nvme) text += fmt::format(", nvme {:.2f} MiB", mib(*limits.nvme));
  return text;
}

std::string lanes_text(const StepTime& time) {
  std::string text = fmt::format("compute {:.3f}, communication {:.3f}", 1e3 * time.compute_seconds,
                                 1e3 * time.communication_seconds);
  if (time.offload != OffloadTime{}) {
    text += fmt::format(", to the device {:.3f}, to the host {:.3f}, by the host {:.3f}",
                        1e3 * time.offload.to_device, 1e3 * time.offload.to_host,
                        1e3 * time.offload.on_host);
  }
  if (time.pipeline_wait_seconds > 0.0) {
    text += fmt::format(", waits in the pipeline {:.3f}", 1e3 * time.pipeline_wait_seconds);
  }
  if (time.swap_seconds) text += fmt::format(", disk {:.3f}", 1e3 * *time.swap_seconds);
  return text + " ms";
}

std::string answer_text(size_t number, const FittedConfig& answer, int world) {
  std::string text = fmt::format("{}. {}\n", number, answer.words);
  if (answer.time) {
    const double tokens = static_cast<double>(answer.tokens_per_step) / answer.time->step_seconds;
    text +=
        fmt::format("   {:.3f} ms a step, {:.1f} tokens/s, {:.1f} of a rank, MFU {:.1f} %\n   {}\n",
                    1e3 * answer.time->step_seconds, tokens, tokens / world, 100.0 * answer.mfu,
                    lanes_text(*answer.time));
  } else if (!answer.no_time.empty()) {
    text += fmt::format("   no time: {}\n", answer.no_time);
  }
  text += fmt::format("   {}; binds: {}\n", tiers_text(answer.reserved), answer.binds);
  for (const std::string& line : answer.why) text += fmt::format("   with {}\n", line);
  return text;
}

std::string nothing_text(const FitShortfall& nothing, const FitLimits& limits) {
  std::string tiers;
  for (const Tier tier : nothing.beyond) {
    const bool pool = limits.one_pool && tier == Tier::device;
    int64_t bytes = nothing.reserved[static_cast<size_t>(tier)];
    if (pool) bytes += nothing.reserved[static_cast<size_t>(Tier::pinned_host)];
    tiers += fmt::format("{}{} of {:.2f} MiB, which would have to be {} bytes ({:.2f} MiB)",
                         tiers.empty() ? "" : ", and ",
                         pool ? std::string_view("memory") : name_of(tier), mib(limits.at(tier)),
                         bytes, mib(bytes));
  }
  return fmt::format(
      "nothing fits: what comes nearest is beyond {}\n   {}\n   {}\n   at the "
      "device's peak: {}\n",
      tiers, nothing.words, tiers_text(nothing.reserved), nothing.largest);
}

void write_tiers(files::json::Writer& json, const std::array<int64_t, kNumTiers>& reserved) {
  json.key("reserved_bytes").begin_object();
  for (int t = 0; t < kNumTiers; ++t) {
    json.member(name_of(static_cast<Tier>(t)), reserved[static_cast<size_t>(t)]);
  }
  json.end_object();
}

void write_answer(files::json::Writer& json, const FittedConfig& answer) {
  json.begin_object();
  json.member("words", answer.words);
  json.key("mesh").begin_object();
  json.member("tensor", answer.candidate.tensor);
  json.member("sequence", answer.candidate.sequence);
  json.member("pipe", answer.candidate.pipe);
  json.end_object();
  json.member("stage", answer.candidate.stage);
  json.member("micro_batch", answer.candidate.micro_batch);
  json.member("accumulation", answer.candidate.accumulation);
  write_tiers(json, answer.reserved);
  json.member("binds", answer.binds);
  if (answer.time) {
    const StepTime& time = *answer.time;
    json.member("step_seconds", time.step_seconds);
    json.member("tokens_per_second",
                static_cast<double>(answer.tokens_per_step) / time.step_seconds);
    json.member("mfu", answer.mfu);
    json.member("compute_seconds", time.compute_seconds);
    json.member("communication_seconds", time.communication_seconds);
    json.member("to_device_seconds", time.offload.to_device);
    json.member("to_host_seconds", time.offload.to_host);
    json.member("on_host_seconds", time.offload.on_host);
    json.member("pipeline_wait_seconds", time.pipeline_wait_seconds);
    if (time.swap_seconds) json.member("disk_seconds", *time.swap_seconds);
  } else if (!answer.no_time.empty()) {
    json.member("no_time", answer.no_time);
  }
  if (!answer.why.empty()) {
    json.key("without").begin_array();
    for (const std::string& line : answer.why) json.value(line);
    json.end_array();
  }
  json.member("config", answer.file);
  json.end_object();
}

}  // namespace

std::string describe(const FitResult& result, const FitRequest& request) {
  std::string text = fmt::format(
      "{} ranks, {} sequences of {} tokens a step; a rank may take {}\n{} candidates, {} planned{}",
      request.plan.world, result.global_batch, request.plan.seq, limits_text(result.limits),
      result.num_candidates, result.num_planned,
      result.is_complete ? "\n" : ": the search ended at its limit of plans\n");
  if (result.gap) {
    text +=
        fmt::format("one that was not planned may save up to {:.1f} % of the first one's time\n",
                    100.0 * *result.gap);
  }
  if (!result.is_timed) {
    text +=
        "fits by memory alone: no hardware file says how long anything takes; the least that "
        "travels comes first\n";
  }
  if (result.nothing) return text + nothing_text(*result.nothing, result.limits);
  for (size_t i = 0; i < result.best.size(); ++i) {
    text += answer_text(i + 1, result.best[i], request.plan.world);
  }
  return text;
}

std::string describe(const KeyCosts& costs) {
  const KeyCost* own = nullptr;
  for (const KeyCost& row : costs.rows) {
    if (row.is_own) own = &row;
  }
  std::string text =
      fmt::format("{}, all else as in 1\n  {:<14} {:>14} {:>14} {:>14} {:>12}\n", costs.path,
                  "value", "device MiB", "host MiB", "nvme MiB", "step ms");
  for (const KeyCost& row : costs.rows) {
    text += fmt::format("{} {:<14}", row.is_own ? '*' : ' ', row.value);
    if (!row.problem.empty()) {
      text += fmt::format(" refused: {}\n", row.problem.substr(0, row.problem.find('\n')));
      continue;
    }
    for (int t = 0; t < kNumTiers; ++t) {
      const auto tier = static_cast<size_t>(t);
      const bool is_change = own != nullptr && !row.is_own;
      text += is_change ? fmt::format(" {:>+14.2f}", mib(row.reserved[tier] - own->reserved[tier]))
                        : fmt::format(" {:>14.2f}", mib(row.reserved[tier]));
    }
    if (row.step_seconds && own != nullptr && own->step_seconds && !row.is_own) {
      text += fmt::format(" {:>+12.3f}", 1e3 * (*row.step_seconds - *own->step_seconds));
    } else if (row.step_seconds) {
      text += fmt::format(" {:>12.3f}", 1e3 * *row.step_seconds);
    } else {
      text += fmt::format(" {:>12}", "-");
    }
    if (!row.fits) text += "  does not fit";
    if (!row.without.empty()) text += "  without " + row.without;
    text += "\n";
  }
  return text;
}

std::string json_of(const FitResult& result, const FitRequest& request,
                    const std::optional<KeyCosts>& costs) {
  files::json::Writer json(2);
  json.begin_object();
  json.member("world", request.plan.world);
  json.member("seq", request.plan.seq);
  json.key("limits_bytes").begin_object();
  json.member("device", result.limits.device);
  if (result.limits.host) json.member("pinned_host", *result.limits.host);
  if (result.limits.nvme) json.member("nvme", *result.limits.nvme);
  json.member("one_pool", result.limits.one_pool);
  json.end_object();
  json.member("candidates", result.num_candidates);
  json.member("planned", result.num_planned);
  json.member("complete", result.is_complete);
  if (result.gap) json.member("gap", *result.gap);
  json.member("timed", result.is_timed);
  json.key("best").begin_array();
  for (const FittedConfig& answer : result.best) write_answer(json, answer);
  json.end_array();
  if (result.nothing) {
    json.key("nothing_fits").begin_object();
    json.member("nearest", result.nothing->words);
    write_tiers(json, result.nothing->reserved);
    json.key("beyond").begin_array();
    for (const Tier tier : result.nothing->beyond) json.value(name_of(tier));
    json.end_array();
    json.member("at_peak", result.nothing->largest);
    json.end_object();
  }
  if (costs) {
    json.key("explained").begin_object();
    json.member("key", costs->path);
    json.key("values").begin_array();
    for (const KeyCost& row : costs->rows) {
      json.begin_object();
      json.member("value", row.value);
      json.member("own", row.is_own);
      if (row.problem.empty()) {
        json.member("fits", row.fits);
        write_tiers(json, row.reserved);
        if (row.step_seconds) json.member("step_seconds", *row.step_seconds);
        if (!row.without.empty()) json.member("without", row.without);
      } else {
        json.member("refused", row.problem);
      }
      json.end_object();
    }
    json.end_array();
    json.end_object();
  }
  json.end_object();
  return json.take();
}

}  // namespace zinc::plan
