#include "bench/roofline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace zinc::bench {
namespace {

double intensity(const KernelResult& r) {
  return static_cast<double>(r.flops) / static_cast<double>(std::max<int64_t>(r.bytes, 1));
}
double allowed(const Roof& roof, double flops_per_byte) {
  return std::min(roof.gflop_per_s, roof.gb_per_s * flops_per_byte);
}

// The drawing's plane: decades from `low` on, along `length` pixels.
struct Axis {
  double low, high;
  double from, length;
  double at(double value) const {
    const double share = std::log10(value / low) / std::log10(high / low);
    return from + length * std::clamp(share, 0.0, 1.0);
  }
};

Axis axis_of(double smallest, double largest, double from, double length) {
  const double low = std::pow(10.0, std::floor(std::log10(smallest)));
  const double high = std::pow(10.0, std::ceil(std::log10(largest)));
  return {low, std::max(high, low * 10.0), from, length};
}

std::string text_at(double x, double y, std::string_view text, std::string_view anchor) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     text);
}

std::string line(double x1, double y1, double x2, double y2, std::string_view colour) {
  return fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n", x1, y1, x2,
      y2, colour);
}

}  // namespace

Roof roof_of(const KernelReport& report, double peak_gb_per_s, double peak_gflop_per_s) {
  Roof roof{peak_gb_per_s, peak_gflop_per_s};
  double fastest = 0.0;
  for (const KernelResult& r : report.results) {
    fastest = std::max(fastest, r.gflop_per_s);
    if (peak_gb_per_s <= 0.0 && r.ceiling == "stream") {
      roof.gb_per_s = std::max(roof.gb_per_s, r.ceiling_value);
    }
    if (peak_gflop_per_s <= 0.0 && r.ceiling == "gemm") {
      roof.gflop_per_s = std::max(roof.gflop_per_s, r.ceiling_value);
    }
  }
  if (roof.gflop_per_s <= 0.0) roof.gflop_per_s = fastest;
  require(roof.gb_per_s > 0.0 && roof.gflop_per_s > 0.0,
          "roofline: the run has no stream ceiling or no arithmetic; run more kernels, or give the "
          "peaks");
  return roof;
}

std::string roofline_text(const KernelReport& report, const Roof& roof) {
  std::string text = fmt::format(
      "roof: {:.1f} GB/s, {:.1f} GFLOP/s; they meet at {:.1f} flops per byte\n"
      "{:<70} {:>10} {:>12} {:>12} {:>6}  {}\n",
      roof.gb_per_s, roof.gflop_per_s, roof.gflop_per_s / roof.gb_per_s, "kernel", "flop/byte",
      "GFLOP/s", "allowed", "%", "bound");
  for (const KernelResult& r : report.results) {
    const double x = intensity(r);
    const bool memory = roof.gb_per_s * x < roof.gflop_per_s;
    // An op without arithmetic is measured by its bytes.
    const double share =
        r.flops == 0 ? r.gb_per_s / roof.gb_per_s : r.gflop_per_s / allowed(roof, x);
    text += fmt::format("{:<70} {:>10.3f} {:>12.1f} {:>12.1f} {:>6.0f}  {}\n", r.name(), x,
                        r.gflop_per_s, allowed(roof, x), 100.0 * share,
                        memory ? "memory" : "arithmetic");
  }
  return text;
}

std::string roofline_svg(const KernelReport& report, const Roof& roof) {
  constexpr double kWidth = 900, kHeight = 560, kLeft = 80, kTop = 30, kPlotW = 780, kPlotH = 460;
  const double knee = roof.gflop_per_s / roof.gb_per_s;
  double low_x = knee, high_x = knee, low_y = roof.gflop_per_s;
  for (const KernelResult& r : report.results) {
    if (r.flops == 0) continue;
    low_x = std::min(low_x, intensity(r));
    high_x = std::max(high_x, intensity(r));
    low_y = std::min(low_y, r.gflop_per_s);
  }
  const Axis x = axis_of(low_x, high_x * 1.01, kLeft, kPlotW);
  const Axis y = axis_of(std::min(low_y, roof.gb_per_s * x.low), roof.gflop_per_s * 1.01,
                         kTop + kPlotH, -kPlotH);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      kWidth, kHeight);
  for (double v = x.low; v <= x.high * 1.001; v *= 10) {
    svg += line(x.at(v), kTop, x.at(v), kTop + kPlotH, "#ddd");
    svg += text_at(x.at(v), kTop + kPlotH + 18, fmt::format("{:g}", v), "middle");
  }
  for (double v = y.low; v <= y.high * 1.001; v *= 10) {
    svg += line(kLeft, y.at(v), kLeft + kPlotW, y.at(v), "#ddd");
    svg += text_at(kLeft - 6, y.at(v) + 4, fmt::format("{:g}", v), "end");
  }
  svg += text_at(kLeft + kPlotW / 2, kTop + kPlotH + 40, "flops per byte", "middle");
  svg += text_at(kLeft, kTop - 10, "GFLOP/s", "middle");
  svg +=
      line(x.at(x.low), y.at(roof.gb_per_s * x.low), x.at(knee), y.at(roof.gflop_per_s), "black");
  svg += line(x.at(knee), y.at(roof.gflop_per_s), x.at(x.high), y.at(roof.gflop_per_s), "black");
  svg +=
      text_at(x.at(x.high), y.at(roof.gflop_per_s) - 6,
              fmt::format("{:.0f} GFLOP/s, {:.0f} GB/s", roof.gflop_per_s, roof.gb_per_s), "end");
  for (const KernelResult& r : report.results) {
    if (r.flops == 0) continue;
    svg += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"{}\" fill-opacity=\"0.7\"><title>{}: "
        "{:.0f} GFLOP/s, {:.0f} GB/s</title></circle>\n",
        x.at(intensity(r)), y.at(r.gflop_per_s), r.ceiling == "gemm" ? "#c33" : "#36c", r.name(),
        r.gflop_per_s, r.gb_per_s);
  }
  return svg + "</svg>\n";
}

}  // namespace zinc::bench
