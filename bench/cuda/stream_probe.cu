// One pass over several f32 arrays: the rate that memory gives a kernel without other work. A
// thread moves kPacks packs of 16 bytes of every array, a block apart, so that several loads are
// under way.
#include <algorithm>
#include <vector>

#include "bench/arrays.h"
#include "bench/ceilings.h"
#include "bench/device_clock.h"
#include "kernels/cuda/launch.h"

namespace zinc::bench {
namespace {

constexpr int kMaxArrays = 8;
constexpr int kThreads = 256;

struct alignas(16) Pack {
  float x[4];
};

struct StreamPass {
  const Pack* reads[kMaxArrays];
  Pack* writes[kMaxArrays];
  Pack* updates[kMaxArrays];
  int num_reads, num_writes, num_updates;
  int64_t packs;
  float* never;  // keeps the reads alive where nothing is written
};

__device__ void add(Pack& sum, const Pack& more) {
  for (int j = 0; j < 4; ++j) sum.x[j] += more.x[j];
}

template <int kPacks>
__global__ void stream_pass(StreamPass p) {
  const int64_t first = int64_t{blockIdx.x} * kPacks * kThreads + threadIdx.x;
  Pack sums[kPacks];
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    for (int j = 0; j < 4; ++j) sums[i].x[j] = 1.0f;
  }
  for (int k = 0; k < p.num_reads; ++k) {
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const int64_t at = first + i * kThreads;
      if (at < p.packs) add(sums[i], p.reads[k][at]);
    }
  }
  for (int k = 0; k < p.num_updates; ++k) {
    Pack old[kPacks];
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const int64_t at = first + i * kThreads;
      if (at < p.packs) old[i] = p.updates[k][at];
    }
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const int64_t at = first + i * kThreads;
      if (at >= p.packs) continue;
      add(old[i], sums[i]);
      p.updates[k][at] = old[i];
    }
  }
  for (int k = 0; k < p.num_writes; ++k) {
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const int64_t at = first + i * kThreads;
      if (at < p.packs) p.writes[k][at] = sums[i];
    }
  }
  if (p.num_writes + p.num_updates > 0) return;
  for (int i = 0; i < kPacks; ++i) {
    if (sums[i].x[0] + sums[i].x[1] + sums[i].x[2] + sums[i].x[3] == -1.0f) *p.never = 1.0f;
  }
}

class CudaStreamProbe final : public Probe {
 public:
  CudaStreamProbe(int reads, int writes, int updates, int64_t bytes, Context& context)
      : stream_(context.compute()), never_(Array::full({1}, DType::f32, 0.0)) {
    const int64_t passes = reads + writes + 2 * updates;
    const int64_t packs = std::max<int64_t>(bytes / 16 / passes, 1);
    work_ = static_cast<double>(packs * 16 * passes);
    const int64_t set_bytes = packs * 16 * (reads + writes + updates);
    const int64_t sets =
        std::clamp<int64_t>(2 * last_level_cache_bytes(context.device()) / set_bytes + 1, 1, 16);
    for (int64_t s = 0; s < sets; ++s) {
      StreamPass p{.num_reads = reads,
                   .num_writes = writes,
                   .num_updates = updates,
                   .packs = packs,
                   .never = never_.view().data_as<float>()};
      for (int k = 0; k < reads; ++k) p.reads[k] = array(packs);
      for (int k = 0; k < writes; ++k) p.writes[k] = array(packs);
      for (int k = 0; k < updates; ++k) p.updates[k] = array(packs);
      sets_.push_back(p);
    }
    choose_packs(context);
  }

  void run() override {
    const StreamPass& p = sets_[next_++ % sets_.size()];
    const int64_t per_block = int64_t{kThreads} * packs_per_thread_;
    const auto blocks = static_cast<unsigned>((p.packs + per_block - 1) / per_block);
    const auto kernel = packs_per_thread_ == 1   ? stream_pass<1>
                        : packs_per_thread_ == 2 ? stream_pass<2>
                                                 : stream_pass<4>;
    kernels::cuda::launch(kernel, dim3(blocks), dim3(kThreads), 0, stream_, p);
  }
  double work_per_run() const override { return work_; }

 private:
  Pack* array(int64_t packs) {
    arrays_.push_back(Array::full({packs * 4}, DType::f32, 0.5));
    return static_cast<Pack*>(arrays_.back().view().data());
  }
  void choose_packs(Context& context) {
    DeviceClock clock(context);
    double best = 0.0;
    int fastest = 1;
    for (const int packs : {1, 2, 4}) {
      packs_per_thread_ = packs;
      run();
      const double seconds = clock.seconds_of([&] {
        for (int i = 0; i < 4; ++i) run();
      });
      if (packs == 1 || seconds < best) {
        best = seconds;
        fastest = packs;
      }
    }
    packs_per_thread_ = fastest;
  }

  StreamRef stream_;
  Array never_;
  double work_ = 0.0;
  std::vector<Array> arrays_;
  std::vector<StreamPass> sets_;
  size_t next_ = 0;
  int packs_per_thread_ = 1;
};

}  // namespace

std::unique_ptr<Probe> make_cuda_stream_probe(int reads, int writes, int updates, int64_t bytes) {
  const bool fits = reads >= 0 && writes >= 0 && updates >= 0 && reads <= kMaxArrays &&
                    writes <= kMaxArrays && updates <= kMaxArrays && reads + writes + updates > 0;
  require(fits, "stream probe: 1 to ", kMaxArrays, " arrays of each kind, not ", reads, ", ",
          writes, ", ", updates);
  return std::make_unique<CudaStreamProbe>(reads, writes, updates, bytes, Context::current());
}

}  // namespace zinc::bench
