// nn/tensor_ranks.h: ranks that each hold a slice of a layer (Shoeybi et al. 2019, "Megatron-LM").
//
// A layer says how it is sliced: LinearOptions::split, EmbeddingOptions::sliced. After
// Module::share_over() a rank holds its slices only. The input of a sliced layer is the same on
// every rank. So is the output of a layer with Split::rows. So a module of columns, an element-wise
// function and rows needs no change:
//
//   zinc::nn::Linear up{*this, "up", {.in = C, .out = 4 * C, .split = zinc::nn::Split::columns}};
//   zinc::nn::Linear down{*this, "down", {.in = 4 * C, .out = C, .split = zinc::nn::Split::rows}};
//   ...  down.forward(gelu(up.forward(x)))
//
// A module that counts features between the two, such as heads, divides them by
// Module::num_tensor_ranks().
//
// Note [Shared tokens]
// Outside of columns and rows all ranks do the same: norms, residual sums, dropout. While
// shares_tokens(), each rank does so for its own part of the tokens (Korthikanti et al. 2022,
// "Reducing Activation Recomputation"). Columns then take the tokens of all ranks, rows give each
// rank its own: the bytes that travel are those of the sums. A parameter that is applied to a
// rank's own tokens gets only a part of its gradient on each rank: apply own_weight() of it.
//
// Note [Ranks with fixed slices]
// A sum over ranks has other bits with another number of ranks. With fixes_slices(), layers are cut
// into a number of slices that does not depend on the number of ranks (Note [Fixed slices] in
// parallel/linear_slices.h). Linear layers and heads then sum over slices themselves. Calls that
// sum over ranks throw ConfigError.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "autograd/linear_slices.h"
#include "autograd/ops/linear.h"
#include "autograd/parameter.h"
#include "autograd/weight.h"
#include "tensor/tensor.h"

namespace zinc::nn {

class TensorRanks {
 public:
  using InRows = autograd::LinearOptions::InRows;

  virtual ~TensorRanks() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Returns x, which is the same on every rank, as input for slices. In backward each slice gives a
  // part of x's gradient; the parts are summed over ranks.
  Tensor spread(const Tensor& x);
  // The same where all parts of an element are zero but one, so that the order does not matter.
  virtual Tensor spread_exactly(const Tensor& x) = 0;
  // The sum of the parts of all ranks, on every rank. Backward leaves the gradient as it is. Parts
  // are added in f32 over a fixed tree of ranks.
  Tensor sum(const Tensor& part);
  virtual Tensor sum_exactly(const Tensor& part) = 0;  // likewise
  // Sums `sum` over ranks in place, f32 (f64), without a gradient.
  virtual void add_up(const Tensor& sum) = 0;
  // The same for shared tokens. x [B, T / size(), ...] -> [B, T, ...], and back. Each is the
  // gradient of the other, with sums as in sum(). gather_tokens() keeps x, and gathers again where
  // backward needs the result. Rank r has part r of each of token_runs(B, T) parts of a sequence.
  // Throw ConfigError where T does not divide.
  virtual int64_t token_runs(int64_t /*B*/, int64_t /*T*/) const { return 1; }
  virtual Tensor gather_tokens(const Tensor& x) = 0;
  virtual Tensor sum_tokens(const Tensor& part) = 0;
  // The parts of all ranks side by side in the last dimension: [..., whole], the same on every
  // rank. Backward takes this rank's part of the gradient, which is the same on every rank too;
  // where ranks use different columns, spread() the result. Parts are those of TensorSlice::of().
  virtual Tensor join(const Tensor& part, int64_t whole) = 0;
  // See autograd::ClassShare::combine.
  virtual void combine_losses(const Tensor& lse, const Tensor& loss, const Tensor& labels) = 0;

  // The input of sliced layers, for all tokens. x: the same on all ranks, or shared tokens.
  Tensor enter(const Tensor& x) { return shares_tokens_ ? gather_tokens(x) : spread(x); }
  // The output behind rows of slices, where all parts of an element are zero but one.
  Tensor leave_exactly(const Tensor& part) {
    return shares_tokens_ ? sum_tokens(part) : sum_exactly(part);
  }
  // The sum or transfer at the ends of a linear layer's slices, beside the layer's product.
  // `product` makes the result, once, with autograd::LinearOptions::in_rows as given (empty: all
  // rows at once). enter_product() does enter(x) and returns the input that the product took, for
  // further layers; leave_product() sums behind rows of slices and returns the layer's output.
  virtual Tensor enter_product(
      const Tensor& x, const std::function<void(const Tensor& all, InRows in_rows)>& product) = 0;
  virtual Tensor leave_product(const std::function<Tensor(InRows in_rows)>& product) = 0;

  bool shares_tokens() const { return shares_tokens_; }
  void share_tokens(bool on) { shares_tokens_ = on; }

  // Layers are cut into `count` slices, of which each rank has count / size().
  void fix_slices(int count) { fixed_slices_ = count; }
  bool fixes_slices() const { return fixed_slices_ > 0; }
  int own_slices() const { return fixes_slices() ? fixed_slices_ / size() : 1; }
  // This rank's part of features in `sections`, cut into slices. Null if they are not fixed.
  virtual std::shared_ptr<const autograd::LinearSlices> slices_of(
      const std::vector<int64_t>& sections, bool of_inputs) = 0;

 private:
  void require_free_order() const;

  bool shares_tokens_ = false;
  int fixed_slices_ = 0;
};

// ranks->enter(x), for layers with LinearOptions::spread; x without ranks, or where those layers
// sum over fixed slices themselves.
Tensor enter(TensorRanks* ranks, const Tensor& x);
// A weight that is applied to own tokens. `ranks` may be null.
autograd::Weight own_weight(TensorRanks* ranks, autograd::Parameter& weight);
autograd::Weight own_weight(TensorRanks* ranks, autograd::Parameter* weight);  // null: absent
// This rank's tokens of x [B, T, ...]; x if tokens are not shared.
Tensor own_tokens(const TensorRanks* ranks, const Tensor& x);
// This rank's rows of a table [T, C] of positions, for B sequences.
Tensor own_tokens_of(const TensorRanks* ranks, const Tensor& rows, int64_t B);

// A model that can share tokens between tensor ranks.
class SharesTokens {
 public:
  virtual ~SharesTokens() = default;
  // Makes loss() share tokens from now on, if there are tensor ranks. Outputs and generation do
  // not.
  virtual void share_tokens(bool on) = 0;
};

}  // namespace zinc::nn
