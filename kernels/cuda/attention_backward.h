// kernels/cuda/attention_backward.h: what the kernels of attention's backward share.
#pragma once

#include "kernels/cuda/attention_shape.h"

namespace zinc::kernels::cuda {

template <class T>
struct BackwardArgs {
  AttentionShape shape;
  HeadRows<const T> q, k, v, dout;
  HeadRows<T> dq, dk, dv;
  bool dq_aligned, dk_aligned, dv_aligned;
  const float* lse;
  const float* delta;  // [B, H, Tq]
};

template <class T>
BackwardArgs<T> backward_args(const AttentionProblem& p, const AttentionShape& shape,
                              const AttentionGradients& gradients, const float* delta) {
  return {.shape = shape,
          .q = rows_of<T>(p.q),
          .k = rows_of<T>(p.k),
          .v = rows_of<T>(p.v),
          .dout = rows_of<T>(gradients.dout),
          .dq = written_rows_of<T>(gradients.dq),
          .dk = written_rows_of<T>(gradients.dk),
          .dv = written_rows_of<T>(gradients.dv),
          .dq_aligned = can_read_packs(gradients.dq, p.dtype),
          .dk_aligned = can_read_packs(gradients.dk, p.dtype),
          .dv_aligned = can_read_packs(gradients.dv, p.dtype),
          .lse = static_cast<const float*>(gradients.lse),
          .delta = delta};
}

struct Query {
  int64_t b, h, i;
  Keys keys;  // none where the query sees nothing
  float lse, delta;
};

template <class T>
__device__ __forceinline__ Query query_of(const BackwardArgs<T>& args, int64_t b, int64_t h,
                                          int64_t i) {
  Query query{b, h, i, {0, 0}, 0.0f, 0.0f};
  if (i >= args.shape.Tq) return query;
  const int64_t at = (b * args.shape.H + h) * args.shape.Tq + i;
  query.lse = args.lse[at];
  query.delta = args.delta[at];
  if (query.lse != -INFINITY) query.keys = args.shape.keys_of(b, i);
  return query;
}

}  // namespace zinc::kernels::cuda
