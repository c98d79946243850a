// Forward: a thread takes rows of one head. Backward: a thread takes heads, and adds a head's rows
// in their order. The compiler turns a row's loop into lanes.
#include "kernels/attention_sinks.h"

#include <cmath>
#include <limits>

#include "core/parallel.h"
#include "kernels/attention_problem.h"
#include "kernels/cpu/plain_elements.h"

namespace zinc::kernels::cpu {
namespace {

// log(exp(a) + exp(b))
template <class Wide>
Wide log_sum(Wide a, Wide b) {
  const Wide largest = std::max(a, b), least = std::min(a, b);
  if (std::isinf(largest) && largest < 0) return largest;
  return largest + std::log1p(std::exp(least - largest));
}

template <class Element, class Wide>
Wide product_of(const Element* out, const Element* dout, int64_t n) {
  Wide sum = 0;
  for (int64_t d = 0; d < n; ++d) sum += static_cast<Wide>(out[d]) * static_cast<Wide>(dout[d]);
  return sum;
}

}  // namespace

void attention_sinks(const AttentionSinks& args) {
  const int64_t T = args.out.dim(1), H = args.out.dim(2), D = args.out.dim(3);
  const HeadsView out(args.out);
  dispatch_float(args.out.dtype(), [&]<class Element>() {
    using Wide = AccumulatorOf<Element>;
    const auto* sinks = args.sinks.data_as<Wide>();
    auto* lse = args.lse.data_as<Wide>();
    parallel_for(args.out.dim(0) * T * H, 16, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t h = row % H, t = row / H % T, b = row / H / T;
        Wide& mine = lse[(b * H + h) * T + t];
        const Wide whole = log_sum(mine, sinks[h]);
        const Wide keep = std::isinf(whole) ? Wide(0) : std::exp(mine - whole);
        Element* const values = args.out.data_as<Element>() + out.at(b, t, h);
        for (int64_t d = 0; d < D; ++d) {
          values[d] = static_cast<Element>(keep * static_cast<Wide>(values[d]));
        }
        mine = whole;
      }
    });
  });
}

void attention_sinks_backward(const AttentionSinksBackward& args) {
  const int64_t B = args.out.dim(0), T = args.out.dim(1), H = args.out.dim(2), D = args.out.dim(3);
  const HeadsView out(args.out), dout(args.dout);
  dispatch_float(args.out.dtype(), [&]<class Element>() {
    using Wide = AccumulatorOf<Element>;
    const auto* sinks = args.sinks.data_as<Wide>();
    const auto* lse = args.lse.data_as<Wide>();
    parallel_for(H, 1, [&](int64_t begin, int64_t end) {
      for (int64_t h = begin; h < end; ++h) {
        Wide sum = 0;
        for (int64_t b = 0; b < B; ++b) {
          for (int64_t t = 0; t < T; ++t) {
            const Wide whole = lse[(b * H + h) * T + t];
            if (std::isinf(whole)) continue;
            sum -= std::exp(sinks[h] - whole) *
                   product_of<Element, Wide>(args.out.data_as<Element>() + out.at(b, t, h),
                                             args.dout.data_as<Element>() + dout.at(b, t, h), D);
          }
        }
        args.dsinks.data_as<Wide>()[h] = sum;
      }
    });
  });
}

}  // namespace zinc::kernels::cpu
