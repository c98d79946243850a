#include "nn/attention/attend.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "autograd/ops/cast.h"
#include "autograd/ops/concat.h"
#include "autograd/ops/reshape.h"
#include "autograd/ops/split.h"
#include "autograd/ops/value.h"
#include "core/error.h"
#include "core/philox.h"
#include "nn/attention/kv_cache.h"
#include "nn/attention/sparse_attention.h"
#include "nn/norm.h"
#include "nn/sequence_ranks.h"
#include "nn/tensor_ranks.h"

namespace zinc::nn {
namespace {

// The keys or values of the heads that this rank's queries look at, [B, T, n * head]. `columns`:
// this rank's columns of the projection. Where there are more ranks than such heads, each rank has
// a part of one head: the parts are joined, and several ranks use the same head.
Tensor own_kv_heads(TensorRanks* ranks, Tensor columns, int64_t kv_heads, int64_t head) {
  if (ranks == nullptr || kv_heads % ranks->size() == 0) return columns;
  const Tensor whole = ranks->spread(ranks->join(columns, kv_heads * head));
  const int64_t first = ranks->rank() * kv_heads / ranks->size() * head;
  return autograd::contiguous(autograd::narrow(whole, -1, first, head));
}

// The site of this rank's own heads, where each rank has one slice.
autograd::AttentionOptions of_rank(const TensorRanks* ranks, autograd::AttentionOptions how) {
  if (ranks != nullptr) how.site = combine_bits(how.site, static_cast<uint64_t>(ranks->rank()));
  return how;
}

// The heads of slice `i` of `count` that lie side by side in the last dimension.
Tensor heads_of(const Tensor& x, int i, int count) {
  if (!x.defined()) return x;
  const int64_t width = x.dim(-1) / count;
  return autograd::narrow(x, -1, i * width, width);
}

// The same for terms whose dimension `dim` counts heads; an extent of 1 serves all heads.
Tensor terms_of(const Tensor& terms, int dim, int i, int count) {
  if (!terms.defined() || terms.dim(dim) == 1) return terms;
  const int64_t heads = terms.dim(dim) / count;
  return autograd::narrow(terms, dim, i * heads, heads);
}

int head_dim_of(const Tensor& bias) { return bias.defined() && bias.rank() == 4 ? 1 : 0; }

// autograd::attention() of this rank's heads. Dropout differs between slices of heads; `how.site`
// is the site of the whole layer. k and v are absent where q holds all three.
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
    own.sinks = terms_of(how.sinks, 0, i, count);
    own.layout_head = how.layout_head + i * own.num_heads;
    own.bias = terms_of(how.bias, head_dim_of(how.bias), i, count);
    mixed.push_back(autograd::attention(heads_of(of[0], i, count), heads_of(of[1], i, count),
                                        heads_of(of[2], i, count), own));
  }
  return autograd::concat(mixed, -1);
}

// [..., heads * from] -> [..., heads * to]: features are added to each head, zeros, or taken away.
Tensor resized_heads(const Tensor& x, int64_t from, int64_t to) {
  const int64_t heads = x.dim(-1) / from;
  const Tensor each =
      autograd::reshape(autograd::contiguous(x), Shape{x.dim(0), x.dim(1), heads, from});
  const Tensor resized =
      to < from
          ? autograd::contiguous(autograd::narrow(each, -1, 0, to))
          : autograd::concat(
                {each, Tensor::zeros(Shape{x.dim(0), x.dim(1), heads, to - from}, x.dtype())}, -1);
  return autograd::reshape(resized, Shape{x.dim(0), x.dim(1), heads * to});
}

// One call of attend().
class Attending {
 public:
  Attending(const Module& layer, const AttentionForm& form, const AttentionScope& scope)
      : form_(form),
        scope_(scope),
        ranks_(layer.tensor_ranks()),
        slice_(LocalHeads::of(layer.path(), form.heads, form.num_kv_heads(), ranks_, nullptr)),
        local_(LocalHeads::of(layer.path(), form.heads, form.num_kv_heads(), ranks_,
                              scope.sequence)) {}

  Tensor run(std::string_view path, HeadRows rows, const PositionTerms& positions) {
    if (!rows.k.defined() && !stays_packed()) rows = unpacked(std::move(rows.q));
    rows = with_own_keys(std::move(rows));
    if (form_.query_norm != nullptr) rows.q = normed(std::move(rows.q), *form_.query_norm);
    if (form_.key_norm != nullptr) rows.k = normed(std::move(rows.k), *form_.key_norm);
    if (positions.rotary.cos.defined()) rows = turned(std::move(rows), positions.rotary);
    rows = in_equal_heads(std::move(rows));
    if (gets_heads(scope_)) rows = exchanged(std::move(rows));
    const autograd::AttentionOptions how = options(path, positions);
    Tensor mixed = keeps_queries(scope_)     ? with_all_tokens(std::move(rows), how)
                   : scope_.cache == nullptr ? attend_own_heads(ranks_, rows.q, rows.k, rows.v, how)
                                             : with_cache(rows, how);
    if (gets_heads(scope_)) mixed = scope_.sequence->to_tokens(mixed);
    return in_value_heads(std::move(mixed));
  }

  Tensor across(std::string_view path, const Tensor& q, Tensor keys, Tensor values) {
    const int64_t groups = form_.num_kv_heads();
    keys = own_kv_heads(ranks_, std::move(keys), groups, form_.head_dim);
    values = own_kv_heads(ranks_, std::move(values), groups, form_.value_features());
    HeadRows rows = in_equal_heads({.q = q, .k = std::move(keys), .v = std::move(values)});
    autograd::AttentionOptions how = options(path, {});
    how.causal = false;
    how.layout = nullptr;
    how.key_lengths = scope_.source_lengths;
    how.key_begin = {};
    return in_value_heads(attend_own_heads(ranks_, rows.q, rows.k, rows.v, how));
  }

 private:
  bool has_equal_heads() const { return form_.value_features() == form_.head_dim; }
  // Whether q, k and v can stay side by side.
  bool stays_packed() const {
    return has_equal_heads() && form_.query_norm == nullptr && form_.key_norm == nullptr;
  }
  int64_t width() const { return slice_.heads * form_.head_dim; }
  int64_t key_width() const { return slice_.kv_heads * form_.head_dim; }

  HeadRows unpacked(const Tensor& qkv) const {
    const int64_t rest = qkv.dim(-1) - width();
    const int64_t keys = rest * form_.head_dim / (form_.head_dim + form_.value_features());
    std::vector<Tensor> parts = autograd::split(qkv, {width(), keys, rest - keys}, -1);
    return {.q = parts[0], .k = parts[1], .v = parts[2]};
  }

  HeadRows with_own_keys(HeadRows rows) const {
    const int64_t groups = form_.num_kv_heads(), head = form_.head_dim;
    if (rows.k.defined()) {
      rows.k = own_kv_heads(ranks_, std::move(rows.k), groups, head);
      rows.v = own_kv_heads(ranks_, std::move(rows.v), groups, form_.value_features());
      return rows;
    }
    if (rows.q.dim(-1) == width() + 2 * key_width()) return rows;
    const int64_t part = (rows.q.dim(-1) - width()) / 2;
    std::vector<Tensor> parts = autograd::split(rows.q, {width(), part, part}, -1);
    for (size_t i = 1; i < parts.size(); ++i) {
      parts[i] = own_kv_heads(ranks_, std::move(parts[i]), groups, head);
    }
    return {.q = autograd::concat(parts, -1)};
  }

  Tensor normed(Tensor rows, RMSNorm& norm) const {
    const Shape flat = rows.shape();
    const Shape heads{flat[0], flat[1], flat[2] / form_.head_dim, form_.head_dim};
    return autograd::reshape(norm.forward(autograd::reshape(autograd::contiguous(rows), heads)),
                             flat);
  }

  HeadRows turned(HeadRows rows, const autograd::RotaryTable& table) const {
    const auto turn = [&](Tensor x, int64_t heads) {
      return autograd::rotary(std::move(x), table,
                              {.head_size = form_.head_dim,
                               .num_heads = heads,
                               .layout = form_.rotary_layout,
                               .positions = scope_.positions,
                               .start = start_of(scope_)});
    };
    if (!rows.k.defined()) return {.q = turn(std::move(rows.q), slice_.heads + slice_.kv_heads)};
    rows.q = turn(std::move(rows.q), slice_.heads);
    rows.k = turn(std::move(rows.k), slice_.kv_heads);
    return rows;
  }

  // Kernels take heads of one size: the smaller ones get zeros behind their features.
  HeadRows in_equal_heads(HeadRows rows) const {
    if (has_equal_heads()) return rows;
    const int64_t keys = form_.head_dim, values = form_.value_features();
    if (values < keys) {
      rows.v = resized_heads(rows.v, values, keys);
    } else {
      rows.q = resized_heads(rows.q, keys, values);
      rows.k = resized_heads(rows.k, keys, values);
    }
    return rows;
  }
  Tensor in_value_heads(Tensor mixed) const {
    if (form_.value_features() >= form_.head_dim) return mixed;
    return resized_heads(mixed, form_.head_dim, form_.value_features());
  }

  HeadRows exchanged(HeadRows rows) const {
    if (!rows.k.defined()) {
      rows.q = scope_.sequence->to_heads(rows.q, {width(), key_width(), key_width()});
      return rows;
    }
    for (Tensor* x : {&rows.q, &rows.k, &rows.v}) {
      *x = scope_.sequence->to_heads(*x, {x->dim(2)});
    }
    return rows;
  }

  autograd::AttentionOptions options(std::string_view path, const PositionTerms& positions) const {
    require(!positions.bias.defined() || !keeps_queries(scope_), path,
            ": ranks that keep their queries cannot add a bias to the scores; take "
            "zinc.sequence_exchange \"heads\"");
    autograd::AttentionOptions how{.num_heads = local_.heads,
                                   .num_kv_heads = local_.kv_heads,
                                   .causal = form_.causal,
                                   .window = positions.window,
                                   .scale = form_.scale,
                                   .softcap = form_.softcap,
                                   .key_lengths = scope_.lengths,
                                   .key_begin = scope_.document_starts,
                                   .dropout = form_.dropout,
                                   .site = form_.site};
    if (how.scale == 0.0 && !has_equal_heads()) {
      how.scale = 1.0 / std::sqrt(static_cast<double>(form_.head_dim));
    }
    if (positions.alibi_slopes.defined()) {
      how.alibi_slopes = positions.alibi_slopes.narrow_view(0, local_.first, local_.heads);
    }
    if (positions.bias.defined()) how.bias = own_terms(positions.bias);
    if (form_.sinks != nullptr) how.sinks = own_sinks();
    if (form_.layout != nullptr) {
      how.layout = form_.layout->blocks();
      how.layout_words = form_.layout->words();
      how.layout_head = local_.first;
    }
    return how;
  }

  // The part of this rank's heads of a bias of all heads.
  Tensor own_terms(const Tensor& bias) const {
    const int dim = head_dim_of(bias);
    if (local_.heads == form_.heads || bias.dim(dim) == 1) return bias;
    return autograd::narrow(bias, dim, local_.first, local_.heads);
  }

  // The parameter has the heads of this rank's slice.
  Tensor own_sinks() const {
    const Tensor mine = autograd::value(*form_.sinks);
    const Tensor wide = mine.dtype() == DType::f64 ? mine : autograd::cast(mine, DType::f32);
    if (wide.dim(0) == local_.heads) return wide;
    const int64_t first = local_.first - slice_.first;
    return autograd::contiguous(autograd::narrow(wide, 0, first, local_.heads));
  }

  Tensor with_all_tokens(HeadRows rows, const autograd::AttentionOptions& how) const {
    if (!rows.k.defined()) {
      const std::vector<Tensor> parts = autograd::split(rows.q, {width(), 2 * key_width()}, 2);
      return attend_to_all(*scope_.sequence, parts[0], parts[1], of_rank(ranks_, how));
    }
    const Tensor all = autograd::concat({rows.k, rows.v}, 2);
    return attend_to_all(*scope_.sequence, rows.q, all, of_rank(ranks_, how));
  }

  Tensor with_cache(const HeadRows& rows, const autograd::AttentionOptions& how) const {
    const bool packed = !rows.k.defined();
    const Tensor keys = packed ? rows.q.narrow_view(2, width(), key_width()) : rows.k;
    const Tensor values =
        packed ? rows.q.narrow_view(2, width() + key_width(), key_width()) : rows.v;
    const KvCache::Seen seen = scope_.cache->extend(keys, values, local_.kv_heads);
    const Tensor queries = packed ? rows.q.narrow_view(2, 0, width()) : rows.q;
    return attend_own_heads(ranks_, queries, seen.keys, seen.values, how);
  }

  const AttentionForm& form_;
  const AttentionScope& scope_;
  TensorRanks* ranks_;
  LocalHeads slice_;  // this tensor rank's
  LocalHeads local_;  // of them, those that this rank's attention works on
};

// Throws InvalidArgument if `ranks` cannot share so many heads. Their number must divide `heads`,
// and must divide `kv_heads` or be a multiple of it. `path`: of the layer, for the message.
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

const AttentionForm& checked(const AttentionForm& form, std::string_view path) {
  require(form.heads > 0 && form.head_dim > 0, path, ": attention needs heads and head_dim, not ",
          form.heads, " and ", form.head_dim);
  require(form.heads % form.num_kv_heads() == 0, path, ": ", form.heads, " heads cannot share ",
          form.num_kv_heads(), " heads of keys and values");
  const int64_t heads = form.layout == nullptr ? 1 : form.layout->blocks()->heads();
  require(heads == 1 || heads == form.heads, path, ": ", form.heads,
          " heads cannot take a layout of ", heads, "; make one of 1 or of ", form.heads);
  return form;
}

}  // namespace

int64_t start_of(const AttentionScope& scope) {
  return scope.cache == nullptr ? scope.start : scope.cache->length();
}

bool keeps_queries(const AttentionScope& scope) {
  return scope.sequence != nullptr && keeps_queries(scope.sequence->exchange());
}

bool gets_heads(const AttentionScope& scope) {
  return scope.sequence != nullptr && !keeps_queries(scope);
}

Tensor attend(const Module& layer, const AttentionForm& form, HeadRows rows,
              const AttentionScope& scope, const PositionTerms& positions) {
  return Attending(layer, form, scope).run(layer.path(), std::move(rows), positions);
}

Tensor attend_across(const Module& layer, const AttentionForm& form, const Tensor& q,
                     const SourceRows& source, const AttentionScope& scope) {
  Attending attending(layer, form, scope);
  if (scope.cache == nullptr) {
    auto [keys, values] = source();
    return attending.across(layer.path(), q, std::move(keys), std::move(values));
  }
  if (!scope.cache->has_source()) {
    auto [keys, values] = source();
    scope.cache->add_source(keys, values);
  }
  const KvCache::Seen& seen = scope.cache->source();
  return attending.across(layer.path(), q, seen.keys, seen.values);
}

AttentionLayer::AttentionLayer(Module& parent, std::string name, const AttentionForm& form)
    : Module(parent, std::move(name)), form_(checked(form, path())) {
  form_.site = hash_text(path());
}

void AttentionLayer::norm_heads(RMSNorm& queries, RMSNorm& keys) {
  form_.query_norm = &queries;
  form_.key_norm = &keys;
}

void AttentionLayer::add_sinks(Parameter& sinks) {
  sinks.slice_over_ranks({form_.heads});
  form_.sinks = &sinks;
}

void AttentionLayer::take_layout(std::shared_ptr<AttentionLayout> layout) {
  AttentionForm form = form_;
  form.layout = std::move(layout);
  form_ = checked(form, path());
}

AttentionForm AttentionLayer::now() const {
  AttentionForm form = form_;
  if (!is_training()) form.dropout = 0.0;
  return form;
}

Tensor AttentionLayer::attend(HeadRows rows, const AttentionScope& scope,
                              const PositionTerms& positions) {
  return nn::attend(*this, now(), std::move(rows), scope, positions);
}

Tensor AttentionLayer::attend_across(const Tensor& q, const SourceRows& source,
                                     const AttentionScope& scope) {
  return nn::attend_across(*this, now(), q, source, scope);
}

void AttentionLayer::on_share() {
  require_shared_heads(tensor_ranks(), path(), form_.heads, form_.num_kv_heads());
}

LinearOptions packed_heads_projection(int64_t features, const AttentionForm& form) {
  const int64_t q = form.heads * form.head_dim, k = form.num_kv_heads() * form.head_dim,
                v = form.num_kv_heads() * form.value_features();
  return {.in = features, .out = q + k + v, .split = Split::columns, .sections = {q, k, v}};
}

}  // namespace zinc::nn
