#include "bench/ceilings.h"

#include <fmt/format.h>

#include "bench/device_clock.h"
#include "bench/samples.h"
#include "core/cuda_backend.h"

namespace zinc::bench {

namespace {

std::unique_ptr<Probe> stream_probe(int reads, int writes, int updates, int64_t bytes) {
  return Context::current().device().is_cuda()
             ? make_cuda_stream_probe(reads, writes, updates, bytes)
             : make_stream_probe(reads, writes, updates, bytes);
}
std::unique_ptr<Probe> gemm_probe(const Ceiling& ceiling) {
  return Context::current().device().is_cuda() ? make_cuda_gemm_probe(ceiling)
                                               : make_gemm_probe(ceiling);
}

}  // namespace

int64_t last_level_cache_bytes(const Device& device) {
  if (device.is_cpu()) return last_level_cache_bytes();
  const std::vector<CudaDeviceInfo> gpus = cuda_devices();
  const auto index = static_cast<size_t>(device.index);
  return index < gpus.size() ? gpus[index].l2_bytes : 0;
}

std::unique_ptr<Probe> make_probe(const Entry& entry) {
  const Ceiling& c = entry.ceiling;
  switch (c.kind) {
    case Ceiling::Kind::stream:
      return stream_probe(c.reads, c.writes, c.updates, entry.cost.bytes());
    case Ceiling::Kind::gemm:
      return gemm_probe(c);
    case Ceiling::Kind::none:
      break;
  }
  return nullptr;
}

namespace {

CeilingFigure measure(std::string name, std::string unit, Probe& probe, double seconds) {
  DeviceClock clock(Context::current());
  Samples samples;
  probe.run();
  while (samples.total_seconds() < seconds || samples.count() < 3) {
    samples.add(clock.seconds_of([&] { probe.run(); }));
  }
  const double work = probe.work_per_run() * 1e-9;
  return {std::move(name), std::move(unit), work / samples.median(), work / samples.minimum()};
}

struct GemmShape {
  int64_t m, n, k;
  bool transpose_a, transpose_b;
};

// Products of a gpt2-124m step on 2048 tokens: forward, and the two of backward.
constexpr GemmShape kStepShapes[] = {
    {2048, 2304, 768, false, true}, {2048, 768, 768, false, true},   {2048, 3072, 768, false, true},
    {2048, 768, 3072, false, true}, {2048, 768, 2304, false, false}, {2304, 768, 2048, true, false},
    {512, 50257, 768, false, true},
};

}  // namespace

std::vector<CeilingFigure> measure_ceilings(Context& context, double seconds) {
  const ContextScope scope(context);
  std::vector<CeilingFigure> figures;
  const int64_t stream_bytes = int64_t{256} << (context.device().is_cuda() ? 23 : 20);
  const int patterns[][3] = {{1, 0, 0}, {0, 1, 0}, {1, 1, 0}, {2, 1, 0}, {0, 0, 1}, {1, 1, 3}};
  const double each = seconds / (std::size(patterns) + 2 * std::size(kStepShapes));
  for (const auto& [reads, writes, updates] : patterns) {
    const auto probe = stream_probe(reads, writes, updates, stream_bytes);
    figures.push_back(
        measure(fmt::format("stream read {} write {} update {}", reads, writes, updates), "GB/s",
                *probe, each));
  }
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const GemmShape& s : kStepShapes) {
      const auto probe =
          gemm_probe(Ceiling::gemm(s.m, s.n, s.k, dtype, s.transpose_a, s.transpose_b));
      if (probe == nullptr) continue;
      figures.push_back(
          measure(fmt::format("gemm {} {}x{}x{} {}{}", to_string(dtype), s.m, s.n, s.k,
                              s.transpose_a ? 'T' : 'N', s.transpose_b ? 'T' : 'N'),
                  "GFLOP/s", *probe, each));
    }
  }
  return figures;
}

std::string table_of(const std::vector<CeilingFigure>& figures) {
  std::string out = fmt::format("{:<36} {:>10} {:>10}  {}\n", "ceiling", "median", "best", "unit");
  for (const CeilingFigure& f : figures) {
    out += fmt::format("{:<36} {:>10.1f} {:>10.1f}  {}\n", f.name, f.median, f.best, f.unit);
  }
  return out;
}

}  // namespace zinc::bench
