#include "kernels/norm_rate.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>

#include "kernels/element_update.h"

namespace zinc::kernels::cpu {
namespace {

template <class A>
void write_values(const NormRate& args) {
  double lr = args.lr, weight_decay = args.weight_decay;
  uint64_t counter = args.counter_high;
  if (args.given) {
    const float* given = args.given.data_as<float>();
    std::array<uint64_t, 3> bits{};
    for (size_t i = 0; i < bits.size(); ++i) {
      bits[i] = uint64_t{std::bit_cast<uint32_t>(given[2 * i + 1])} << 32 |
                std::bit_cast<uint32_t>(given[2 * i]);
    }
    lr = std::bit_cast<double>(bits[0]);
    weight_decay = std::bit_cast<double>(bits[1]);
    counter = bits[2];
  }
  const double rate = norm_rate_of(args.sums.data_as<double>(), args.sums.numel() == 2,
                                   static_cast<double>(args.numel), args.least, args.most, lr,
                                   [](double x) { return std::sqrt(x); });
  A* values = args.values.data_as<A>();
  values[0] = static_cast<A>(-rate);
  values[1] = static_cast<A>(-rate * weight_decay);
  for (const int half : {0, 1}) {
    values[2 + half] =
        static_cast<A>(std::bit_cast<float>(static_cast<uint32_t>(counter >> 32 * half)));
  }
}

}  // namespace

void norm_rate(const NormRate& args) {
  if (args.values.dtype() == DType::f64) return write_values<double>(args);
  write_values<float>(args);
}

}  // namespace zinc::kernels::cpu
