#include <cmath>

#include "autograd/ops/binary.h"
#include "autograd/ops/dropout.h"
#include "autograd/ops/gelu.h"
#include "autograd/ops/reduce.h"
#include "autograd/ops/scale.h"
#include "autograd/ops/softmax.h"
#include "autograd/ops/split.h"
#include "autograd/ops/swiglu.h"
#include "autograd/ops/unary.h"
#include "tests/autograd/gradcheck_rows.h"

namespace zinc::testing {
namespace {

using autograd::Weight;
using Operands = std::span<const Weight>;
using Results = std::vector<Tensor>;

void add_unary_rows(std::vector<GradcheckRow>& rows) {
  // Every line of kernels/elementwise_table.h.
  using kernels::UnaryOp;
  struct Line {
    UnaryOp op;
    double low, high, gap, p, q;
  };
  const Line lines[] = {
#define ZINC_ROW(name, value, dx, ...) {UnaryOp::name, __VA_ARGS__},
      ZINC_UNARY_OPS(ZINC_ROW)
#undef ZINC_ROW
  };
  for (const Line& line : lines) {
    rows.push_back({"unary",
                    std::string(kernels::name_of(line.op)),
                    {{.shape = {3, 7}, .low = line.low, .high = line.high, .gap = line.gap}},
                    [line](Operands x) {
                      return Results{autograd::unary(line.op, x[0].tensor(), line.p, line.q)};
                    }});
  }
  for (const double exponent : {2.0, 0.5, -0.5, -1.0, 3.0}) {
    rows.push_back(
        {"unary",
         str(exponent < 0 ? "pow minus " : "pow ", std::abs(exponent)),
         {{.shape = {9}, .low = 0.5, .high = 2}},
         [exponent](Operands x) { return Results{autograd::pow(x[0].tensor(), exponent)}; }});
  }
  rows.push_back({"unary", "of a strided view", {{.shape = {3, 7}}}, [](Operands x) {
                    return Results{autograd::tanh(autograd::narrow(x[0].tensor(), 1, 2, 4))};
                  }});
  for (const auto kind : {autograd::GeluKind::tanh, autograd::GeluKind::erf}) {
    rows.push_back({"gelu",
                    kind == autograd::GeluKind::tanh ? "tanh" : "erf",
                    {{.shape = {5, 3}, .low = -3, .high = 3}},
                    [kind](Operands x) { return Results{autograd::gelu(x[0].tensor(), kind)}; }});
  }
  rows.push_back({"scale", "by a constant", {{.shape = {2, 5}}}, [](Operands x) {
                    return Results{autograd::scale(x[0].tensor(), -1.7)};
                  }});
}

void add_binary_rows(std::vector<GradcheckRow>& rows) {
  using kernels::BinaryOp;
  const BinaryOp ops[] = {
#define ZINC_ROW(name, ...) BinaryOp::name,
      ZINC_BINARY_OPS(ZINC_ROW)
#undef ZINC_ROW
  };
  for (const BinaryOp op : ops) {
    const std::string name(kernels::name_of(op));
    // Operands of max and min stay apart by the ranges: kinks lie where they are equal.
    const double low = op == BinaryOp::div ? 0.5 : -1.0;
    const auto f = [op](Operands x) {
      return Results{autograd::binary(op, x[0].tensor(), x[1].tensor())};
    };
    const GradcheckOperand left{.shape = {3, 2, 5}};
    rows.push_back({"binary", name, {left, {.shape = {3, 2, 5}, .low = low, .high = 1.25}}, f});
    rows.push_back(
        {"binary", name + " broadcast", {left, {.shape = {5}, .low = low, .high = 1.3}}, f});
    rows.push_back(
        {"binary", name + " one element", {left, {.shape = {1}, .low = 0.51, .high = 0.52}}, f});
    const GradcheckOperand right{.shape = {3, 2, 5}, .low = low, .high = 1.25};
    rows.push_back({"binary", name + " swapped", {{.shape = {2, 5}}, right}, f});
    // Repeated along the last dimension, along both sides, by leading ones.
    rows.push_back(
        {"binary", name + " of a row's value", {left, {.shape = {3, 2, 1}, .low = low}}, f});
    rows.push_back({"binary",
                    name + " outer",
                    {{.shape = {3, 1, 5}}, {.shape = {2, 1}, .low = low, .high = 1.1}},
                    f});
    rows.push_back({"binary", name + " leading one", {left, {.shape = {1, 2, 5}, .low = low}}, f});
  }
  rows.push_back({"binary",
                  "mul of a strided view with a row",
                  {{.shape = {3, 2, 8}}, {.shape = {5}}},
                  [](Operands x) {
                    const Tensor part = autograd::narrow(x[0].tensor(), 2, 1, 5);
                    return Results{autograd::mul(part, x[1].tensor())};
                  }});
  rows.push_back({"binary", "mul of a tensor with itself", {{.shape = {4, 3}}}, [](Operands x) {
                    return Results{autograd::mul(x[0].tensor(), x[0].tensor())};
                  }});
  rows.push_back({"binary", "add of a tensor to itself", {{.shape = {4, 3}}}, [](Operands x) {
                    return Results{autograd::add(x[0].tensor(), x[0].tensor())};
                  }});
}

void add_reduce_rows(std::vector<GradcheckRow>& rows) {
  using autograd::ReduceOver;
  struct Over {
    ReduceOver over;
    const char* name;
  };
  for (const Over& over : {Over{ReduceOver::last, "last"}, Over{ReduceOver::leading, "leading"},
                           Over{ReduceOver::all, "all"}}) {
    const GradcheckOperand x{.shape = {3, 2, 5}};
    rows.push_back({"reduce", str("sum ", over.name), {x}, [o = over.over](Operands v) {
                      return Results{autograd::sum(v[0].tensor(), o)};
                    }});
    rows.push_back({"reduce", str("mean ", over.name), {x}, [o = over.over](Operands v) {
                      return Results{autograd::mean(v[0].tensor(), o)};
                    }});
    rows.push_back({"reduce", str("max ", over.name), {x}, [o = over.over](Operands v) {
                      return Results{autograd::max(v[0].tensor(), o)};
                    }});
  }
  rows.push_back({"softmax", "rows", {{.shape = {2, 3, 7}, .low = -2, .high = 2}}, [](Operands x) {
                    return Results{autograd::softmax(x[0].tensor())};
                  }});
}

void add_dropout_rows(std::vector<GradcheckRow>& rows) {
  const autograd::DropoutOptions options{.probability = 0.4, .site = 17};
  rows.push_back({"dropout", "alone", {{.shape = {5, 7}}}, [options](Operands x) {
                    return Results{autograd::dropout(x[0].tensor(), options)};
                  }});
  rows.push_back(
      {"dropout", "residual", {{.shape = {5, 7}}, {.shape = {5, 7}}}, [options](Operands x) {
         return Results{autograd::dropout_residual(x[0].tensor(), x[1].tensor(), options)};
       }});
}

}  // namespace

void add_elementwise_rows(std::vector<GradcheckRow>& rows) {
  add_unary_rows(rows);
  add_binary_rows(rows);
  add_reduce_rows(rows);
  add_dropout_rows(rows);
  rows.push_back(
      {"swiglu",
       "two tensors",
       {{.shape = {3, 5}, .low = -2, .high = 2}, {.shape = {3, 5}}},
       [](Operands x) { return Results{autograd::swiglu(x[0].tensor(), x[1].tensor())}; }});
  rows.push_back(
      {"swiglu", "packed", {{.shape = {2, 3, 10}, .low = -2, .high = 2}}, [](Operands x) {
         return Results{autograd::swiglu(x[0].tensor())};
       }});
}

}  // namespace zinc::testing
