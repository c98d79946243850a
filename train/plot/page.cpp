#include "train/plot/page.h"

#include "files/fill_marks.h"
#include "files/json/writer.h"

namespace zinc::train {
namespace {

// Writes six digits, more than a screen shows.
void write_curve_points(files::json::Writer& out, const Curve& curve) {
  out.begin_array();
  for (const CurvePoint& point : curve.points()) {
    out.begin_array().value(point.step).value(point.tokens);
    out.value(static_cast<float>(point.seconds)).value(static_cast<float>(point.value));
    out.end_array();
  }
  out.end_array();
}

void write_series(files::json::Writer& out, const RunSeries& run) {
  out.begin_object().member("name", run.name).member("steps", run.steps);
  out.member("skipped", run.skipped).member("not_finite", run.not_finite);
  out.member("tokens", run.tokens).member("seconds", run.seconds);
  out.key("curves").begin_object();
  for (const auto& [name, curve] : run.curves) {
    if (curve.empty()) continue;
    out.key(name);
    write_curve_points(out, curve);
  }
  out.end_object();
  out.member("configuration", run.configuration).member("samples", run.samples);
  out.end_object();
}

}  // namespace

std::string plot_data(const std::vector<const RunSeries*>& runs, const PageOptions& options) {
  files::json::Writer out;
  out.begin_object().member("reload_seconds", options.reload_seconds);
  out.key("runs").begin_array();
  for (const RunSeries* run : runs) write_series(out, *run);
  out.end_array().end_object();
  return files::json::without_markup(out.take());
}

std::string plot_page(const std::vector<const RunSeries*>& runs, const PageOptions& options) {
  return files::fill_marks(page_html(), {{"@style@", page_style()},
                                         {"@data@", plot_data(runs, options)},
                                         {"@script@", page_script()}});
}

}  // namespace zinc::train
