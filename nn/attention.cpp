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
  const int64_t slices = int64_t{ranks->own_slices()} * ranks->size();
  require(!ranks->fixes_slices() || (heads % slices == 0 && kv_heads % slices == 0), path, ": ",
          heads, " heads with ", kv_heads, " heads of keys and values cannot be cut into ", slices,
          " slices, as \"determinism\": \"mesh\" asks; take \"world\"");
  const int64_t size = ranks->size();
  require(heads % size == 0 && (kv_heads % size == 0 || size % kv_heads == 0), path, ": ", heads,
          " heads with ", kv_heads, " heads of keys and values cannot be shared by ", size,
          " ranks; take a zinc.mesh.tensor that divides both, or the heads alone if it is a "
          "multiple of those of keys and values");
}

Tensor own_kv_heads(TensorRanks* ranks, Tensor columns, int64_t kv_heads, int64_t head) {
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

autograd::AttentionOptions of_rank(const TensorRanks* ranks, autograd::AttentionOptions how) {
  if (ranks != nullptr) how.site = combine_bits(how.site, static_cast<uint64_t>(ranks->rank()));
  return how;
}

namespace {

// The heads of slice `i` of `count`, which lie side by side in the last dimension.
Tensor heads_of(const Tensor& x, int i, int count) {
  if (!x.defined()) return x;
  const int64_t width = x.dim(-1) / count;
  return autograd::narrow(x, -1, i * width, width);
}

// The same for terms whose dimension `dim` counts heads; an extent of one is for all heads.
Tensor terms_of(const Tensor& terms, int dim, int i, int count) {
  if (!terms.defined() || terms.dim(dim) == 1) return terms;
  const int64_t heads = terms.dim(dim) / count;
  return autograd::narrow(terms, dim, i * heads, heads);
}

}  // namespace

Tensor attend_own_heads(const TensorRanks* ranks, const Tensor& q, const Tensor& k, const Tensor& v,
                        const autograd::AttentionOptions& how) {
  const int count = ranks == nullptr ? 1 : ranks->own_slices();
  autograd::AttentionOptions own = of_rank(ranks, how);
  if (count == 1 || how.dropout == 0.0) {
    return k.defined() ? autograd::attention(q, k, v, own) : autograd::attention(q, own);
  }
  std::vector<Tensor> of{q, k, v};
  if (!k.defined()) {
    const int64_t kv_heads = how.num_kv_heads > 0 ? how.num_kv_heads : how.num_heads;
    const int64_t head = q.dim(-1) / (how.num_heads + 2 * kv_heads);
    of = autograd::split(q, {how.num_heads * head, kv_heads * head, kv_heads * head}, -1);
  }
  own.num_heads /= count;
  own.num_kv_heads /= count;
  std::vector<Tensor> mixed;
  for (int i = 0; i < count; ++i) {
    own.site = combine_bits(how.site, static_cast<uint64_t>(ranks->rank() * count + i));
    own.alibi_slopes = terms_of(how.alibi_slopes, 0, i, count);
    own.bias = how.bias.defined() && how.bias.rank() == 4 ? terms_of(how.bias, 1, i, count)
                                                          : terms_of(how.bias, 0, i, count);
    mixed.push_back(autograd::attention(heads_of(of[0], i, count), heads_of(of[1], i, count),
                                        heads_of(of[2], i, count), own));
  }
  return autograd::concat(mixed, -1);
}

Tensor mix_heads(std::string_view path, const PackedHeads& of, TensorRanks* ranks, Tensor qkv,
                 const AttentionScope& scope, const PositionTerms& positions) {
  const int64_t head = of.head_dim;
  const LocalHeads slice = LocalHeads::of(path, of.heads, of.kv_heads, ranks, nullptr);
  const int64_t width = slice.heads * head, kv_width = slice.kv_heads * head;
  const auto [heads, kv_heads, first_head] =
      LocalHeads::of(path, of.heads, of.kv_heads, ranks, scope.sequence);
  if (qkv.dim(-1) != width + 2 * kv_width) {
    const int64_t part = (qkv.dim(-1) - width) / 2;
    std::vector<Tensor> parts = autograd::split(qkv, {width, part, part}, -1);
    for (size_t i = 1; i < parts.size(); ++i) {
      parts[i] = own_kv_heads(ranks, std::move(parts[i]), of.kv_heads, head);
    }
    qkv = autograd::concat(parts, -1);
  }
  if (positions.rotary.cos.defined()) {
    qkv = autograd::rotary(std::move(qkv), positions.rotary,
                           {.head_size = head,
                            .num_heads = (width + kv_width) / head,
                            .layout = of.rotary_layout,
                            .positions = scope.positions,
                            .start = start_of(scope)});
  }
  if (gets_heads(scope)) qkv = scope.sequence->to_heads(qkv, {width, kv_width, kv_width});
  Tensor slopes = positions.alibi_slopes;
  if (slopes.defined()) slopes = slopes.narrow_view(0, first_head, heads);
  const autograd::AttentionOptions how{.num_heads = heads,
                                       .num_kv_heads = kv_heads,
                                       .causal = of.causal,
                                       .window = positions.window,
                                       .key_lengths = scope.lengths,
                                       .key_begin = scope.document_starts,
                                       .alibi_slopes = slopes,
                                       .dropout = of.dropout,
                                       .site = of.site};
  Tensor mixed;
  if (keeps_queries(scope)) {
    const std::vector<Tensor> parts = autograd::split(qkv, {width, 2 * kv_width}, 2);
    mixed = attend_to_all(*scope.sequence, parts[0], parts[1], of_rank(ranks, how));
  } else if (scope.cache == nullptr) {
    mixed = attend_own_heads(ranks, qkv, {}, {}, how);
  } else {
    const KvCache::Seen seen =
        scope.cache->extend(qkv.narrow_view(2, width, kv_width),
                            qkv.narrow_view(2, width + kv_width, kv_width), kv_heads);
    mixed = attend_own_heads(ranks, qkv.narrow_view(2, 0, width), seen.keys, seen.values, how);
  }
  return gets_heads(scope) ? scope.sequence->to_tokens(mixed) : mixed;
}

void SelfAttention::on_share() {
  require_shared_heads(tensor_ranks(), path(), options_.heads, kv_heads_of(options_));
}

Tensor SelfAttention::forward(const Tensor& x, const AttentionScope& scope,
                              const PositionTerms& positions) {
  return resid_dropout_.forward(c_proj_.forward(mixed(x, scope, positions)));
}

ResidualSum SelfAttention::forward_onto(const Tensor& residual, const Tensor& x,
                                        const AttentionScope& scope,
                                        const PositionTerms& positions) {
  return c_proj_.forward_onto(residual, mixed(x, scope, positions), &resid_dropout_);
}

Tensor SelfAttention::mixed(const Tensor& x, const AttentionScope& scope,
                            const PositionTerms& positions) {
  const PackedHeads of{.heads = options_.heads,
                       .kv_heads = kv_heads_of(options_),
                       .head_dim = options_.features / options_.heads,
                       .causal = options_.causal,
                       .rotary_layout = options_.rotary_layout,
                       .dropout = is_training() ? options_.attention_dropout : 0.0,
                       .site = site_};
  return mix_heads(path(), of, tensor_ranks(), c_attn_.forward(x), scope, positions);
}

}  // namespace zinc::nn
