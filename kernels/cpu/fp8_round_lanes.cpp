// core/float8.h's round_to_fp8 on vectors.
#include "kernels/fp8_round.h"

#include "kernels/cpu/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/fp8_round_lanes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

void round_vectors(const Fp8Round& args, int scale_exponent) {
  const bf16* x = args.x.data_as<bf16>();
  bf16* y = args.y.data_as<bf16>();
  const Lanes lanes;
  const hn::RebindToUnsigned<Lanes> words;
  const Fp8Grid grid = grid_of(args.format);
  const int dropped = 23 - grid.mantissa_bits;
  const float scale = power_of_two(scale_exponent), back = power_of_two(-scale_exponent);
  const float least = power_of_two(grid.min_exponent);
  const float step = 1.5f * power_of_two(23 + grid.min_exponent - grid.mantissa_bits);
  const uint32_t half = (1u << (dropped - 1)) - 1u, kept = ~((1u << dropped) - 1u);
  for_each_element_vector(
      args.x.shape(),
      [=](const auto& at, auto load, auto store) HWY_ATTR {
        const auto value = load(x + at[0]);
        const auto scaled = hn::Mul(value, hn::Set(lanes, scale));
        const auto bits = hn::BitCast(words, scaled);
        const auto odd = hn::And(hn::ShiftRightSame(bits, dropped), hn::Set(words, 1u));
        const auto sum = hn::Add(bits, hn::Add(hn::Set(words, half), odd));
        const auto normal = hn::BitCast(lanes, hn::And(sum, hn::Set(words, kept)));
        const auto steps = hn::Set(lanes, step);
        const auto small = hn::Sub(hn::Add(scaled, steps), steps);
        const auto is_small = hn::Lt(hn::Abs(scaled), hn::Set(lanes, least));
        const auto rounded = hn::Mul(hn::IfThenElse(is_small, small, normal), hn::Set(lanes, back));
        store(hn::IfThenElse(hn::IsFinite(value), rounded, value), y + at[1]);
      },
      args.x, args.y);
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zinc::kernels::cpu {

HWY_EXPORT(round_vectors);

void fp8_round_lanes(const Fp8Round& args, int scale_exponent) {
  HWY_DYNAMIC_DISPATCH(round_vectors)(args, scale_exponent);
}

}  // namespace zinc::kernels::cpu
#endif
