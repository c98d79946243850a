// train/plot/run_series.h: the figures of a run as curves that fit a page, however long the run is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace zinc::train {

// Of one step: where it lies on each axis, and the figure.
struct CurvePoint {
  int64_t step = 0;
  int64_t tokens = 0;    // of the run so far
  double seconds = 0.0;  // of its steps so far
  double value = 0.0;    // finite
};

// Steps in a row share a bucket, of which the points with the least and the largest value are kept:
// a curve drawn through them has every peak. All buckets but the last stand for as many steps, a
// power of two; where there would be more than kMaxBuckets, neighbours become one.
class Curve {
 public:
  static constexpr size_t kMaxBuckets = 1024;

  // In the order of the steps.
  void add(const CurvePoint& point);
  // Forgets `step` and all behind it: a run that goes on from a checkpoint does them again. A
  // bucket that holds earlier steps too stays.
  void cut(int64_t step);

  // At most two of each bucket, in the order of the steps.
  std::vector<CurvePoint> points() const;
  bool empty() const { return buckets_.empty(); }
  const CurvePoint& last() const { return last_; }

 private:
  struct Bucket {
    CurvePoint low, high;
    int64_t first_step = 0;
    int64_t count = 0;
  };
  std::vector<Bucket> buckets_;
  CurvePoint last_;
  int64_t bucket_size_ = 1;  // points
};

// What a run has left so far.
struct RunSeries {
  std::string name;  // as given, without slashes at the end
  int64_t steps = 0;
  int64_t skipped = 0;     // of those: overflows
  int64_t not_finite = 0;  // figures that were no numbers
  int64_t tokens = 0;
  double seconds = 0.0;
  // loss, lr, grad_norm, loss_scale, tokens_per_second, val_loss (each "val_..." of the file),
  // memory/<tier>/<label> (tiers and labels that are ever used), breakdown/<phase>, swap/<figure>.
  std::map<std::string, Curve, std::less<>> curves{};
  std::string configuration{};  // config.resolved.json; empty: there is none
  std::string samples{};        // samples.txt; empty: there is none
};

// The metrics.jsonl of a run, while it grows.
class RunReader {
 public:
  // `run`: a run's folder, or a file of metrics. DataError where there is none.
  explicit RunReader(const std::string& run);

  // Reads what has come since the last call; true where that is something. The last line counts as
  // soon as it is whole. A file that has become shorter is another run's, and read from its begin.
  // DataError with file and line for a damaged line.
  bool read_more();
  const RunSeries& series() const { return series_; }

 private:
  void take_line(std::string_view line);
  void start_anew();

  std::string folder_;  // empty: a file was given
  std::string path_;
  RunSeries series_;
  std::string rest_;    // of a line that is not whole
  int64_t offset_ = 0;  // bytes read
  int64_t line_ = 0;
};

}  // namespace zinc::train
