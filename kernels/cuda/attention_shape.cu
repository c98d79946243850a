#include "kernels/cuda/attention_shape.h"

#include <bit>

#include "kernels/cuda/random_counter.h"

namespace zinc::kernels::cuda {

AttentionShape attention_shape(const char* op, const AttentionProblem& p) {
  require(p.D <= kMaxHeadSize, op, ": CUDA kernels take head sizes up to ", kMaxHeadSize, ", not ",
          p.D);
  require(p.H <= 65535 && p.B <= 65535, op, ": CUDA kernels take up to 65535 heads and batches");
  const AttentionMask& mask = p.mask;
  const auto ints = [](const ConstView& view) { return view ? view.data_as<int32_t>() : nullptr; };
  const BlockLayout* layout = mask.layout.blocks.get();
  const int64_t layout_row = layout == nullptr ? 0 : layout->words_per_row();
  const int64_t layout_head =
      layout == nullptr || layout->heads() == 1 ? 0 : layout->blocks() * layout_row;
  const auto bias = mask.bias ? p.bias_rows(mask.bias) : AttentionProblem::BiasRows{};
  return {.B = p.B,
          .Tq = p.Tq,
          .Tk = p.Tk,
          .H = p.H,
          .G = p.G,
          .D = p.D,
          .scale = static_cast<float>(p.scale),
          .softcap = static_cast<float>(p.softcap),
          .inverse_softcap = p.softcap == 0.0 ? 0.0f : static_cast<float>(1.0 / p.softcap),
          .causal = mask.causal,
          .window = mask.window,
          .ahead = p.ahead(),
          .first_key = p.first_key(),
          .key_lengths = ints(mask.key_lengths),
          .key_begin = ints(mask.key_begin),
          .key_end = ints(mask.key_end),
          .key_begin_stride = mask.key_begin ? mask.key_begin.stride(0) : 0,
          .key_end_stride = mask.key_end ? mask.key_end.stride(0) : 0,
          .slopes = mask.alibi_slopes ? mask.alibi_slopes.data_as<float>() : nullptr,
          .bias = mask.bias ? mask.bias.data_as<float>() + bias.first : nullptr,
          .bias_batch = bias.batch,
          .bias_head = bias.head,
          .bias_row = bias.row,
          .layout = layout == nullptr ? nullptr
                                      : mask.layout.words.data_as<int32_t>() +
                                            mask.layout.first_head * layout_head,
          .layout_head = layout_head,
          .layout_row = layout_row,
          .layout_shift =
              layout == nullptr ? 0 : std::countr_zero(static_cast<uint64_t>(layout->block())),
          .dropout = p.dropout.probability,
          .keep_factor = static_cast<float>(1.0 / (1.0 - double{p.dropout.probability})),
          .dropout_key = p.dropout.key,
          .dropout_counter = counter_of(p.dropout.counter),
          .aligned = can_read_packs(p.q, p.dtype) && can_read_packs(p.k, p.dtype) &&
                     can_read_packs(p.v, p.dtype)};
}

}  // namespace zinc::kernels::cuda
