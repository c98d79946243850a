#include "train/plot/run_series.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "core/error.h"
#include "files/input_file.h"
#include "files/json/parser.h"

namespace zinc::train {
namespace {

constexpr int64_t kPlotReadBytes = int64_t{1} << 20;
constexpr int64_t kMaxPlotTextBytes = int64_t{1} << 20;  // of a configuration, or of samples

// Whether a key of a line is a curve, and not an axis or a figure that is drawn under another name.
bool is_curve_key(std::string_view key) {
  for (const char* known : {"loss", "lr", "grad_norm", "loss_scale", "tokens_per_second"}) {
    if (key == known) return true;
  }
  return key.starts_with("val_");
}

bool is_file(const std::string& path) {
  try {
    files::InputFile::open(path);
    return true;
  } catch (const DataError&) {
    return false;
  }
}

// The front of a file that may be missing.
std::string read_front(const std::string& path) {
  if (!is_file(path)) return {};
  const files::InputFile file = files::InputFile::open(path);
  std::string text(static_cast<size_t>(std::min(file.size(), kMaxPlotTextBytes)), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace

void Curve::add(const CurvePoint& point) {
  if (buckets_.empty() || buckets_.back().count == bucket_size_) {
    if (buckets_.size() == kMaxBuckets) {
      for (size_t i = 0; i < buckets_.size(); i += 2) {
        Bucket merged = buckets_[i];
        const Bucket& other = buckets_[i + 1];
        if (other.low.value < merged.low.value) merged.low = other.low;
        if (other.high.value > merged.high.value) merged.high = other.high;
        merged.count += other.count;
        buckets_[i / 2] = merged;
      }
      buckets_.resize(buckets_.size() / 2);
      bucket_size_ *= 2;
    }
    buckets_.push_back({.low = point, .high = point, .first_step = point.step});
  }
  Bucket& bucket = buckets_.back();
  if (point.value < bucket.low.value) bucket.low = point;
  if (point.value > bucket.high.value) bucket.high = point;
  ++bucket.count;
  last_ = point;
}

void Curve::cut(int64_t step) {
  while (!buckets_.empty() && buckets_.back().first_step >= step) buckets_.pop_back();
  // A bucket that is followed by others counts as full.
  if (!buckets_.empty()) buckets_.back().count = bucket_size_;
}

std::vector<CurvePoint> Curve::points() const {
  std::vector<CurvePoint> points;
  for (const Bucket& bucket : buckets_) {
    const bool rises = bucket.low.step <= bucket.high.step;
    points.push_back(rises ? bucket.low : bucket.high);
    if (bucket.low.step != bucket.high.step) points.push_back(rises ? bucket.high : bucket.low);
  }
  // A curve ends where its run is.
  if (!points.empty() && points.back().step < last_.step) points.push_back(last_);
  return points;
}

RunReader::RunReader(const std::string& run) {
  std::string name = run;
  while (name.size() > 1 && name.ends_with('/')) name.pop_back();
  if (is_file(name + "/metrics.jsonl")) {
    folder_ = name;
    path_ = name + "/metrics.jsonl";
  } else if (is_file(name)) {
    path_ = name;
  } else {
    throw DataError(str("'", run, "' is no folder of a run with a metrics.jsonl, and no file"));
  }
  series_.name = name;
  start_anew();
}

void RunReader::start_anew() {
  series_ = RunSeries{.name = series_.name};
  if (!folder_.empty()) series_.configuration = read_front(folder_ + "/config.resolved.json");
  rest_.clear();
  offset_ = 0;
  line_ = 0;
}

bool RunReader::read_more() {
  const files::InputFile file = files::InputFile::open(path_);
  if (file.size() < offset_) start_anew();
  const bool grew = file.size() > offset_;
  while (offset_ < file.size()) {
    std::string block(static_cast<size_t>(std::min(kPlotReadBytes, file.size() - offset_)), '\0');
    file.read(offset_, std::as_writable_bytes(std::span(block)));
    offset_ += std::ssize(block);
    size_t begin = 0;
    for (size_t end; (end = block.find('\n', begin)) != block.npos; begin = end + 1) {
      rest_.append(block, begin, end - begin);
      ++line_;
      if (rest_.find_first_not_of(" \t\r") != rest_.npos) take_line(rest_);
      rest_.clear();
    }
    rest_.append(block, begin);
  }
  if (folder_.empty()) return grew;
  std::string samples = read_front(folder_ + "/samples.txt");
  const bool changed = samples != series_.samples;
  series_.samples = std::move(samples);
  return grew || changed;
}

void RunReader::take_line(std::string_view line) {
  const files::json::Value object =
      files::json::parse(std::string(line), path_, {.first_line = line_});
  CurvePoint point{.step = object.at("step").as_int64()};
  if (point.step <= series_.steps) {
    for (auto& [name, curve] : series_.curves) curve.cut(point.step);
  }
  series_.steps = point.step;
  if (const files::json::Value* tokens = object.find("tokens"))
    series_.tokens += tokens->as_int64();
  if (const files::json::Value* seconds = object.find("seconds"); seconds && seconds->is_number()) {
    series_.seconds += seconds->as_double();
  }
  if (const files::json::Value* skipped = object.find("skipped"); skipped && skipped->as_bool()) {
    ++series_.skipped;
  }
  point.tokens = series_.tokens;
  point.seconds = series_.seconds;
  const auto add = [&](const std::string& name, const files::json::Value& value) {
    if (value.is_null()) {
      ++series_.not_finite;
      return;
    }
    point.value = value.as_double();
    series_.curves[name].add(point);
  };
  for (const files::json::Member& member : object.as_object()) {
    if (is_curve_key(member.key)) {
      add(member.key, member.value);
    } else if (member.key == "breakdown" || member.key == "swap") {
      for (const files::json::Member& part : member.value.as_object()) {
        add(str(member.key, '/', part.key), part.value);
      }
    } else if (member.key == "peak_bytes") {
      for (const files::json::Member& tier : member.value.as_object()) {
        for (const files::json::Member& label : tier.value.as_object()) {
          const std::string name = str("memory/", tier.key, '/', label.key);
          const bool used = label.value.as_double() > 0.0;
          if (used || series_.curves.contains(name)) add(name, label.value);
        }
      }
    }
  }
}

}  // namespace zinc::train
