// A thread takes rows of one head; the compiler turns a row's loop into lanes.
#include "kernels/attention_merge.h"

#include <cmath>
#include <limits>

#include "core/parallel.h"
#include "kernels/attention_problem.h"
#include "kernels/cpu/plain_elements.h"

namespace zinc::kernels::cpu {
namespace {

template <class T, class Wide>
void merge_row(const T* part, Wide part_lse, Wide* out, Wide& lse, int64_t n) {
  const Wide largest = std::max(lse, part_lse);
  if (std::isinf(largest) && largest < 0) return;  // neither sees a key
  const Wide own = std::exp(lse - largest), other = std::exp(part_lse - largest);
  const Wide sum = own + other;
  const Wide keep = own / sum, add = other / sum;
  for (int64_t d = 0; d < n; ++d) out[d] = keep * out[d] + add * static_cast<Wide>(part[d]);
  lse = largest + std::log(sum);
}

}  // namespace

void attention_merge(const AttentionMerge& args) {
  const int64_t T = args.part.dim(1), H = args.part.dim(2), D = args.part.dim(3);
  const HeadsView part(args.part), out(args.out);
  dispatch_float(args.part.dtype(), [&]<class Element>() {
    using Wide = AccumulatorOf<Element>;
    const auto* part_lse = args.part_lse.data_as<Wide>();
    auto* lse = args.lse.data_as<Wide>();
    parallel_for(args.part.dim(0) * T * H, 16, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t h = row % H, t = row / H % T, b = row / H / T;
        const int64_t at = (b * H + h) * T + t;
        merge_row(args.part.data_as<Element>() + part.at(b, t, h), part_lse[at],
                  args.out.data_as<Wide>() + out.at(b, t, h), lse[at], D);
      }
    });
  });
}

}  // namespace zinc::kernels::cpu
