#include "nn/attention.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "autograd/ops/cast.h"
#include "autograd/ops/concat.h"
#include "autograd/ops/split.h"
#include "core/error.h"
#include "core/philox.h"
#include "nn/kv_cache.h"
#include "nn/sequence_ranks.h"
#include "nn/tensor_ranks.h"

namespace zinc::nn {
namespace {

int64_t kv_heads_of(const SelfAttentionOptions& options) {
  return options.kv_heads > 0 ? options.kv_heads : options.heads;
}

// All of q, k and v of a token.
int64_t qkv_width(const SelfAttentionOptions& options) {
  return options.features +
         2 * kv_heads_of(options) * (options.features / std::max<int64_t>(options.heads, 1));
}

LinearOptions projection(const SelfAttentionOptions& options, int64_t out, bool bias,
                         const std::optional<autograd::Initializer>& initializer) {
  return {.in = options.features,
          .out = out,
          .bias = bias,
          .layout = options.layout,
          .initializer = initializer};
}

LinearOptions qkv_projection(const SelfAttentionOptions& options) {
  LinearOptions made = projection(options, qkv_width(options), options.bias, options.initializer);
  const int64_t kv = (made.out - options.features) / 2;
  made.split = Split::columns;
  made.sections = {options.features, kv, kv};
  return made;
}

LinearOptions output_projection(const SelfAttentionOptions& options) {
  LinearOptions made =
      projection(options, options.features, options.output_bias.value_or(options.bias),
                 options.output_initializer);
  made.split = Split::rows;
  return made;
}

}  // namespace

SelfAttention::SelfAttention(Module& parent, std::string name, const SelfAttentionOptions& options)
    : Module(parent, std::move(name)),
      options_(options),
      site_(hash_text(path())),
      c_attn_(*this, options.qkv_name, qkv_projection(options)),
      c_proj_(*this, options.output_name, output_projection(options)),
      resid_dropout_(*this, "resid_dropout", options.residual_dropout) {
  require(options.heads > 0 && options.features % options.heads == 0, path(), ": ",
          options.features, " features cannot be split into ", options.heads, " heads");
  require(options.heads % kv_heads_of(options) == 0, path(), ": ", options.heads,
          " heads cannot share ", kv_heads_of(options), " heads of keys and values");
}

void require_shared_heads(const TensorRanks* ranks, std::string_view path, int64_t heads,
                          int64_t kv_heads) {
  if (ranks == nullptr) return;
  const int64_t size = ranks->size();
  require(heads % size == 0 && (kv_heads % size == 0 || size % kv_heads == 0), path, ": ", heads,
          " heads with ", kv_heads, " heads of keys and values cannot be shared by ", size,
          " ranks; take a zinc.mesh.tensor that divides both, or the heads alone if it is a "
          "multiple of those of keys and values");
}

Tensor own_kv_heads(TensorRanks* ranks, const Tensor& columns, int64_t kv_heads, int64_t head) {
  if (ranks == nullptr || kv_heads % ranks->size() == 0) return columns;
  const Tensor whole = ranks->spread(ranks->join(columns, kv_heads * head));
  const int64_t first = ranks->rank() * kv_heads / ranks->size() * head;
  return autograd::contiguous(autograd::narrow(whole, -1, first, head));
}

int64_t start_of(const AttentionScope& scope) {
  return scope.cache == nullptr ? scope.start : scope.cache->length();
}

bool keeps_queries(const AttentionScope& scope) {
  return scope.sequence != nullptr && keeps_queries(scope.sequence->exchange());
}

bool gets_heads(const AttentionScope& scope) {
  return scope.sequence != nullptr && !keeps_queries(scope);
}

uint64_t site_of_heads(const TensorRanks* ranks, uint64_t site) {
  return ranks == nullptr ? site : combine_bits(site, static_cast<uint64_t>(ranks->rank()));
}

void SelfAttention::on_share() {
  require_shared_heads(tensor_ranks(), path(), options_.heads, kv_heads_of(options_));
}

Tensor SelfAttention::forward(const Tensor& x, const AttentionScope& scope,
                              const PositionTerms& positions) {
  const int64_t head = options_.features / options_.heads;
  const LocalHeads slice =
      LocalHeads::of(path(), options_.heads, kv_heads_of(options_), tensor_ranks(), nullptr);
  const int64_t width = slice.heads * head, kv_width = slice.kv_heads * head;
  const auto [heads, kv_heads, first_head] =
      LocalHeads::of(path(), options_.heads, kv_heads_of(options_), tensor_ranks(), scope.sequence);
  Tensor qkv = c_attn_.forward(x);
  if (qkv.dim(-1) != width + 2 * kv_width) {
    const int64_t part = (qkv.dim(-1) - width) / 2;
    std::vector<Tensor> parts = autograd::split(qkv, {width, part, part}, -1);
    for (size_t i = 1; i < parts.size(); ++i) {
      parts[i] = own_kv_heads(tensor_ranks(), parts[i], kv_heads_of(options_), head);
    }
    qkv = autograd::concat(parts, -1);
  }
  if (positions.rotary.cos.defined()) {
    qkv = autograd::rotary(std::move(qkv), positions.rotary,
                           {.head_size = head,
                            .num_heads = (width + kv_width) / head,
                            .layout = options_.rotary_layout,
                            .positions = scope.positions,
                            .start = start_of(scope)});
  }
  if (gets_heads(scope)) qkv = scope.sequence->to_heads(qkv, {width, kv_width, kv_width});
  Tensor slopes = positions.alibi_slopes;
  if (slopes.defined()) slopes = slopes.narrow_view(0, first_head, heads);
  const autograd::AttentionOptions how{.num_heads = heads,
                                       .num_kv_heads = kv_heads,
                                       .causal = options_.causal,
                                       .window = positions.window,
                                       .key_lengths = scope.lengths,
                                       .key_begin = scope.document_starts,
                                       .alibi_slopes = slopes,
                                       .dropout = is_training() ? options_.attention_dropout : 0.0,
                                       .site = site_of_heads(tensor_ranks(), site_)};
  Tensor mixed;
  if (keeps_queries(scope)) {
    const std::vector<Tensor> parts = autograd::split(qkv, {width, 2 * kv_width}, 2);
    mixed = attend_to_all(*scope.sequence, parts[0], parts[1], how);
  } else if (scope.cache == nullptr) {
    mixed = autograd::attention(qkv, how);
  } else {
    const KvCache::Seen seen =
        scope.cache->extend(qkv.narrow_view(2, width, kv_width),
                            qkv.narrow_view(2, width + kv_width, kv_width), kv_heads);
    mixed = autograd::attention(qkv.narrow_view(2, 0, width), seen.keys, seen.values, how);
  }
  if (gets_heads(scope)) mixed = scope.sequence->to_tokens(mixed);
  return resid_dropout_.forward(c_proj_.forward(mixed));
}

}  // namespace zinc::nn
