#include "bench/kernels/all.h"

namespace zinc::bench {

// One declaration and one call per op, in alphabetical order.
void add_accumulate_benches(Registry& registry);
void add_argmax_benches(Registry& registry);
void add_attention_benches(Registry& registry);
void add_attention_merge_benches(Registry& registry);
void add_attention_sinks_benches(Registry& registry);
void add_binary_benches(Registry& registry);
void add_chunk_tree_sum_benches(Registry& registry);
void add_compare_benches(Registry& registry);
void add_concat_benches(Registry& registry);
void add_copy_benches(Registry& registry);
void add_cross_entropy_benches(Registry& registry);
void add_cumsum_benches(Registry& registry);
void add_decode_benches(Registry& registry);
void add_dropout_benches(Registry& registry);
void add_element_update_benches(Registry& registry);
void add_embedding_benches(Registry& registry);
void add_fill_benches(Registry& registry);
void add_finite_norm_benches(Registry& registry);
void add_flat_index_benches(Registry& registry);
void add_fp8_encode_benches(Registry& registry);
void add_gather_rows_benches(Registry& registry);
void add_gelu_benches(Registry& registry);
void add_gemm_benches(Registry& registry);
void add_layernorm_benches(Registry& registry);
void add_linear_cross_entropy_benches(Registry& registry);
void add_muon_transform_benches(Registry& registry);
void add_norm_rate_benches(Registry& registry);
void add_permute_benches(Registry& registry);
void add_reduce_benches(Registry& registry);
void add_residual_norm_benches(Registry& registry);
void add_rmsnorm_benches(Registry& registry);
void add_rotary_benches(Registry& registry);
void add_scale_benches(Registry& registry);
void add_select_benches(Registry& registry);
void add_signs_benches(Registry& registry);
void add_softmax_benches(Registry& registry);
void add_sort_benches(Registry& registry);
void add_step_verdict_benches(Registry& registry);
void add_swiglu_benches(Registry& registry);
void add_tree_sum_benches(Registry& registry);
void add_unary_benches(Registry& registry);

Registry kernel_benches(Extent extent, const ModelShape& model, const FreeShape& given) {
  Registry registry(extent, model, given);
  add_accumulate_benches(registry);
  add_argmax_benches(registry);
  add_attention_benches(registry);
  add_attention_merge_benches(registry);
  add_attention_sinks_benches(registry);
  add_binary_benches(registry);
  add_chunk_tree_sum_benches(registry);
  add_compare_benches(registry);
  add_concat_benches(registry);
  add_copy_benches(registry);
  add_cross_entropy_benches(registry);
  add_cumsum_benches(registry);
  add_decode_benches(registry);
  add_dropout_benches(registry);
  add_element_update_benches(registry);
  add_embedding_benches(registry);
  add_fill_benches(registry);
  add_finite_norm_benches(registry);
  add_flat_index_benches(registry);
  add_fp8_encode_benches(registry);
  add_gather_rows_benches(registry);
  add_gelu_benches(registry);
  add_gemm_benches(registry);
  add_layernorm_benches(registry);
  add_linear_cross_entropy_benches(registry);
  add_muon_transform_benches(registry);
  add_norm_rate_benches(registry);
  add_permute_benches(registry);
  add_reduce_benches(registry);
  add_residual_norm_benches(registry);
  add_rmsnorm_benches(registry);
  add_rotary_benches(registry);
  add_scale_benches(registry);
  add_select_benches(registry);
  add_signs_benches(registry);
  add_softmax_benches(registry);
  add_sort_benches(registry);
  add_step_verdict_benches(registry);
  add_swiglu_benches(registry);
  add_tree_sum_benches(registry);
  add_unary_benches(registry);
  return registry;
}

}  // namespace zinc::bench
