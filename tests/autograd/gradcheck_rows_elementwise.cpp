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
  using kernels::UnaryOp;
  struct Range {
    UnaryOp op;
    double low, high, gap;
  };
  const Range ranges[] = {
      {UnaryOp::neg, -1, 1, 0},     {UnaryOp::abs, -1, 1, 0.1},  {UnaryOp::square, -2, 2, 0},
      {UnaryOp::sqrt, 0.5, 2, 0},   {UnaryOp::rsqrt, 0.5, 2, 0}, {UnaryOp::reciprocal, -2, 2, 0.5},
      {UnaryOp::exp, -2, 2, 0},     {UnaryOp::log, 0.5, 3, 0},   {UnaryOp::tanh, -2, 2, 0},
      {UnaryOp::sigmoid, -3, 3, 0}, {UnaryOp::relu, -1, 1, 0.1}, {UnaryOp::silu, -3, 3, 0}};
  for (const Range& range : ranges) {
    rows.push_back(
        {"unary",
         std::string(kernels::name_of(range.op)),
         {{.shape = {3, 7}, .low = range.low, .high = range.high, .gap = range.gap}},
         [op = range.op](Operands x) { return Results{autograd::unary(op, x[0].tensor())}; }});
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
  for (const BinaryOp op :
       {BinaryOp::add, BinaryOp::sub, BinaryOp::mul, BinaryOp::div, BinaryOp::max, BinaryOp::min}) {
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
    if (op == BinaryOp::sub || op == BinaryOp::div) continue;
    rows.push_back({"binary", name + " swapped", {{.shape = {2, 5}}, {.shape = {3, 2, 5}}}, f});
  }
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
    rows.push_back({"reduce", concat("sum ", over.name), {x}, [o = over.over](Operands v) {
                      return Results{autograd::sum(v[0].tensor(), o)};
                    }});
    rows.push_back({"reduce", concat("mean ", over.name), {x}, [o = over.over](Operands v) {
                      return Results{autograd::mean(v[0].tensor(), o)};
                    }});
    rows.push_back({"reduce", concat("max ", over.name), {x}, [o = over.over](Operands v) {
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
