#include "bench/comm/comm_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>

#include "core/error.h"

namespace zinc::bench {
namespace {

using Clock = std::chrono::steady_clock;
using comm::Collective;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Buffers of one size and the collectives on them.
class Case {
 public:
  Case(comm::World& world, int64_t bytes, DType dtype)
      : group_(world.communicator()),
        stream_(world.context().stream(StreamRole::gather)),
        dtype_(dtype),
        count_(bytes / size_of(dtype) / world.size()),
        whole_(memory(world, count_ * world.size(), dtype)),
        other_(memory(world, count_ * world.size(), dtype)),
        part_(memory(world, count_, dtype)),
        workspace_(memory(world, workspace_bytes(), DType::u8)) {}

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
    }
  }

  void barrier() { group_.barrier(stream_).wait(); }
  void copy() { std::memcpy(other_.data(), whole_.data(), static_cast<size_t>(bytes())); }

  // Every rank brings ones: sums are the world's size, copies are ones.
  void check(Collective collective) {
    fill(whole_, count_ * group_.size());
    fill(part_, count_);
    run(collective);
    const bool sums =
        collective == Collective::reduce_scatter || collective == Collective::all_reduce;
    const float expected = sums ? static_cast<float>(group_.size()) : 1.0f;
    const bool in_part = collective == Collective::reduce_scatter;
    const bool in_other = collective == Collective::all_to_all;
    const Block& result = in_part ? part_ : in_other ? other_ : whole_;
    const int64_t n = in_part ? count_ : count_ * group_.size();
    dispatch_float(dtype_, [&]<class T>() {
      const T* values = static_cast<const T*>(result.data());
      for (int64_t i = 0; i < n; ++i) {
        bug_check(static_cast<float>(values[i]) == expected, comm::name_of(collective),
                  ": element ", i, " of ", n, " is wrong");
      }
    });
    // Sums of sums would reach infinity while they are timed.
    std::memset(whole_.data(), 0, static_cast<size_t>(bytes()));
  }

 private:
  static Block memory(comm::World& world, int64_t n, DType dtype) {
    return world.context().allocate(n * size_of(dtype), Label::communication);
  }
  View view(const Block& block, int64_t n) const { return View(block.data(), dtype_, Shape{n}); }
  View workspace() const { return View(workspace_.data(), DType::u8, Shape{workspace_bytes()}); }
  int64_t workspace_bytes() const {
    return group_.workspace_bytes(Collective::all_reduce, count_ * group_.size() * size_of(dtype_),
                                  dtype_);
  }
  void fill(Block& block, int64_t n) const {
    dispatch_float(dtype_,
                   [&]<class T>() { std::fill_n(static_cast<T*>(block.data()), n, T(1.0f)); });
  }

  comm::Communicator& group_;
  StreamRef stream_;
  DType dtype_;
  int64_t count_;  // elements of a rank's part
  Block whole_, other_, part_, workspace_;
};

// What part of the bytes crosses between ranks.
double bus_factor(Collective collective, int size) {
  const double others = static_cast<double>(size - 1) / size;
  switch (collective) {
    case Collective::all_reduce:
      return 2 * others;
    case Collective::broadcast:
      return 1;
    default:
      return others;
  }
}

// The median time of `step` between barriers. How often is rank 0's decision.
std::vector<double> time_steps(Case& one, comm::World& world, double seconds,
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
    world.communicator()
        .broadcast({View(go_on.data(), DType::u8, Shape{1}), 0},
                   world.context().stream(StreamRole::gather))
        .wait();
  }
  return times;
}

}  // namespace

std::vector<CommBenchRow> run_comm_bench(comm::World& world, const CommBenchOptions& options) {
  std::vector<CommBenchRow> rows;
  const Collective collectives[] = {Collective::all_gather, Collective::reduce_scatter,
                                    Collective::all_reduce, Collective::broadcast,
                                    Collective::all_to_all};
  for (int64_t bytes = options.min_bytes; bytes <= options.max_bytes; bytes *= 4) {
    Case one(world, bytes, options.dtype);
    const double copy_seconds =
        median(time_steps(one, world, options.seconds / 4, [&] { one.copy(); }));
    for (const Collective collective : collectives) {
      one.check(collective);
      const auto times = time_steps(one, world, options.seconds, [&] { one.run(collective); });
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
