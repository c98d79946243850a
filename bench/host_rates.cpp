#include "bench/host_rates.h"

#include <array>
#include <functional>

#include "bench/device_clock.h"
#include "bench/samples.h"
#include "core/host_stream.h"
#include "core/transfer.h"
#include "kernels/element_update.h"
#include "kernels/fill.h"

namespace zinc::bench {
namespace {

// The rate of the median run; `once` gives the seconds of one run.
double rate(int64_t bytes, double seconds, const std::function<double()>& once) {
  Samples samples;
  once();
  while (samples.total_seconds() < seconds || samples.count() < 3) samples.add(once());
  return static_cast<double>(bytes) / samples.median();
}

double copy_rate(Context& context, Tier from, Tier to, const HostRateOptions& options) {
  const Block source = context.allocate(options.bytes, Label::staging, from);
  const Block target = context.allocate(options.bytes, Label::staging, to);
  const auto view = [&](const Block& block, Tier tier) {
    return View(block.data(), DType::u8, Shape{options.bytes}, context.device(), tier);
  };
  DeviceClock clock(context);
  return rate(options.bytes, options.seconds, [&] {
    return clock.seconds_of(
        [&] { transfer(view(source, from), view(target, to), context.compute()); });
  });
}

double update_rate(Context& context, const HostRateOptions& options) {
  constexpr int64_t kBytesPerElement = 4 * 4 + 2;  // four arrays of f32, the model's copy
  const int64_t numel = options.bytes / kBytesPerElement;
  const StreamRef stream = host_stream(context);
  std::array<Block, 5> blocks;
  std::array<View, 5> arrays;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const DType dtype = i == 4 ? DType::bf16 : DType::f32;
    blocks[i] = context.allocate(numel * size_of(dtype), Label::staging, Tier::pinned_host);
    arrays[i] = host_memory(
        View(blocks[i].data(), dtype, Shape{numel}, context.device(), Tier::pinned_host));
    kernels::fill({.y = arrays[i]}, stream);
  }
  const kernels::ElementUpdate args{.weights = arrays[0],
                                    .gradient = arrays[1],
                                    .states = {arrays[2], arrays[3]},
                                    .model_weights = arrays[4]};
  const kernels::Cost cost = kernels::cost(args);
  stream->synchronize();
  return rate(cost.bytes_read + cost.bytes_written, options.seconds, [&] {
    return seconds_of([&] {
      kernels::element_update(args, stream);
      stream->synchronize();
    });
  });
}

}  // namespace

plan::HostRates measure_host_rates(Context& context, const HostRateOptions& options) {
  const ContextScope scope(context);
  plan::HostRates rates{
      .to_device_bytes_per_second = copy_rate(context, Tier::pinned_host, Tier::device, options),
      .to_host_bytes_per_second = copy_rate(context, Tier::device, Tier::pinned_host, options)};
  if (context.device().is_cuda()) {
    rates.threads = context.num_threads();
    rates.update_bytes_per_second = update_rate(context, options);
  }
  return rates;
}

}  // namespace zinc::bench
