#include "bench/comm/comm_bench.h"

#include <fmt/format.h>

#include <functional>

#include "bench/samples.h"
#include "core/error.h"
#include "core/transfer.h"

namespace zinc::bench {
namespace {

using comm::Collective;

// Buffers of one size and the collectives on them.
class CollectiveRun {
 public:
  CollectiveRun(comm::World& world, int64_t bytes, DType dtype)
      : group_(world.communicator()),
        stream_(world.context().stream(StreamRole::gather)),
        device_(world.context().device()),
        dtype_(dtype),
        count_(bytes / size_of(dtype) / world.size()),
        whole_(memory(world, count_ * world.size(), dtype)),
        other_(memory(world, count_ * world.size(), dtype)),
        part_(memory(world, count_, dtype)),
        workspace_(memory(world, workspace_bytes(), DType::u8)),
        flag_(memory(world, 1, DType::u8)) {}

  int64_t bytes() const { return view(whole_, count_ * group_.size()).bytes(); }

  void run(Collective collective) {
    const View whole = view(whole_, count_ * group_.size());
    const View part = view(part_, count_);
    switch (collective) {
      case Collective::all_gather:
        return group_.all_gather({part, whole}, stream_).wait();
      case Collective::reduce_scatter:
        return group_.reduce_scatter({.in = whole, .out = part, .workspace = workspace()}, stream_)
            .wait();
      case Collective::all_reduce:
        return group_.all_reduce({whole, workspace()}, stream_).wait();
      case Collective::broadcast:
        return group_.broadcast({whole, 0}, stream_).wait();
      case Collective::all_to_all:
        return group_.all_to_all({whole, view(other_, count_ * group_.size())}, stream_).wait();
      case Collective::shift:
        return group_.shift({whole, view(other_, count_ * group_.size())}, stream_).wait();
    }
  }

  // Gives all ranks the flag of rank 0.
  void agree(std::vector<uint8_t>& flag) {
    const View one(flag_.data(), DType::u8, Shape{1}, device_);
    upload(flag.data(), one, stream_);
    group_.broadcast({one, 0}, stream_).wait();
    download(one, flag.data(), stream_);
  }
  void barrier() { group_.barrier(stream_).wait(); }
  void copy() {
    transfer(view(whole_, count_ * group_.size()), view(other_, count_ * group_.size()), stream_);
    stream_->synchronize();
  }

  // Every rank brings ones: sums are the world's size, copies are ones.
  void check(Collective collective) {
    fill(whole_, count_ * group_.size());
    fill(part_, count_);
    run(collective);
    const bool sums =
        collective == Collective::reduce_scatter || collective == Collective::all_reduce;
    const float expected = sums ? static_cast<float>(group_.size()) : 1.0f;
    const bool in_part = collective == Collective::reduce_scatter;
    const bool in_other = collective == Collective::all_to_all || collective == Collective::shift;
    const Block& result = in_part ? part_ : in_other ? other_ : whole_;
    const int64_t n = in_part ? count_ : count_ * group_.size();
    dispatch_float(dtype_, [&]<class T>() {
      std::vector<T> values(static_cast<size_t>(n));
      download(view(result, n), values.data(), stream_);
      for (int64_t i = 0; i < n; ++i) {
        bug_check(static_cast<float>(values[static_cast<size_t>(i)]) == expected,
                  comm::name_of(collective), ": element ", i, " of ", n, " is wrong");
      }
    });
    // Sums of sums would reach infinity while they are timed.
    fill(whole_, count_ * group_.size(), 0.0f);
  }

 private:
  static Block memory(comm::World& world, int64_t n, DType dtype) {
    return world.context().allocate(n * size_of(dtype), Label::communication);
  }
  View view(const Block& block, int64_t n) const {
    return View(block.data(), dtype_, Shape{n}, device_);
  }
  View workspace() const {
    return View(workspace_.data(), DType::u8, Shape{workspace_bytes()}, device_);
  }
  int64_t workspace_bytes() const {
    return group_.workspace_bytes(Collective::all_reduce, count_ * group_.size() * size_of(dtype_),
                                  dtype_);
  }
  void fill(const Block& block, int64_t n, float value = 1.0f) const {
    dispatch_float(dtype_, [&]<class T>() {
      const std::vector<T> values(static_cast<size_t>(n), T(value));
      upload(values.data(), view(block, n), stream_);
    });
    stream_->synchronize();
  }

  comm::Communicator& group_;
  StreamRef stream_;
  Device device_;
  DType dtype_;
  int64_t count_;  // elements of a rank's part
  Block whole_, other_, part_, workspace_, flag_;
};

// The part of the bytes that crosses between ranks.
double bus_factor(Collective collective, int size) {
  const double others = static_cast<double>(size - 1) / size;
  switch (collective) {
    case Collective::all_reduce:
      return 2 * others;
    case Collective::broadcast:
    case Collective::shift:
      return 1;
    default:
      return others;
  }
}

// The median time of `step` between barriers. How often is rank 0's decision.
std::vector<double> time_steps(CollectiveRun& one, double seconds,
                               const std::function<void()>& step) {
  std::vector<double> times;
  std::vector<uint8_t> go_on(1, 1);
  const auto begin = Clock::now();
  step();
  while (go_on[0] != 0) {
    one.barrier();
    const auto started = Clock::now();
    step();
    times.push_back(seconds_since(started));
    go_on[0] = times.size() < 5 || (seconds_since(begin) < seconds && times.size() < 10'000);
    one.agree(go_on);
  }
  return times;
}

}  // namespace

std::vector<CommBenchRow> run_comm_bench(comm::World& world, const CommBenchOptions& options) {
  std::vector<CommBenchRow> rows;
  const Collective collectives[] = {Collective::all_gather, Collective::reduce_scatter,
                                    Collective::all_reduce, Collective::broadcast,
                                    Collective::all_to_all, Collective::shift};
  for (int64_t bytes = options.min_bytes; bytes <= options.max_bytes; bytes *= 4) {
    CollectiveRun one(world, bytes, options.dtype);
    const double copy_seconds = median(time_steps(one, options.seconds / 4, [&] { one.copy(); }));
    for (const Collective collective : collectives) {
      one.check(collective);
      const auto times = time_steps(one, options.seconds, [&] { one.run(collective); });
      CommBenchRow row{.collective = std::string(comm::name_of(collective)),
                       .bytes = one.bytes(),
                       .runs = static_cast<int64_t>(times.size()),
                       .median_seconds = median(times)};
      row.algorithm_bandwidth = static_cast<double>(row.bytes) / row.median_seconds;
      row.bus_bandwidth = row.algorithm_bandwidth * bus_factor(collective, world.size());
      row.of_memcpy = row.bus_bandwidth / (static_cast<double>(row.bytes) / copy_seconds);
      rows.push_back(row);
    }
  }
  return rows;
}

std::string to_table(const std::vector<CommBenchRow>& rows) {
  std::string text =
      fmt::format("{:<15} {:>12} {:>7} {:>12} {:>12} {:>12} {:>9}\n", "collective", "bytes", "runs",
                  "median us", "algbw GB/s", "busbw GB/s", "/ memcpy");
  for (const CommBenchRow& row : rows) {
    text += fmt::format("{:<15} {:>12} {:>7} {:>12.1f} {:>12.3f} {:>12.3f} {:>9.2f}\n",
                        row.collective, row.bytes, row.runs, row.median_seconds * 1e6,
                        row.algorithm_bandwidth * 1e-9, row.bus_bandwidth * 1e-9, row.of_memcpy);
  }
  return text;
}

std::string to_json(const std::vector<CommBenchRow>& rows) {
  std::string text = "[";
  for (const CommBenchRow& row : rows) {
    text += fmt::format(
        "{}\n  {{\"collective\": \"{}\", \"bytes\": {}, \"runs\": {}, \"median_seconds\": {}, "
        "\"algorithm_bandwidth\": {}, \"bus_bandwidth\": {}, \"of_memcpy\": {}}}",
        text.size() > 1 ? "," : "", row.collective, row.bytes, row.runs, row.median_seconds,
        row.algorithm_bandwidth, row.bus_bandwidth, row.of_memcpy);
  }
  return text + "\n]\n";
}

}  // namespace zinc::bench
