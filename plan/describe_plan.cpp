#include <fmt/format.h>

#include <string>
#include <string_view>

#include "core/error.h"
#include "files/json/writer.h"
#include "plan/computing_plan.h"
#include "plan/plan.h"
#include "train/metrics/progress.h"

namespace zinc::plan {
namespace {

std::string bytes_text(int64_t bytes) {
  return fmt::format("{:>16} ({:>10.2f} MiB)", bytes, static_cast<double>(bytes) / 0x1p20);
}

std::string_view name_of(WorkPlace place) {
  switch (place) {
    case WorkPlace::device:
      return "device";
    case WorkPlace::host:
      return "host";
    case WorkPlace::to_device:
      return "to_device";
    case WorkPlace::to_host:
      return "to_host";
  }
  return "?";
}

void write_figures(files::json::Writer& json, const RankPlan& rank) {
  json.key("tiers").begin_array();
  for (int t = 0; t < kNumTiers; ++t) {
    const auto tier = static_cast<Tier>(t);
    if (rank.peaks.at(tier).peak == 0) continue;
    json.begin_object();
    json.member("tier", name_of(tier));
    json.member("peak_bytes", rank.peaks.at(tier).peak);
    json.member("reserved_bytes", rank.peaks.reserved[static_cast<size_t>(t)].peak);
    json.key("labels").begin_array();
    for (int l = 0; l < kNumLabels; ++l) {
      const auto label = static_cast<Label>(l);
      if (rank.peaks.at(tier, label).peak == 0) continue;
      json.begin_object();
      json.member("label", name_of(label));
      json.member("peak_bytes", rank.peaks.at(tier, label).peak);
      json.member("bytes_at_peak", rank.at_peak.at(tier, label).live);
      json.end_object();
    }
    json.end_array();
    json.end_object();
  }
  json.end_array();
}

void write_choice(files::json::Writer& json, const OffloadChoice& choice) {
  json.key("offload_step").begin_object();
  json.member("chosen", zero::name_of(choice.step));
  if (choice.host_seconds) json.member("host_step_seconds", *choice.host_seconds);
  if (choice.device_seconds) json.member("device_step_seconds", *choice.device_seconds);
  json.member("why", choice.why);
  json.end_object();
}

void write_time(files::json::Writer& json, const Plan& plan) {
  if (!plan.fullest.time) return;
  const StepTime& time = *plan.fullest.time;
  json.key("time").begin_object();
  json.member("hardware", plan.options.hardware->name);
  json.member("hardware_source", plan.options.hardware->source);
  json.member("step_seconds", time.step_seconds);
  json.member("compute_seconds", time.compute_seconds);
  json.member("communication_seconds", time.communication_seconds);
  json.member("exposed_communication_seconds", time.exposed_seconds());
  if (time.offload != OffloadTime{}) {
    json.member("copies_to_device_seconds", time.offload.to_device);
    json.member("copies_to_host_seconds", time.offload.to_host);
    json.member("host_seconds", time.offload.on_host);
    json.member("exposed_offload_seconds", time.exposed_offload_seconds);
  }
  if (time.swap_seconds) {
    json.member("swap_seconds", *time.swap_seconds);
    json.member("exposed_swap_seconds", time.exposed_swap_seconds);
  }
  if (!plan.pipe.empty()) json.member("pipeline_wait_seconds", time.pipeline_wait_seconds);
  json.member("tokens_per_second", *plan.tokens_per_second());
  json.end_object();
}

std::string describe_time(const Plan& plan) {
  if (!plan.fullest.no_time.empty()) return fmt::format("no time: {}\n", plan.fullest.no_time);
  if (!plan.fullest.time) return "";
  const StepTime& time = *plan.fullest.time;
  const Hardware& hardware = *plan.options.hardware;
  const auto row = [](std::string_view name, double seconds) {
    return fmt::format("{:<24} {:>12.3f} ms\n", name, 1e3 * seconds);
  };
  std::string offload;
  if (time.offload != OffloadTime{}) {
    offload = row("copies to the device", time.offload.to_device) +
              row("copies to the host", time.offload.to_host);
    if (time.offload.on_host > 0.0) offload += row("computed by the host", time.offload.on_host);
    offload += row("exposed of these", time.exposed_offload_seconds);
  }
  std::string swap;
  if (time.swap_seconds) {
    swap = row("disk", *time.swap_seconds) + row("exposed disk", time.exposed_swap_seconds);
  } else if (plan.fullest.swap != offload::SwapTraffic{}) {
    swap = "disk: no time without \"disk\" in the hardware file (zinc bench ceilings --disk DIR)\n";
  }
  return fmt::format("\ntime of a step on {} ({})\n", hardware.name,
                     hardware.source == "measured" ? "measured" : "by its specification") +
         row("compute", time.compute_seconds) + row("communication", time.communication_seconds) +
         row("exposed communication", time.exposed_seconds()) + offload + swap +
         (plan.pipe.empty() ? "" : row("waits in the pipeline", time.pipeline_wait_seconds)) +
         row("step", time.step_seconds) +
         fmt::format("{:<24} {:>12.1f} tokens/s\n", "all ranks", *plan.tokens_per_second());
}

// A line for each rank of a pipeline.
std::string describe_pipe(const Plan& plan) {
  if (plan.pipe.empty()) return "";
  std::string text = fmt::format("ranks of the pipeline\n{:<12} {:>31} {:>31} {:>12}\n", "rank",
                                 "device", "host memory", "works");
  for (const RankPlan& rank : plan.pipe) {
    text += fmt::format(
        "{:<12} {} {} {:>12}\n", rank.rank, bytes_text(rank.device_peak()),
        bytes_text(rank.peaks.at(Tier::pinned_host).peak),
        rank.time ? fmt::format("{:.3f} ms", 1e3 * rank.time->step_seconds) : std::string());
  }
  return text + "\n";
}

void write_traffic(files::json::Writer& json, std::string_view name,
                   const comm::PhantomLedger& ledger) {
  json.key(name).begin_array();
  for (const auto& [collective, traffic] : ledger) {
    json.begin_object();
    json.member("name", collective);
    json.member("calls", traffic.calls);
    json.member("bytes_sent", traffic.bytes_sent);
    json.member("bytes_received", traffic.bytes_received);
    json.end_object();
  }
  json.end_array();
}

std::string describe_memory(const RankPlan& rank) {
  std::string text;
  for (int t = 0; t < kNumTiers; ++t) {
    const auto tier = static_cast<Tier>(t);
    if (rank.peaks.at(tier).peak == 0) continue;
    for (int l = 0; l < kNumLabels; ++l) {
      const auto label = static_cast<Label>(l);
      if (rank.peaks.at(tier, label).peak == 0) continue;
      text += fmt::format("{:<12} {:<14} {} {}\n", name_of(tier), name_of(label),
                          bytes_text(rank.at_peak.at(tier, label).live),
                          bytes_text(rank.peaks.at(tier, label).peak));
    }
    text +=
        fmt::format("{:<12} {:<14} {} {}\n", name_of(tier), "total",
                    bytes_text(rank.at_peak.at(tier).live), bytes_text(rank.peaks.at(tier).peak));
    text += fmt::format("{:<12} {:<14} {:>31} {}\n", name_of(tier), "reserved", "",
                        bytes_text(rank.peaks.reserved[static_cast<size_t>(t)].peak));
  }
  return text;
}

std::string describe_traffic(const comm::PhantomLedger& ledger) {
  std::string text =
      fmt::format("{:<16} {:>6} {:>31} {:>31}\n", "collective", "calls", "sent", "received");
  for (const auto& [name, traffic] : ledger) {
    text += fmt::format("{:<16} {:>6} {} {}\n", name, traffic.calls, bytes_text(traffic.bytes_sent),
                        bytes_text(traffic.bytes_received));
  }
  return text;
}

}  // namespace

std::string describe(const ComputingPlan& plan) {
  return fmt::format(
             "{} weights, {} ranks, nothing is trained\n\nrank {}\n{:<12} {:<14} {:>31} "
             "{:>31}\n",
             train::format_count(static_cast<double>(plan.num_parameters)), plan.options.world,
             plan.rank.rank, "tier", "label", "at the peak", "own peak") +
         describe_memory(plan.rank) +
         fmt::format("peak: {}\n\nper evaluation and rank\n", plan.rank.peak_moment) +
         describe_traffic(plan.rank.step);
}

std::string describe(const Plan& plan) {
  const RankPlan& rank = plan.fullest;
  std::string text = fmt::format(
      "{} weights, {} ranks, {} tokens per step\n\n{}rank {}{}\n{:<12} {:<14} {:>31} "
      "{:>31}\n",
      train::format_count(static_cast<double>(plan.num_parameters)), plan.options.world,
      plan.tokens_per_step, describe_pipe(plan), rank.rank,
      plan.options.rank ? "" : ", the fullest", "tier", "label", "at the peak", "own peak");
  text += describe_memory(rank);
  text += fmt::format("peak: {}\n\nper step and rank\n", rank.peak_moment) +
          describe_traffic(rank.step);
  if (rank.bytes_sent_before_signs > 0) {
    text += fmt::format("{:<16} {:>6} {}\n", "before signs", "",
                        bytes_text(rank.bytes_sent_before_signs));
  }
  if (rank.copies != CopyTraffic{}) {
    text += fmt::format("{:<16} {:>6} {} {}\n", "host memory", "", bytes_text(rank.copies.to_host),
                        bytes_text(rank.copies.to_device));
  }
  text +=
      fmt::format("{:<16} {:>6} {} {}\n{:<16} {:>6} {:>16} FLOP\n{:<16} {:>6} {:>16} FLOP\n",
                  "disk", "", bytes_text(rank.swap.bytes_written), bytes_text(rank.swap.bytes_read),
                  "model", "", train::format_count(plan.flops_per_step), "kernels", "",
                  train::format_count(static_cast<double>(rank.kernel_flops)));
  if (plan.offload_choice) text += describe(*plan.offload_choice) + "\n";
  return text + describe_time(plan);
}

std::string describe_kernels(const Plan& plan) {
  const RankPlan& rank = plan.fullest;
  double sum = 0.0;
  for (const KernelFigures& kernel : rank.kernels) sum += kernel.seconds.value_or(0.0);
  std::string text = fmt::format("{:<36} {:>8} {:>12} {:>12} {:>8}", "kernel", "launches", "read",
                                 "written", "FLOP");
  if (rank.time) text += fmt::format(" {:>12} {:>7}", "ms", "share");
  text += "\n";
  for (const KernelFigures& kernel : rank.kernels) {
    text += fmt::format("{:<36} {:>8} {:>12} {:>12} {:>8}",
                        kernel.place == WorkPlace::device
                            ? kernel.name
                            : str(kernel.name, ", ", name_of(kernel.place)),
                        kernel.launches, train::format_bytes(kernel.bytes_read),
                        train::format_bytes(kernel.bytes_written),
                        train::format_count(static_cast<double>(kernel.flops)));
    if (rank.time) {
      text +=
          fmt::format(" {:>12.3f} {:>6.1f}%", 1e3 * *kernel.seconds, 100.0 * *kernel.seconds / sum);
    }
    text += "\n";
  }
  return text;
}

std::string json_of(const ComputingPlan& plan) {
  files::json::Writer json(2);
  json.begin_object();
  json.member("world", plan.options.world);
  json.member("seq", plan.options.seq);
  json.member("threads", plan.options.num_threads);
  json.member("backend", plan.options.backend);
  json.member("num_parameters", plan.num_parameters);
  json.member("rank", plan.rank.rank);
  json.member("peak_bytes", plan.rank.device_peak());
  json.member("peak_moment", plan.rank.peak_moment);
  write_figures(json, plan.rank);
  write_traffic(json, "collectives_per_evaluation", plan.rank.step);
  json.end_object();
  return json.take();
}

std::string json_of(const Plan& plan) {
  files::json::Writer json(2);
  json.begin_object();
  json.member("world", plan.options.world);
  json.member("seq", plan.options.seq);
  if (plan.options.longest > 0) json.member("longest", plan.options.longest);
  json.member("threads", plan.options.num_threads);
  json.member("backend", plan.options.backend);
  json.member("num_parameters", plan.num_parameters);
  json.member("tokens_per_step", plan.tokens_per_step);
  json.member("flops_per_step", plan.flops_per_step);
  json.member("kernel_flops_per_step", plan.fullest.kernel_flops);
  json.member("io_bytes_per_step", plan.fullest.swap.bytes_read + plan.fullest.swap.bytes_written);
  json.member("io_bytes_read_per_step", plan.fullest.swap.bytes_read);
  json.member("io_bytes_written_per_step", plan.fullest.swap.bytes_written);
  json.member("bytes_to_device_per_step", plan.fullest.copies.to_device);
  json.member("bytes_to_host_per_step", plan.fullest.copies.to_host);
  if (plan.offload_choice) write_choice(json, *plan.offload_choice);
  json.member("rank", plan.fullest.rank);
  json.member("peak_bytes", plan.fullest.device_peak());
  json.member("peak_moment", plan.fullest.peak_moment);
  write_figures(json, plan.fullest);
  if (!plan.pipe.empty()) {
    json.key("pipe").begin_array();
    for (const RankPlan& pipe : plan.pipe) {
      json.begin_object();
      json.member("rank", pipe.rank);
      json.member("peak_bytes", pipe.device_peak());
      write_figures(json, pipe);
      json.end_object();
    }
    json.end_array();
  }
  write_traffic(json, "collectives_per_step", plan.fullest.step);
  if (plan.fullest.bytes_sent_before_signs > 0) {
    json.member("bytes_sent_per_step_before_signs", plan.fullest.bytes_sent_before_signs);
  }
  json.key("kernels_per_step").begin_array();
  for (const KernelFigures& kernel : plan.fullest.kernels) {
    json.begin_object();
    json.member("name", kernel.name);
    json.member("place", name_of(kernel.place));
    json.member("launches", kernel.launches);
    json.member("bytes_read", kernel.bytes_read);
    json.member("bytes_written", kernel.bytes_written);
    json.member("flops", kernel.flops);
    if (kernel.seconds) json.member("seconds", *kernel.seconds);
    json.end_object();
  }
  json.end_array();
  write_time(json, plan);
  json.end_object();
  return json.take();
}

}  // namespace zinc::plan
