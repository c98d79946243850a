#include "bench/kernel_report.h"

#include <fmt/format.h>

#include "files/json/parser.h"
#include "files/json/writer.h"

namespace zinc::bench {
namespace {

// Every field of a result once, for all formats: visit(name, field).
template <class Result, class Visit>
void visit_fields(Result& r, Visit&& visit) {
  visit("op", r.op);
  visit("pass", r.pass);
  visit("dtype", r.dtype);
  visit("shape", r.shape);
  visit("device", r.device);
  visit("cold", r.cold);
  visit("samples", r.samples);
  visit("runs_per_sample", r.runs_per_sample);
  visit("median_us", r.median_us);
  visit("mean_us", r.mean_us);
  visit("p95_us", r.p95_us);
  visit("min_us", r.min_us);
  visit("noise_percent", r.noise_percent);
  visit("bytes", r.bytes);
  visit("flops", r.flops);
  visit("gb_per_s", r.gb_per_s);
  visit("gflop_per_s", r.gflop_per_s);
  visit("ceiling", r.ceiling);
  visit("ceiling_value", r.ceiling_value);
  visit("percent_of_ceiling", r.percent_of_ceiling);
  visit("percent_of_spec", r.percent_of_spec);
  visit("in_cache_gb_per_s", r.in_cache_gb_per_s);
  visit("percent_of_bound", r.percent_of_bound);
  visit("timer", r.timer);
  visit("registers", r.registers);
  visit("spilled_bytes", r.spilled_bytes);
  visit("baseline", r.baseline);
  visit("baseline_us", r.baseline_us);
  visit("speed_to_baseline", r.speed_to_baseline);
  visit("baseline_missing", r.baseline_missing);
  visit("was_verified", r.was_verified);
  visit("relative_error", r.deviation.relative_l2);
  visit("tolerance", r.deviation.tolerance);
}

template <class Machine, class Visit>
void visit_machine(Machine& m, Visit&& visit) {
  visit("cpu", m.cpu);
  visit("gpu", m.gpu);
  visit("threads", m.threads);
  visit("gemm_library", m.library);
  visit("versions", m.versions);
  visit("clocks", m.clocks);
}

void read(const files::json::Value& value, std::string& to) { to = value.as_string(); }
void read(const files::json::Value& value, bool& to) { to = value.as_bool(); }
void read(const files::json::Value& value, int& to) {
  to = static_cast<int>(value.as_int64(0, 1 << 30));
}
void read(const files::json::Value& value, int64_t& to) { to = value.as_int64(0); }
// A figure that is no number (NaN, infinity) was written as null.
void read(const files::json::Value& value, double& to) {
  to = value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.as_double();
}

std::string check_of(const KernelResult& r) {
  if (!r.was_verified) return "-";
  return r.verified()
             ? fmt::format("ok {:.1e}", r.deviation.relative_l2)
             : fmt::format("WRONG {:.1e} > {:.1e}", r.deviation.relative_l2, r.deviation.tolerance);
}

std::string percent_of_ceiling(const KernelResult& r) {
  if (r.ceiling.empty()) return "-";
  // More than the machine's measured rate: the data was in a cache, or the probe is slow.
  return fmt::format("{:.0f}{}", r.percent_of_ceiling, r.percent_of_ceiling > 105.0 ? " (!)" : "");
}

std::string speed_to_baseline(const KernelResult& r) {
  return r.baseline.empty() ? "-" : fmt::format("{:.2f} x {}", r.speed_to_baseline, r.baseline);
}

}  // namespace

std::string table_header() {
  return fmt::format(
      "{:<26} {:<17} {:<5} {:<34} {:>10} {:>10} {:>6} {:>8} {:>9} {:>16} {:>8} {:>8} {:>7}  {}\n",
      "op", "pass", "dtype", "shape", "median us", "p95 us", "noise", "GB/s", "GFLOP/s", "ceiling",
      "%", "in cache", "% bound", "check, speed to others");
}

std::string table_row(const KernelResult& r) {
  const std::string ceiling =
      r.ceiling.empty() ? "-" : fmt::format("{} {:.1f}", r.ceiling, r.ceiling_value);
  const bool streams = r.in_cache_gb_per_s > 0.0;
  return fmt::format(
      "{:<26} {:<17} {:<5} {:<34} {:>10.1f} {:>10.1f} {:>5.1f}% {:>8.1f} {:>9.1f} {:>16} {:>8} "
      "{:>8} {:>7}  {}\n",
      r.op, r.pass, r.dtype, r.shape, r.median_us, r.p95_us, r.noise_percent, r.gb_per_s,
      r.gflop_per_s, ceiling, percent_of_ceiling(r),
      streams ? fmt::format("{:.1f}", r.in_cache_gb_per_s) : "-",
      streams ? fmt::format("{:.0f}", r.percent_of_bound) : "-",
      check_of(r) + (r.baseline.empty() ? "" : "  " + speed_to_baseline(r)));
}

std::string json_of(const KernelReport& report) {
  files::json::Writer json(1);
  json.begin_object();
  visit_machine(report.machine,
                [&](const char* name, const auto& value) { json.member(name, value); });
  json.member("preset", report.preset);
  json.key("results").begin_array();
  for (const KernelResult& result : report.results) {
    json.begin_object();
    visit_fields(result, [&](const char* name, const auto& value) { json.member(name, value); });
    json.member("verified", result.verified());
    json.end_object();
  }
  json.end_array();
  json.end_object();
  return json.take() + "\n";
}

KernelReport read_kernel_report(const std::string& path) {
  const files::json::Value file = files::json::parse_file(path);
  KernelReport report;
  const auto reader = [](const files::json::Value& from) {
    return [&from](const char* name, auto& value) {
      // Reports from before there were baselines are still read.
      const std::string_view field = name;
      const bool is_late = field == "timer" || field == "registers" || field == "spilled_bytes" ||
                           field.find("baseline") != std::string_view::npos;
      if (!is_late || from.find(name) != nullptr) read(from.at(name), value);
    };
  };
  visit_machine(report.machine, reader(file));
  read(file.at("preset"), report.preset);
  for (const files::json::Value& row : file.at("results").as_array()) {
    visit_fields(report.results.emplace_back(), reader(row));
  }
  return report;
}

std::string csv_of(const KernelReport& report) {
  std::string heading, rows;
  for (const KernelResult& result : report.results) {
    heading.clear();
    std::string row;
    visit_fields(result, [&](const char* name, const auto& value) {
      heading += fmt::format("{}{}", heading.empty() ? "" : ",", name);
      const std::string text = fmt::format("{}", value);
      const bool quoted = text.find(',') != std::string::npos;
      row += fmt::format("{}{}{}{}", row.empty() ? "" : ",", quoted ? "\"" : "", text,
                         quoted ? "\"" : "");
    });
    rows += row + "\n";
  }
  return heading + "\n" + rows;
}

std::string markdown_of(const KernelReport& report) {
  const BenchedMachine& m = report.machine;
  std::string text = fmt::format(
      "{}; {}, {} threads; GEMM by {}; {}{}{}\n\n"
      "| op | pass | dtype | shape | median us | p95 us | noise % | GB/s | GFLOP/s | ceiling | % "
      "of "
      "ceiling | % of spec | speed to others | check "
      "|\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
      m.gpu.empty() ? "CPU" : m.gpu, m.cpu, m.threads, m.library, m.versions,
      m.clocks.empty() ? "" : "; SM clock, memory clock, power, its limit, degrees: ", m.clocks);
  for (const KernelResult& r : report.results) {
    text += fmt::format(
        "| {} | {} | {} | {} | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {} | {} | {} | {} | {} "
        "|\n",
        r.op, r.pass, r.dtype, r.shape, r.median_us, r.p95_us, r.noise_percent, r.gb_per_s,
        r.gflop_per_s,
        r.ceiling.empty() ? "-" : fmt::format("{} {:.0f}", r.ceiling, r.ceiling_value),
        percent_of_ceiling(r),
        r.percent_of_spec > 0.0 ? fmt::format("{:.0f}", r.percent_of_spec) : "-",
        speed_to_baseline(r), check_of(r));
  }
  return text;
}

}  // namespace zinc::bench
