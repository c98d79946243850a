#include "bench/measure_hardware.h"

#include <algorithm>
#include <array>
#include <functional>

#include "bench/comm/comm_bench.h"
#include "bench/device_clock.h"
#include "bench/host_rates.h"
#include "bench/samples.h"
#include "comm/gather_values.h"
#include "comm/local/local.h"
#include "core/error.h"
#include "kernels/attention.h"
#include "kernels/gelu.h"
#include "kernels/gemm.h"
#include "kernels/layernorm.h"
#include "kernels/scale.h"
#include "tensor/tensor.h"

namespace zinc::bench {
namespace {

// Runs kernels on a device that may be a GPU.
class Lab {
 public:
  Lab(Context& context, double seconds, int64_t shrink)
      : context_(context), clock_(context), seconds_(seconds), shrink_(shrink) {}

  StreamRef stream() { return context_.compute(); }
  int64_t size(int64_t usual) const { return std::max<int64_t>(usual / shrink_, 1); }
  // The median of runs that take about `seconds` together.
  double seconds_per_run(const std::function<void()>& queue) {
    Samples samples;
    clock_.seconds_of(queue);
    while (samples.total_seconds() < seconds_ || samples.count() < 3) {
      samples.add(clock_.seconds_of(queue));
    }
    return samples.median();
  }

 private:
  Context& context_;
  DeviceClock clock_;
  const double seconds_;
  const int64_t shrink_;
};

// The rate of all figures together whose names begin with `prefix`, each at its best: every shape
// counts the same number of times, so it is a harmonic mean.
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

double gemm_rate(DType dtype, Lab& lab) {
  const int64_t rows = lab.size(1024), width = lab.size(768);
  const Tensor a = values({rows, width}, dtype);
  const Tensor b = values({width, width}, dtype);
  const Tensor c = values({rows, width}, dtype);
  const kernels::Gemm args{.a = a.view(), .b = b.view(), .c = c.view()};
  const double time = lab.seconds_per_run([&] { kernels::gemm(args, lab.stream()); });
  return static_cast<double>(kernels::cost(args).flops) / time;
}

// The rate of causal attention, forward and backward, in the shape of GPT-2.
double attention_rate(DType dtype, Lab& lab) {
  const int64_t B = 2, T = lab.size(512), H = lab.size(12), D = 64;
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
  const double time = lab.seconds_per_run([&] {
    kernels::attention_forward(forward, lab.stream());
    kernels::attention_backward(backward, lab.stream());
  });
  return static_cast<double>((kernels::cost(forward) + kernels::cost(backward)).flops) / time;
}

// The rate of a GELU and a layer norm on arrays that fit into caches.
double other_rate(Lab& lab) {
  const Tensor x = values({lab.size(256), 768}, DType::f32);
  const Tensor y = values({lab.size(256), 768}, DType::f32);
  const Tensor gamma = values({768}, DType::f32);
  const kernels::GeluForward gelu{.x = x.view(), .y = y.view()};
  const kernels::LayerNormForward norm{.x = x.view(), .gamma = gamma.view(), .y = y.view()};
  const double time = lab.seconds_per_run([&] {
    kernels::gelu_forward(gelu, lab.stream());
    kernels::layernorm_forward(norm, lab.stream());
  });
  return static_cast<double>(kernels::cost(gelu).flops + kernels::cost(norm).flops) / time;
}

double launch_time(Lab& lab) {
  const int64_t launches = lab.size(1000);
  const Tensor x = values({64}, DType::f32);
  const double time = lab.seconds_per_run([&] {
    for (int64_t i = 0; i < launches; ++i) {
      kernels::scale({.x = x.view(), .factor = 1.0, .y = x.view()}, lab.stream());
    }
  });
  return time / static_cast<double>(launches);
}

// Computes alpha and beta from a small and a large message, as rank 0 measures them.
plan::CollectiveLinks measure_links(comm::World& world, const MeasureOptions& options) {
  const auto rows = [&](int64_t bytes) {
    return run_comm_bench(world, {.min_bytes = bytes,
                                  .max_bytes = bytes,
                                  .seconds = options.shrink > 1 ? 0.0 : 0.15,
                                  .dtype = DType::bf16});
  };
  const std::vector<CommBenchRow> small = rows(int64_t{4} << 10);
  const std::vector<CommBenchRow> large = rows((int64_t{16} << 20) / options.shrink);
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
    return plan::Link{
        .alpha_seconds = a.median_seconds / peers,
        .bytes_per_second = sent / std::max(b.median_seconds - a.median_seconds, 1e-9)};
  };
  return {.all_gather = link("all_gather"), .reduce_scatter = link("reduce_scatter")};
}

plan::CollectiveLinks links_of(comm::World& world, const MeasureOptions& options) {
  if (world.size() > 1) return measure_links(world, options);
  plan::CollectiveLinks links;
  comm::run_local_ranks(2, {.device = world.context().device(), .num_threads = 1},
                        [&](comm::World& two) {
                          const plan::CollectiveLinks measured = measure_links(two, options);
                          if (two.is_main()) links = measured;
                        });
  return links;
}

}  // namespace

plan::Hardware measure_hardware(comm::World& world, const std::vector<CeilingFigure>& ceilings,
                                const MeasureOptions& options) {
  require(world.info().local_size == world.size(),
          "bench ceilings: all ranks must be on one host; the network between hosts is not "
          "measured, add \"between_hosts\" to the file by hand");
  Context& context = world.context();
  const ContextScope scope(context);
  const bool on_gpu = context.device().is_cuda();
  Lab lab(context, options.seconds / 8.0, options.shrink);
  const auto library = [&](DType dtype) {
    const double rate = rate_of(ceilings, str("gemm ", zinc::name_of(dtype), " "));
    return rate > 0.0 ? rate : gemm_rate(dtype, lab);
  };
  const plan::HostRates host = measure_host_rates(
      context, {.bytes = (int64_t{256} << 20) / options.shrink, .seconds = options.seconds / 10.0});
  // Rates of this rank, in the order of `figures` below.
  std::array<double, 13> mine{rate_of(ceilings, "stream read 1 write 0 update 0"),
                              rate_of(ceilings, "stream read 0 write 1 update 0"),
                              library(DType::f32),
                              library(DType::bf16),
                              gemm_rate(DType::f16, lab),
                              attention_rate(DType::f32, lab),
                              attention_rate(DType::bf16, lab),
                              attention_rate(DType::f16, lab),
                              other_rate(lab),
                              static_cast<double>(context.num_threads()),
                              host.update_bytes_per_second,
                              host.to_device_bytes_per_second,
                              host.to_host_bytes_per_second};
  const double launch = launch_time(lab);
  const std::vector<double> all = comm::gather_values(world, mine);
  std::array<double, 13> figures{};
  for (size_t i = 0; i < all.size(); ++i) figures[i % figures.size()] += all[i];
  const double ranks = world.size();
  // With GPUs, the figures are those of one GPU and of one rank's link, not of all together.
  for (size_t i = 0; i < 9; ++i) figures[i] /= on_gpu ? ranks : 1.0;
  const auto threads = static_cast<int>(figures[9]);
  return {.name = str(options.name, ", ", threads, on_gpu ? " threads of its host" : " threads"),
          .source = "measured",
          .device = context.device().kind,
          .threads = on_gpu ? 0 : threads,
          .read_bytes_per_second = figures[0],
          .write_bytes_per_second = figures[1],
          .gemm = {.f32 = figures[2], .bf16 = figures[3], .f16 = figures[4]},
          .attention = {.f32 = figures[5], .bf16 = figures[6], .f16 = figures[7]},
          .other_flops = figures[8],
          .launch_seconds = launch,
          .same_host = links_of(world, options),
          .between_hosts = std::nullopt,
          .disk = std::nullopt,
          .host = plan::HostRates{.threads = on_gpu ? threads : 0,
                                  .to_device_bytes_per_second = figures[11] / ranks,
                                  .to_host_bytes_per_second = figures[12] / ranks,
                                  .update_bytes_per_second = figures[10]}};
}

}  // namespace zinc::bench
