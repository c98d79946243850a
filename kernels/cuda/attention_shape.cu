#include "kernels/cuda/attention_shape.h"

#include "kernels/cuda/random_counter.h"

namespace zinc::kernels::cuda {

AttentionShape attention_shape(const char* op, const AttentionProblem& p) {
  require(p.D <= kMaxHeadSize, op, ": CUDA kernels take head sizes up to ", kMaxHeadSize, ", not ",
          p.D);
  require(p.H <= 65535 && p.B <= 65535, op, ": CUDA kernels take up to 65535 heads and batches");
  const AttentionMask& mask = p.mask;
  const auto ints = [](const ConstView& view) { return view ? view.data_as<int32_t>() : nullptr; };
  const auto bias_stride = [&](int d) {
    return mask.bias && mask.bias.dim(d) != 1 ? mask.bias.stride(d) : 0;
  };
  return {.B = p.B,
          .Tq = p.Tq,
          .Tk = p.Tk,
          .H = p.H,
          .G = p.G,
          .D = p.D,
          .scale = static_cast<float>(p.scale),
          .causal = mask.causal,
          .key_lengths = ints(mask.key_lengths),
          .key_begin = ints(mask.key_begin),
          .key_end = ints(mask.key_end),
          .key_begin_stride = mask.key_begin ? mask.key_begin.stride(0) : 0,
          .key_end_stride = mask.key_end ? mask.key_end.stride(0) : 0,
          .slopes = mask.alibi_slopes ? mask.alibi_slopes.data_as<float>() : nullptr,
          .bias = mask.bias ? mask.bias.data_as<float>() : nullptr,
          .bias_batch = bias_stride(0),
          .bias_head = bias_stride(1),
          .bias_row = mask.bias ? mask.bias.stride(2) : 0,
          .dropout = p.dropout.probability,
          .keep_factor = static_cast<float>(1.0 / (1.0 - double{p.dropout.probability})),
          .dropout_key = p.dropout.key,
          .dropout_counter = counter_of(p.dropout.counter),
          .aligned = can_read_packs(p.q, p.dtype) && can_read_packs(p.k, p.dtype) &&
                     can_read_packs(p.v, p.dtype)};
}

}  // namespace zinc::kernels::cuda
