#include "tests/autograd/tiny_model.h"

#include "autograd/ops/attention.h"
#include "autograd/ops/cross_entropy.h"
#include "autograd/ops/dropout.h"
#include "autograd/ops/embedding.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/norm.h"
#include "autograd/recompute.h"
#include "tests/autograd/rank.h"

namespace zinc::testing {

using autograd::Initializer;
using autograd::Parameter;

namespace {

constexpr int64_t kB = 2, kT = 6, kC = 24, kV = 11, kHeads = 4;

}  // namespace

struct TinyModel::Block {
  std::string name;
  Parameter &ln_1_w, &ln_1_b, &attn_w, &attn_b, &proj_w, &proj_b;
  Parameter &ln_2_w, &ln_2_b, &up_w, &up_b, &down_w, &down_b;
};

Parameter& TinyModel::add(const std::string& name, const Shape& shape,
                          const Initializer& initializer) {
  parameters_.push_back(std::make_unique<Parameter>(name, shape, initializer, options_.dtype));
  if (options_.source != nullptr) parameters_.back()->set_source(*options_.source);
  return *parameters_.back();
}

TinyModel::TinyModel(const TinyModelOptions& options) : options_(options) {
  const Initializer normal = Initializer::normal(0.3);
  const Initializer small = Initializer::normal(0.05);
  const Initializer near_one = Initializer::normal(0.1, 1.0);
  add("wte", Shape{kV, kC}, normal);
  add("wpe", Shape{kT, kC}, normal);
  for (int i = 0; i < 2; ++i) {
    const std::string h = str("h.", i, ".");
    Parameter& ln_1_w = add(h + "ln_1.weight", Shape{kC}, near_one);
    Parameter& ln_1_b = add(h + "ln_1.bias", Shape{kC}, small);
    Parameter& attn_w = add(h + "attn.weight", Shape{3 * kC, kC}, normal);
    Parameter& attn_b = add(h + "attn.bias", Shape{3 * kC}, small);
    Parameter& proj_w = add(h + "proj.weight", Shape{kC, kC}, normal);
    Parameter& proj_b = add(h + "proj.bias", Shape{kC}, small);
    Parameter& ln_2_w = add(h + "ln_2.weight", Shape{kC}, near_one);
    Parameter& ln_2_b = add(h + "ln_2.bias", Shape{kC}, small);
    Parameter& up_w = add(h + "up.weight", Shape{4 * kC, kC}, normal);
    Parameter& up_b = add(h + "up.bias", Shape{4 * kC}, small);
    Parameter& down_w = add(h + "down.weight", Shape{kC, 4 * kC}, normal);
    Parameter& down_b = add(h + "down.bias", Shape{kC}, small);
    blocks_.push_back(
        std::make_shared<Block>(Block{h, ln_1_w, ln_1_b, attn_w, attn_b, proj_w, proj_b, ln_2_w,
                                      ln_2_b, up_w, up_b, down_w, down_b}));
  }
  add("ln_f.weight", Shape{kC}, near_one);
  add("ln_f.bias", Shape{kC}, small);
}

std::vector<Parameter*> TinyModel::parameters() {
  std::vector<Parameter*> result;
  for (const auto& parameter : parameters_) result.push_back(parameter.get());
  return result;
}

Tensor TinyModel::run_mlp(const Block& block, const Tensor& x) const {
  const Tensor h =
      autograd::linear(x, block.up_w, block.up_b, {.activation = autograd::Activation::gelu_tanh});
  return autograd::linear(h, block.down_w, block.down_b);
}

Tensor TinyModel::run_block(const Block& block, const Tensor& x) const {
  const autograd::DropoutOptions first{options_.dropout, hash_text(block.name + "resid_1")};
  const autograd::DropoutOptions second{options_.dropout, hash_text(block.name + "resid_2")};
  const Tensor normed = autograd::layernorm(x, block.ln_1_w, block.ln_1_b);
  const Tensor qkv = autograd::linear(normed, block.attn_w, block.attn_b);
  const Tensor attended = autograd::attention(
      qkv,
      {.num_heads = kHeads, .dropout = options_.dropout, .site = hash_text(block.name + "attn")});
  const Tensor projected =
      autograd::dropout(autograd::linear(attended, block.proj_w, block.proj_b), first);
  const auto [stream, after] =
      autograd::residual_layernorm(projected, x, block.ln_2_w, block.ln_2_b);
  const auto mlp = [this, &block](const Tensor& h) { return run_mlp(block, h); };
  const Tensor out = options_.recompute_inner ? autograd::recompute(mlp, after) : mlp(after);
  return autograd::dropout_residual(out, stream, second);
}

Tensor TinyModel::loss() {
  std::vector<int64_t> tokens;
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < kB * kT; ++i) {
    tokens.push_back((i * 7 + 3) % kV);
    labels.push_back(i % 5 == 4 ? autograd::kIgnoredLabel : (i * 3 + 1) % kV);
  }
  Tensor x =
      autograd::embedding(ids_tensor(tokens, Shape{kB, kT}), *parameters_[0], *parameters_[1]);
  for (const auto& block : blocks_) {
    const auto run = [this, block](const Tensor& h) { return run_block(*block, h); };
    x = options_.recompute_blocks ? autograd::recompute(run, x) : run(x);
  }
  const size_t n = parameters_.size();
  x = autograd::layernorm(x, *parameters_[n - 2], *parameters_[n - 1]);
  return autograd::linear_cross_entropy(
      x, *parameters_[0], ids_tensor(labels, Shape{kB, kT}, DType::i64), {}, options_.head);
}

}  // namespace zinc::testing
