#include "kernels/select.h"

#include "kernels/broadcast.h"
#include "kernels/cpu/row_walk.h"
#include "kernels/fill.h"

namespace zinc::kernels::cpu {
namespace {

// Where both sides are the same for a whole row, or lie beside it: indices are i or 0.
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
  const int64_t mask_step = walk.repeats(0) ? 0 : 1;
  const int64_t a_step = walk.repeats(1) ? 0 : 1;
  const int64_t b_step = walk.repeats(2) ? 0 : 1;
  parallel_for(walk.total(), kElementGrain, [&](int64_t begin, int64_t end) {
    walk.run(begin, end, [&](const auto& at, int64_t n) {
      for (int64_t i = 0; i < n; ++i) {
        // Both are read, so that the choice is no jump.
        const Bits left = a[at[1] + i * a_step];
        const Bits right = b[at[2] + i * b_step];
        y[at[3] + i] = mask[at[0] + i * mask_step] != 0 ? left : right;
      }
    });
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
