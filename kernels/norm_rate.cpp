#include "kernels/norm_rate.h"

#include <array>
#include <bit>

#include "kernels/checks.h"
#include "kernels/element_update.h"
#include "kernels/launch.h"

namespace zinc::kernels {

namespace cpu {
void norm_rate(const NormRate& args);
}  // namespace cpu
namespace cuda {
void norm_rate(const NormRate& args, StreamRef stream);
}  // namespace cuda

void norm_rate_given(const NormRate& args, std::span<float> given) {
  require(std::ssize(given) == kNormRateGiven, "norm_rate_given: room for ", given.size(), " of ",
          kNormRateGiven);
  const std::array bits{std::bit_cast<uint64_t>(args.lr),
                        std::bit_cast<uint64_t>(args.weight_decay), args.counter_high};
  for (size_t i = 0; i < given.size(); ++i) {
    given[i] = std::bit_cast<float>(static_cast<uint32_t>(bits[i / 2] >> 32 * (i % 2)));
  }
}

void norm_rate(const NormRate& args, StreamRef stream) {
  constexpr auto kOp = "norm_rate";
  require_dense_operand(kOp, "sums", args.sums, DType::f64, args.sums.shape());
  require(args.sums.rank() == 1 && (args.sums.numel() == 1 || args.sums.numel() == 2), kOp,
          ": one sum or two, not ", args.sums.shape());
  require(args.numel >= 1, kOp, ": a parameter has elements, not ", args.numel);
  require(args.least >= 0.0 && args.least <= args.most, kOp, ": the bounds ", args.least, " and ",
          args.most, " have nothing between them");
  const DType dtype = args.values.dtype() == DType::f64 ? DType::f64 : DType::f32;
  require_dense_operand(kOp, "values", args.values, dtype,
                        Shape{num_update_values(UpdateRule::sgdw)});
  require_apart(kOp, "values", args.values, "sums", args.sums);
  if (args.given) {
    require_dense_operand(kOp, "given", args.given, DType::f32, Shape{kNormRateGiven});
    require_same_device(kOp, {args.sums, args.given});
  }
  require_same_device(kOp, {args.sums, args.values});
  run_on_device(
      kOp, args, args.sums.device(), stream, [args] { cpu::norm_rate(args); },
      [&] { cuda::norm_rate(args, stream); });
}

Cost cost(const NormRate& args) {
  return {.bytes_read = args.sums.bytes() + (args.given ? args.given.bytes() : 0),
          .bytes_written = args.values.bytes(),
          .flops = 6};
}

}  // namespace zinc::kernels
