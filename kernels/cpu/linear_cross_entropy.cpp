#include "kernels/cpu/linear_cross_entropy.h"

#include <algorithm>
#include <array>

#include "core/parallel.h"
#include "kernels/cpu/block_convert.h"
#include "kernels/cpu/gemm_epilogue.h"

namespace zinc::kernels::cpu {

CrossEntropyRows rows_of(const HeadRows& args) {
  return {.rows = args.logits.dim(0),
          .classes = args.logits.dim(1),
          .dtype = args.logits.dtype(),
          .logits = args.logits.data(),
          .logits_stride = args.logits.stride(0),
          .labels = args.labels,
          .lse = args.lse.data(),
          .lse_out = args.lse_out.data(),
          .row_loss = args.row_loss,
          .dlogits = args.dlogits.data(),
          .dlogits_dtype = args.dlogits.dtype(),
          .dlogits_stride = args.dlogits ? args.dlogits.stride(0) : 0,
          .scale = args.scale,
          .factor = args.factor.data(),
          .smoothing = args.smoothing,
          .slice = args.slice};
}

void head_rows(const HeadRows& args) { cross_entropy_rows(args.op, rows_of(args)); }

void sum_columns(const ConstView& x, const View& sum, bool accumulate) {
  constexpr int64_t kColumns = 512;
  const int64_t cols = x.dim(1);
  dispatch_float(x.dtype(), [&]<class T>() {
    using Sum = AccumulatorOf<T>;
    const T* from = x.data_as<T>();
    dispatch_float(sum.dtype(), [&]<class U>() {
      U* to = sum.data_as<U>();
      parallel_for(cols, kColumns, [&](int64_t begin, int64_t end) {
        std::array<Sum, kColumns> total{};
        for (int64_t r = 0; r < x.dim(0); ++r) {
          const T* row = from + r * x.stride(0) + begin;
          for (int64_t c = 0; c < end - begin; ++c) {
            total[static_cast<size_t>(c)] += static_cast<Sum>(row[c]);
          }
        }
        for (int64_t c = begin; c < end; ++c) {
          const auto before = static_cast<AccumulatorOf<U>>(to[c]);
          const Sum old = accumulate ? static_cast<Sum>(before) : Sum{0};
          to[c] = U(static_cast<AccumulatorOf<U>>(old + total[static_cast<size_t>(c - begin)]));
        }
      });
    });
  });
}

void round_sum(const ConstView& sum, const View& target, bool accumulate) {
  constexpr int64_t kElements = 1 << 15;
  const float* from = sum.data_as<float>();
  auto* to = static_cast<char*>(target.data());
  const int64_t size = size_of(target.dtype());
  parallel_for(sum.numel(), kElements, [&](int64_t begin, int64_t end) {
    finish_tile({.rows = 1,
                 .cols = end - begin,
                 .slices = from + begin,
                 .stride = end - begin,
                 .beta = accumulate ? 1.0f : 0.0f,
                 .addend = to + begin * size,
                 .addend_stride = end - begin,
                 .dtype = target.dtype(),
                 .c = to + begin * size,
                 .c_stride = end - begin});
  });
}

}  // namespace zinc::kernels::cpu
