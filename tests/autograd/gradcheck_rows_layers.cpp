#include "autograd/loss_scope.h"
#include "autograd/ops/cross_entropy.h"
#include "autograd/ops/embedding.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/linear_cross_entropy.h"
#include "autograd/ops/matmul.h"
#include "autograd/ops/norm.h"
#include "autograd/ops/split.h"
#include "tests/autograd/gradcheck_rows.h"
#include "tests/autograd/rank.h"

namespace zinc::testing {
namespace {

using autograd::Weight;
using Operands = std::span<const Weight>;
using Results = std::vector<Tensor>;

void add_matmul_rows(std::vector<GradcheckRow>& rows) {
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      const autograd::MatmulOptions options{.transpose_a = ta, .transpose_b = tb, .alpha = 0.7};
      const auto f = [options](Operands x) {
        return Results{autograd::matmul(x[0].tensor(), x[1].tensor(), options)};
      };
      const std::string name = str(ta ? "At" : "A", tb ? " Bt" : " B");
      const Shape a = ta ? Shape{5, 3} : Shape{3, 5};
      const Shape b = tb ? Shape{4, 5} : Shape{5, 4};
      rows.push_back({"matmul", name, {{.shape = a}, {.shape = b}}, f});
      rows.push_back({"matmul",
                      name + " batched",
                      {{.shape = {2, a[0], a[1]}}, {.shape = {2, b[0], b[1]}}},
                      f});
      rows.push_back({"matmul",
                      name + " rank 4",
                      {{.shape = {2, 3, a[0], a[1]}}, {.shape = {2, 3, b[0], b[1]}}},
                      f});
      if (ta) continue;
      rows.push_back(
          {"matmul", name + " one matrix for all", {{.shape = {2, a[0], a[1]}}, {.shape = b}}, f});
    }
  }
}

void add_linear_rows(std::vector<GradcheckRow>& rows) {
  using autograd::Activation;
  using autograd::WeightLayout;
  struct Named {
    Activation activation;
    const char* name;
  };
  const Named activations[] = {{Activation::none, "plain"},
                               {Activation::gelu_tanh, "gelu tanh"},
                               {Activation::gelu_erf, "gelu erf"},
                               {Activation::silu, "silu"}};
  for (const WeightLayout layout : {WeightLayout::out_in, WeightLayout::in_out}) {
    const bool out_in = layout == WeightLayout::out_in;
    for (const auto& [activation, activation_name] : activations) {
      const autograd::LinearOptions options{.layout = layout, .activation = activation};
      const GradcheckOperand x{.shape = {2, 3, 5}};
      const GradcheckOperand w{.shape = out_in ? Shape{7, 5} : Shape{5, 7}, .is_weight = true};
      const std::string name = str(out_in ? "out_in " : "in_out ", activation_name);
      rows.push_back({"linear", name, {x, w}, [options](Operands v) {
                        return Results{autograd::linear(v[0].tensor(), v[1], {}, options)};
                      }});
      rows.push_back({"linear",
                      name + " bias",
                      {x, w, {.shape = {7}, .is_weight = true}},
                      [options](Operands v) {
                        return Results{autograd::linear(v[0].tensor(), v[1], v[2], options)};
                      }});
    }
  }
  rows.push_back({"linear",
                  "of a strided view",
                  {{.shape = {2, 3, 8}}, {.shape = {4, 5}, .is_weight = true}},
                  [](Operands v) {
                    return Results{
                        autograd::linear(autograd::narrow(v[0].tensor(), 2, 2, 5), v[1])};
                  }});
  for (const WeightLayout layout : {WeightLayout::out_in, WeightLayout::in_out}) {
    const bool out_in = layout == WeightLayout::out_in;
    rows.push_back({"linear",
                    str(out_in ? "out_in" : "in_out", " onto a sum"),
                    {{.shape = {2, 3, 5}},
                     {.shape = out_in ? Shape{7, 5} : Shape{5, 7}, .is_weight = true},
                     {.shape = {7}, .is_weight = true},
                     {.shape = {2, 3, 7}}},
                    [layout](Operands v) {
                      return Results{autograd::linear(v[0].tensor(), v[1], v[2],
                                                      {.layout = layout, .addend = v[3].tensor()})};
                    }});
  }
  // The sum is read twice, and its gradient arrives from both sides.
  rows.push_back({"linear",
                  "onto its own input",
                  {{.shape = {3, 5}}, {.shape = {5, 5}, .is_weight = true}},
                  [](Operands v) {
                    const Tensor y =
                        autograd::linear(v[0].tensor(), v[1], {}, {.addend = v[0].tensor()});
                    return Results{autograd::linear(y, v[1], {}, {.addend = y})};
                  }});
  rows.push_back({"linear",
                  "one weight twice",
                  {{.shape = {3, 5}}, {.shape = {5, 5}, .is_weight = true}},
                  [](Operands v) {
                    return Results{autograd::linear(autograd::linear(v[0].tensor(), v[1]), v[1])};
                  }});
}

void add_norm_rows(std::vector<GradcheckRow>& rows) {
  const GradcheckOperand x{.shape = {2, 3, 7}};
  const GradcheckOperand gamma{.shape = {7}, .low = 0.5, .high = 1.5, .is_weight = true};
  const GradcheckOperand beta{.shape = {7}, .is_weight = true};
  rows.push_back({"norm", "layernorm", {x, gamma, beta}, [](Operands v) {
                    return Results{autograd::layernorm(v[0].tensor(), v[1], v[2])};
                  }});
  rows.push_back({"norm", "layernorm without beta", {x, gamma}, [](Operands v) {
                    return Results{autograd::layernorm(v[0].tensor(), v[1])};
                  }});
  rows.push_back({"norm", "rmsnorm", {x, gamma}, [](Operands v) {
                    return Results{autograd::rmsnorm(v[0].tensor(), v[1])};
                  }});
  rows.push_back({"norm", "residual_layernorm", {x, x, gamma, beta}, [](Operands v) {
                    const auto [sum, normed] =
                        autograd::residual_layernorm(v[0].tensor(), v[1].tensor(), v[2], v[3]);
                    return Results{sum, normed};
                  }});
  rows.push_back({"norm", "residual_rmsnorm", {x, x, gamma}, [](Operands v) {
                    const auto [sum, normed] =
                        autograd::residual_rmsnorm(v[0].tensor(), v[1].tensor(), v[2]);
                    return Results{sum, normed};
                  }});
  rows.push_back({"norm", "residual_rmsnorm, sum not used", {x, x, gamma}, [](Operands v) {
                    return Results{
                        autograd::residual_rmsnorm(v[0].tensor(), v[1].tensor(), v[2]).normed};
                  }});
}

void add_embedding_rows(std::vector<GradcheckRow>& rows) {
  using autograd::EmbeddingOptions;
  const GradcheckOperand table{.shape = {5, 3}, .is_weight = true};
  const GradcheckOperand places{.shape = {6, 3}, .is_weight = true};
  const auto ids = [] { return ids_tensor({4, 0, 4, 1, 1, 4}, Shape{2, 3}); };
  rows.push_back({"embedding", "tokens", {table}, [ids](Operands v) {
                    return Results{autograd::embedding(ids(), v[0])};
                  }});
  rows.push_back({"embedding", "tokens and places from 2", {table, places}, [ids](Operands v) {
                    return Results{autograd::embedding(ids(), v[0], v[1], {.start = 2})};
                  }});
  rows.push_back({"embedding", "rows that are elsewhere", {table}, [](Operands v) {
                    return Results{
                        autograd::embedding(ids_tensor({4, -1, 4, 1, -1, 4}, Shape{2, 3}), v[0], {},
                                            {.allows_absent = true})};
                  }});
  rows.push_back(
      {"embedding", "given positions", {table, places}, [ids](Operands v) {
         return Results{autograd::embedding(
             ids(), v[0], v[1], {.positions = ids_tensor({5, 0, 5, 1, 2, 2}, Shape{2, 3})})};
       }});
}

// Rows 1 and 4 of six have no label.
Tensor labels() { return ids_tensor({0, -100, 6, 3, -100, 2}, Shape{2, 3}, DType::i64); }

void add_loss_rows(std::vector<GradcheckRow>& rows) {
  rows.push_back(
      {"cross_entropy",
       "ignored labels",
       {{.shape = {2, 3, 7}, .low = -2, .high = 2}},
       [](Operands v) { return Results{autograd::cross_entropy(v[0].tensor(), labels())}; }});
  const GradcheckOperand hidden{.shape = {2, 3, 5}};
  const GradcheckOperand weight{.shape = {7, 5}, .is_weight = true};
  const GradcheckOperand bias{.shape = {7}, .is_weight = true};
  rows.push_back({"linear_cross_entropy", "head", {hidden, weight}, [](Operands v) {
                    return Results{autograd::linear_cross_entropy(v[0].tensor(), v[1], labels())};
                  }});
  rows.push_back({"linear_cross_entropy", "head with bias", {hidden, weight, bias}, [](Operands v) {
                    return Results{
                        autograd::linear_cross_entropy(v[0].tensor(), v[1], labels(), v[2])};
                  }});
  rows.push_back({"cross_entropy",
                  "smoothed labels",
                  {{.shape = {2, 3, 7}, .low = -2, .high = 2}},
                  [](Operands v) {
                    const autograd::LossScope smoothing({.label_smoothing = 0.2});
                    return Results{autograd::cross_entropy(v[0].tensor(), labels())};
                  }});
  rows.push_back(
      {"linear_cross_entropy", "smoothed labels", {hidden, weight, bias}, [](Operands v) {
         const autograd::LossScope smoothing({.label_smoothing = 0.2});
         return Results{autograd::linear_cross_entropy(v[0].tensor(), v[1], labels(), v[2])};
       }});
}

}  // namespace

void add_layer_rows(std::vector<GradcheckRow>& rows) {
  add_matmul_rows(rows);
  add_linear_rows(rows);
  add_norm_rows(rows);
  add_embedding_rows(rows);
  add_loss_rows(rows);
}

}  // namespace zinc::testing
