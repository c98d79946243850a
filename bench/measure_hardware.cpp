#include "bench/measure_hardware.h"

#include <algorithm>
#include <array>
#include <functional>

#include "bench/comm/comm_bench.h"
#include "bench/samples.h"
#include "comm/local/local.h"
#include "core/error.h"
#include "kernels/attention.h"
#include "kernels/gelu.h"
#include "kernels/gemm.h"
#include "kernels/layernorm.h"
#include "kernels/scale.h"
#include "tensor/tensor.h"
#include "zero/gather_values.h"

namespace zinc::bench {
namespace {

// The median of runs that take `seconds` together.
double seconds_per_run(double seconds, const std::function<void()>& run) {
  Samples samples;
  run();
  while (samples.total_seconds() < seconds || samples.count() < 3) {
    samples.add(seconds_of(run));
  }
  return samples.median();
}

// The best rate over all figures whose name begins so: every shape the same number of times.
double rate_of(const std::vector<CeilingFigure>& ceilings, std::string_view prefix) {
  double time_of_one = 0.0;
  double count = 0.0;
  for (const CeilingFigure& figure : ceilings) {
    if (!figure.name.starts_with(prefix)) continue;
    time_of_one += 1.0 / figure.best;
    count += 1.0;
  }
  return count == 0.0 ? 0.0 : 1e9 * count / time_of_one;
}

// Values that no kernel finds easier than others.
Tensor values(const Shape& shape, DType dtype) { return Tensor::full(shape, 0.5, dtype); }

double gemm_rate(DType dtype, double seconds, StreamRef stream) {
  const Tensor a = values({1024, 768}, dtype);
  const Tensor b = values({768, 768}, dtype);
  const Tensor c = values({1024, 768}, dtype);
  const kernels::Gemm args{.a = a.view(), .b = b.view(), .c = c.view()};
  const double time = seconds_per_run(seconds, [&] {
    kernels::gemm(args, stream);
    stream->synchronize();
  });
  return static_cast<double>(kernels::cost(args).flops) / time;
}

// Forward and backward, causal, as GPT-2 has it.
double attention_rate(DType dtype, double seconds, StreamRef stream) {
  constexpr int64_t B = 2, T = 512, H = 12, D = 64;
  const auto heads = [&] { return values({B, T, H, D}, dtype); };
  const Tensor q = heads(), k = heads(), v = heads(), out = heads(), dout = heads();
  const Tensor dq = heads(), dk = heads(), dv = heads();
  const Tensor lse = values({B, H, T}, DType::f32);
  const kernels::AttentionForward forward{
      .q = q.view(), .k = k.view(), .v = v.view(), .out = out.view(), .lse = lse.view()};
  const kernels::AttentionBackward backward{.q = q.view(),
                                            .k = k.view(),
                                            .v = v.view(),
                                            .out = out.view(),
                                            .lse = lse.view(),
                                            .dout = dout.view(),
                                            .dq = dq.view(),
                                            .dk = dk.view(),
                                            .dv = dv.view()};
  const double time = seconds_per_run(seconds, [&] {
    kernels::attention_forward(forward, stream);
    kernels::attention_backward(backward, stream);
    stream->synchronize();
  });
  return static_cast<double>((kernels::cost(forward) + kernels::cost(backward)).flops) / time;
}

// A GELU and a layer norm of what fits into caches.
double other_rate(double seconds, StreamRef stream) {
  const Tensor x = values({256, 768}, DType::f32);
  const Tensor y = values({256, 768}, DType::f32);
  const Tensor gamma = values({768}, DType::f32);
  const kernels::GeluForward gelu{.x = x.view(), .y = y.view()};
  const kernels::LayerNormForward norm{.x = x.view(), .gamma = gamma.view(), .y = y.view()};
  const double time = seconds_per_run(seconds, [&] {
    kernels::gelu_forward(gelu, stream);
    kernels::layernorm_forward(norm, stream);
    stream->synchronize();
  });
  return static_cast<double>(kernels::cost(gelu).flops + kernels::cost(norm).flops) / time;
}

double launch_time(double seconds, StreamRef stream) {
  constexpr int kLaunches = 1000;
  const Tensor x = values({64}, DType::f32);
  return seconds_per_run(seconds,
                         [&] {
                           for (int i = 0; i < kLaunches; ++i) {
                             kernels::scale({.x = x.view(), .factor = 1.0, .y = x.view()}, stream);
                           }
                           stream->synchronize();
                         }) /
         kLaunches;
}

// From a small and a large message. Rank 0's figures.
train::CollectiveLinks measure_links(comm::World& world) {
  const auto rows = [&](int64_t bytes) {
    return run_comm_bench(
        world, {.min_bytes = bytes, .max_bytes = bytes, .seconds = 0.15, .dtype = DType::bf16});
  };
  const std::vector<CommBenchRow> small = rows(int64_t{4} << 10);
  const std::vector<CommBenchRow> large = rows(int64_t{16} << 20);
  const double peers = world.size() - 1;
  const auto link = [&](std::string_view name) {
    const auto of = [&](const std::vector<CommBenchRow>& all) {
      const auto found = std::ranges::find(all, name, &CommBenchRow::collective);
      bug_check(found != all.end(), "no figure of ", name);
      return *found;
    };
    const CommBenchRow a = of(small);
    const CommBenchRow b = of(large);
    const double sent = static_cast<double>(b.bytes - a.bytes) * peers / world.size();
    return train::Link{
        .alpha_seconds = a.median_seconds / peers,
        .bytes_per_second = sent / std::max(b.median_seconds - a.median_seconds, 1e-9)};
  };
  return {.all_gather = link("all_gather"), .reduce_scatter = link("reduce_scatter")};
}

train::CollectiveLinks links_of(comm::World& world) {
  if (world.size() > 1) return measure_links(world);
  train::CollectiveLinks links;
  comm::run_local_ranks(2, {.num_threads = 1}, [&](comm::World& two) {
    const train::CollectiveLinks measured = measure_links(two);
    if (two.is_main()) links = measured;
  });
  return links;
}

}  // namespace

train::Hardware measure_hardware(comm::World& world, const std::vector<CeilingFigure>& ceilings,
                                 const MeasureOptions& options) {
  require(world.info().local_size == world.size(),
          "bench ceilings: all ranks must be on one host; the network between hosts is not "
          "measured, add \"between_hosts\" to the file by hand");
  Context& context = world.context();
  const StreamRef stream = context.compute();
  const double each = options.seconds / 8.0;
  const auto library = [&](DType dtype) {
    const double rate = rate_of(ceilings, concat("gemm ", zinc::name_of(dtype), " "));
    return rate > 0.0 ? rate : gemm_rate(dtype, each, stream);
  };
  // In the order of `figures` below.
  std::array<double, 10> mine{rate_of(ceilings, "stream read 1 write 0 update 0"),
                              rate_of(ceilings, "stream read 0 write 1 update 0"),
                              library(DType::f32),
                              library(DType::bf16),
                              gemm_rate(DType::f16, each, stream),
                              attention_rate(DType::f32, each, stream),
                              attention_rate(DType::bf16, each, stream),
                              attention_rate(DType::f16, each, stream),
                              other_rate(each, stream),
                              static_cast<double>(context.num_threads())};
  const double launch = launch_time(each, stream);
  const std::vector<double> all = zero::gather_values(world, mine);
  std::array<double, 10> figures{};
  for (size_t i = 0; i < all.size(); ++i) figures[i % figures.size()] += all[i];
  return {.name = concat(options.name, ", ", figures[9], " threads"),
          .source = "measured",
          .device = DeviceKind::cpu,
          .threads = static_cast<int>(figures[9]),
          .read_bytes_per_second = figures[0],
          .write_bytes_per_second = figures[1],
          .gemm = {.f32 = figures[2], .bf16 = figures[3], .f16 = figures[4]},
          .attention = {.f32 = figures[5], .bf16 = figures[6], .f16 = figures[7]},
          .other_flops = figures[8],
          .launch_seconds = launch,
          .same_host = links_of(world),
          .between_hosts = std::nullopt};
}

}  // namespace zinc::bench
