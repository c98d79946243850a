#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "bench/arrays.h"
#include "bench/ceilings.h"
#include "core/parallel.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/stream_probe.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#ifndef ZINC_BENCH_STREAM_PROBE_ONCE
#define ZINC_BENCH_STREAM_PROBE_ONCE
namespace zinc::bench {

constexpr int kMaxArrays = 8;

struct StreamPass {
  const float* reads[kMaxArrays];
  float* writes[kMaxArrays];
  float* updates[kMaxArrays];
  int num_reads = 0, num_writes = 0, num_updates = 0;
  bool bypass = false;  // non-temporal stores to `writes`
};

}  // namespace zinc::bench
#endif

HWY_BEFORE_NAMESPACE();
namespace zinc::bench {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// One pass over elements [begin, end), multiples of 64; returns something that depends on all.
float pass(const StreamPass& p, int64_t begin, int64_t end) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto total = hn::Zero(d);
  for (int64_t i = begin; i < end; i += lanes) {
    auto sum = hn::Set(d, 1.0f);
    for (int k = 0; k < p.num_reads; ++k) sum = hn::Add(sum, hn::Load(d, p.reads[k] + i));
    for (int k = 0; k < p.num_updates; ++k) {
      hn::Store(hn::Add(sum, hn::Load(d, p.updates[k] + i)), d, p.updates[k] + i);
    }
    for (int k = 0; k < p.num_writes; ++k) {
      if (p.bypass) {
        hn::Stream(sum, d, p.writes[k] + i);
      } else {
        hn::Store(sum, d, p.writes[k] + i);
      }
    }
    total = hn::Add(total, sum);
  }
  hwy::FlushStream();
  return hn::GetLane(hn::SumOfLanes(d, total));
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zinc::bench {
namespace {

HWY_EXPORT(pass);

class StreamProbe final : public Probe {
 public:
  StreamProbe(int reads, int writes, int updates, int64_t bytes) {
    const int64_t passes = reads + writes + 2 * updates;
    floats_ = std::max<int64_t>(bytes / 4 / std::max<int64_t>(passes, 1) / 64 * 64, 64);
    work_ = static_cast<double>(floats_ * 4 * passes);
    const int64_t set_bytes = floats_ * 4 * (reads + writes + updates);
    const int64_t sets = std::clamp<int64_t>(2 * last_level_cache_bytes() / set_bytes + 1, 1, 16);
    for (int64_t s = 0; s < sets; ++s) {
      StreamPass p;
      p.num_reads = reads;
      p.num_writes = writes;
      p.num_updates = updates;
      for (int k = 0; k < reads; ++k) p.reads[k] = array();
      for (int k = 0; k < writes; ++k) p.writes[k] = array();
      for (int k = 0; k < updates; ++k) p.updates[k] = array();
      sets_.push_back(p);
    }
    if (writes > 0) choose_stores();
  }

  void run() override {
    const StreamPass& p = sets_[next_++ % sets_.size()];
    const int64_t threads = num_parallel_threads();
    const int64_t grain = (floats_ / threads + 64) / 64 * 64;
    parallel_for(floats_, grain, [&](int64_t begin, int64_t end) {
      const float seen = HWY_DYNAMIC_DISPATCH(pass)(p, begin, end);
      if (begin == 0) seen_ = seen;
    });
  }
  double work_per_run() const override { return work_; }

 private:
  float* array() {
    arrays_.push_back(Array::full({floats_}, DType::f32, 1.0));
    return arrays_.back().view().data_as<float>();
  }
  void choose_stores() {
    double best[2];
    for (const bool bypass : {false, true}) {
      for (StreamPass& p : sets_) p.bypass = bypass;
      best[bypass] = 1e30;
      for (int i = 0; i < 6; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        run();
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
        best[bypass] = std::min(best[bypass], took.count());
      }
    }
    for (StreamPass& p : sets_) p.bypass = best[1] < best[0];
  }

  int64_t floats_;  // per array
  double work_;
  std::vector<Array> arrays_;
  std::vector<StreamPass> sets_;
  size_t next_ = 0;
  volatile float seen_ = 0.0f;
};

}  // namespace

std::unique_ptr<Probe> make_stream_probe(int reads, int writes, int updates, int64_t bytes) {
  const bool fits = reads >= 0 && writes >= 0 && updates >= 0 && reads <= kMaxArrays &&
                    writes <= kMaxArrays && updates <= kMaxArrays && reads + writes + updates > 0;
  require(fits, "stream probe: 1 to ", kMaxArrays, " arrays of each kind, not ", reads, ", ",
          writes, ", ", updates);
  return std::make_unique<StreamProbe>(reads, writes, updates, bytes);
}

int64_t last_level_cache_bytes() {
  for (const int name : {_SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE}) {
    const int64_t bytes = sysconf(name);
    if (bytes > 0) return bytes;
  }
  return int64_t{64} << 20;
}

}  // namespace zinc::bench
#endif  // HWY_ONCE
