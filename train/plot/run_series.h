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

// One step: its place on each axis, and the figure.
struct CurvePoint {
  int64_t step = 0;
  int64_t tokens = 0;    // of the run so far
  double seconds = 0.0;  // of the run's steps so far
  double value = 0.0;    // finite
};

// Steps in a row share a bucket, of which the points with the least and the largest value are kept:
// a curve drawn through them has every peak. All buckets but the last stand for equally many steps,
// a power of two; if there would be more than kMaxBuckets, neighbours are merged.
class Curve {
 public:
  static constexpr size_t kMaxBuckets = 1024;

  // In the order of the steps.
  void add(const CurvePoint& point);
  // Forgets `step` and all later steps, which a run that continues from a checkpoint does again. A
  // bucket that holds earlier steps too is kept.
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

// The figures that a run has written so far.
struct RunSeries {
  std::string name;  // as given, without slashes at the end
  int64_t steps = 0;
  int64_t skipped = 0;     // steps that overflowed
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

  // Reads the lines that have come since the last call; true if there were any. The last line
  // counts as soon as it is whole. A file that has become shorter belongs to another run, and is
  // read from its beginning. DataError with file and line for a damaged line.
  bool read_more();
  const RunSeries& series() const { return series_; }

 private:
  void take_line(std::string_view line);
  void start_anew();

  std::string folder_;  // empty: a file was given
  std::string path_;
  RunSeries series_;
  std::string rest_;    // the text of a line that is not whole
  int64_t offset_ = 0;  // bytes read
  int64_t line_ = 0;
};

}  // namespace zinc::train
