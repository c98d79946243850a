#include "kernels/compare.h"

#include "kernels/cpu/element_blocks.h"
#include "kernels/cpu/plain_elements.h"

namespace zinc::kernels::cpu {
namespace {

template <class In, class Number>
void compare_plain(const Compare& args, const ConstView& b) {
  map_plain<uint8_t, In>(args.y, std::array<ConstView, 2>{args.a, b}, [&](In left, In right) {
    return holds(args.op, PlainNumber<Number>(left), PlainNumber<Number>(right)) ? 1 : 0;
  });
}

}  // namespace

void compare(const Compare& args) {
  // b_value as an array of one element.
  const auto one = static_cast<float>(args.b_value);
  const auto whole = is_float(args.a.dtype()) ? 0 : static_cast<int64_t>(args.b_value);
  const auto narrow = static_cast<int32_t>(whole);
  const auto operand = [&](const auto* value) {
    using T = std::remove_cvref_t<decltype(*value)>;
    return args.b ? args.b : ConstView(value, kDTypeOf<T>, Shape{}, args.a.device());
  };
  switch (args.a.dtype()) {
    case DType::f64:
      return compare_plain<double, double>(args, operand(&args.b_value));
    case DType::i64:
      return compare_plain<int64_t, int64_t>(args, operand(&whole));
    case DType::i32:
      return compare_plain<int32_t, int64_t>(args, operand(&narrow));
    default:
      return map_blocks(mask_block(args.op), args.y, {args.a, operand(&one)});
  }
}

}  // namespace zinc::kernels::cpu
