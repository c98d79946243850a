#include "kernels/select.h"

#include <algorithm>

#include "kernels/broadcast.h"
#include "kernels/cpu/highway_targets.h"
#include "kernels/cpu/past_caches.h"
#include "kernels/cpu/row_walk.h"
#include "kernels/fill.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/select.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#ifndef ZINC_KERNELS_CPU_SELECT_ONCE
#define ZINC_KERNELS_CPU_SELECT_ONCE
namespace zinc::kernels::cpu {

// y[i] = mask[i] != 0 ? a[i] : b[i]; what repeats is one element for all.
template <class Bits>
struct SelectRun {
  const uint8_t* mask;
  const Bits* a;
  const Bits* b;
  Bits* y;
  bool mask_repeats, a_repeats, b_repeats;
  int64_t count;
  bool past_caches;

  Bits at(int64_t i) const {
    // Both are read, so that the choice is no jump.
    const Bits left = a[a_repeats ? 0 : i];
    const Bits right = b[b_repeats ? 0 : i];
    return mask[mask_repeats ? 0 : i] != 0 ? left : right;
  }
};

}  // namespace zinc::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class Bits>
void select_run(const SelectRun<Bits>& given) {
  const SelectRun<Bits> run = given;  // apart from what is stored
  const hn::ScalableTag<Bits> d;
  const hn::Rebind<uint8_t, decltype(d)> bytes;
  const auto width = static_cast<int64_t>(hn::Lanes(d));
  const auto zero = hn::Zero(d);
  const auto load = [&](const Bits* from, bool repeats, int64_t i)
                        HWY_ATTR { return repeats ? hn::Set(d, *from) : hn::LoadU(d, from + i); };
  const auto mask_at = [&](int64_t i) HWY_ATTR {
    if (run.mask_repeats) return hn::Set(d, static_cast<Bits>(*run.mask));
    if constexpr (sizeof(Bits) == 1) {
      return hn::LoadU(d, run.mask + i);
    } else {
      return hn::PromoteTo(d, hn::LoadU(bytes, run.mask + i));
    }
  };
  int64_t i = 0;
  if (run.past_caches) {
    const auto start = reinterpret_cast<uintptr_t>(run.y);
    while (i < run.count && (start + static_cast<uintptr_t>(i) * sizeof(Bits)) %
                                    (static_cast<uintptr_t>(width) * sizeof(Bits)) !=
                                0) {
      run.y[i] = run.at(i);
      ++i;
    }
  }
  for (; i + width <= run.count; i += width) {
    const auto chosen = hn::IfThenElse(hn::Eq(mask_at(i), zero), load(run.b, run.b_repeats, i),
                                       load(run.a, run.a_repeats, i));
    if (run.past_caches) {
      hn::Stream(chosen, d, run.y + i);
    } else {
      hn::StoreU(chosen, d, run.y + i);
    }
  }
  for (; i < run.count; ++i) run.y[i] = run.at(i);
}

void select_u8(const SelectRun<uint8_t>& run) { select_run(run); }
void select_u16(const SelectRun<uint16_t>& run) { select_run(run); }
void select_u32(const SelectRun<uint32_t>& run) { select_run(run); }

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zinc::kernels::cpu {

HWY_EXPORT(select_u8);
HWY_EXPORT(select_u16);
HWY_EXPORT(select_u32);

namespace {

void run_select(const SelectRun<uint8_t>& run) { HWY_DYNAMIC_DISPATCH(select_u8)(run); }
void run_select(const SelectRun<uint16_t>& run) { HWY_DYNAMIC_DISPATCH(select_u16)(run); }
void run_select(const SelectRun<uint32_t>& run) { HWY_DYNAMIC_DISPATCH(select_u32)(run); }
void run_select(const SelectRun<uint64_t>& run) {
  for (int64_t i = 0; i < run.count; ++i) run.y[i] = run.at(i);
}

// Takes sides that are one value for a whole row, or contiguous along the row.
template <class Bits>
void select_bits(const Select& args) {
  const Bits values[] = {static_cast<Bits>(bits_of(args.a_value, args.y.dtype())),
                         static_cast<Bits>(bits_of(args.b_value, args.y.dtype()))};
  const Shape& shape = args.y.shape();
  const auto strides_of = [&](const ConstView& view) {
    return view ? broadcast_strides(view, shape) : Strides{};
  };
  const auto* mask = args.mask.data_as<uint8_t>();
  const auto* a = args.a ? static_cast<const Bits*>(args.a.data()) : values;
  const auto* b = args.b ? static_cast<const Bits*>(args.b.data()) : values + 1;
  auto* y = static_cast<Bits*>(args.y.data());
  const RowWalk<4> walk(
      shape, {strides_of(args.mask), strides_of(args.a), strides_of(args.b), args.y.strides()});
  const bool past = past_caches(args.y, args.a, args.b);
  parallel_for(walk.total(), past_caches_grain(kElementGrain, past),
               [&](int64_t begin, int64_t end) {
                 walk.run(begin, end, [&](const auto& at, int64_t n) {
                   run_select(SelectRun<Bits>{.mask = mask + at[0],
                                              .a = a + at[1],
                                              .b = b + at[2],
                                              .y = y + at[3],
                                              .mask_repeats = walk.repeats(0),
                                              .a_repeats = walk.repeats(1),
                                              .b_repeats = walk.repeats(2),
                                              .count = n,
                                              .past_caches = past});
                 });
                 if (past) flush_past_caches();
               });
}

}  // namespace

void select(const Select& args) {
  switch (size_of(args.y.dtype())) {
    case 8:
      return select_bits<uint64_t>(args);
    case 4:
      return select_bits<uint32_t>(args);
    case 2:
      return select_bits<uint16_t>(args);
    default:
      return select_bits<uint8_t>(args);
  }
}

}  // namespace zinc::kernels::cpu
#endif
