#include "autograd/dims.h"
#include "autograd/functions/losses.h"
#include "autograd/functions/padding.h"
#include "autograd/functions/products.h"
#include "autograd/functions/shapes.h"
#include "autograd/operators.h"
#include "autograd/ops/cumsum.h"
#include "autograd/ops/expand.h"
#include "autograd/ops/gather.h"
#include "autograd/ops/gather_rows.h"
#include "autograd/ops/norm.h"
#include "autograd/ops/order.h"
#include "autograd/ops/reduce.h"
#include "autograd/ops/where.h"
#include "tests/autograd/gradcheck_rows.h"
#include "tests/autograd/rank.h"

namespace zinc::testing {
namespace {

using autograd::Weight;
using Operands = std::span<const Weight>;
using Function = std::function<Tensor(Operands)>;

// A row of one result.
void add_row(std::vector<GradcheckRow>& rows, std::string header, std::string name,
             std::vector<GradcheckOperand> operands, Function function) {
  rows.push_back({std::move(header), std::move(name), std::move(operands),
                  [f = std::move(function)](Operands x) { return std::vector<Tensor>{f(x)}; }});
}

void add_reduction_rows(std::vector<GradcheckRow>& rows) {
  using autograd::Dims;
  const GradcheckOperand x{.shape = {3, 2, 5}};
  const std::pair<const char*, Dims> places[] = {{"last", {-1}},
                                                 {"middle", {1}},
                                                 {"leading", {0, 1}},
                                                 {"both ends", {0, 2}},
                                                 {"all", {0, 1, 2}}};
  for (const auto& [place, dims] : places) {
    for (const bool keepdim : {false, true}) {
      const std::string name = str("along ", place, keepdim ? " kept" : "");
      const auto row = [&](const char* op, auto f) {
        add_row(rows, "reduce", str(op, " ", name), {x},
                [f, d = dims, keepdim](Operands v) { return f(v[0].tensor(), d, keepdim); });
      };
      row("sum", [](const Tensor& t, const Dims& d, bool k) { return autograd::sum(t, d, k); });
      row("mean", [](const Tensor& t, const Dims& d, bool k) { return autograd::mean(t, d, k); });
      row("max", [](const Tensor& t, const Dims& d, bool k) { return autograd::max(t, d, k); });
      row("min", [](const Tensor& t, const Dims& d, bool k) { return autograd::min(t, d, k); });
      row("var", [](const Tensor& t, const Dims& d, bool k) { return autograd::var(t, d, k); });
      row("logsumexp",
          [](const Tensor& t, const Dims& d, bool k) { return autograd::logsumexp(t, d, k); });
    }
  }
}

void add_padding_rows(std::vector<GradcheckRow>& rows) {
  add_row(rows, "padding", "mean_over_tokens", {{.shape = {3, 4, 2}}}, [](Operands v) {
    return autograd::mean_over_tokens(v[0].tensor(), ids_tensor({4, 1, 3}, {3}));
  });
  add_row(rows, "padding", "mean_over_tokens of whole rows", {{.shape = {2, 3, 2}}},
          [](Operands v) { return autograd::mean_over_tokens(v[0].tensor(), {}); });
}

void add_indexing_rows(std::vector<GradcheckRow>& rows) {
  for (const int dim : {0, 1, 2}) {
    add_row(rows, "gather", str("gather ", dim), {{.shape = {2, 2, 2}}}, [dim](Operands v) {
      const Tensor index = ids_tensor({0, 1, 1, 1, 0, 0, 1, 0}, {2, 2, 2});
      return autograd::gather(v[0].tensor(), dim, index);
    });
    add_row(rows, "gather", str("scatter_add ", dim), {{.shape = {2, 2, 2}}, {.shape = {2, 2, 2}}},
            [dim](Operands v) {
              const Tensor index = ids_tensor({0, 1, 1, 1, 0, 0, 1, 0}, {2, 2, 2});
              return autograd::scatter_add(v[0].tensor(), dim, index, v[1].tensor());
            });
    add_row(rows, "gather", str("index_select ", dim), {{.shape = {3, 4, 3}}}, [dim](Operands v) {
      return autograd::index_select(v[0].tensor(), dim, ids_tensor({2, 0, 2, 1}, {4}));
    });
    add_row(rows, "cumsum", str("along ", dim), {{.shape = {3, 4, 5}}},
            [dim](Operands v) { return autograd::cumsum(v[0].tensor(), dim); });
  }
  add_row(rows, "gather_rows", "sums onto a tensor", {{.shape = {3, 2}}, {.shape = {4, 2}}},
          [](Operands v) {
            return autograd::scatter_rows(v[0].tensor(), ids_tensor({3, 0, 3}, {3}), v[1].tensor());
          });
  add_row(rows, "order", "sort", {{.shape = {3, 7}}},
          [](Operands v) { return autograd::sort(v[0].tensor()).values; });
  add_row(rows, "order", "topk", {{.shape = {2, 3, 7}}},
          [](Operands v) { return autograd::topk(v[0].tensor(), 3).values; });
}

void add_choice_rows(std::vector<GradcheckRow>& rows) {
  const auto mask = [](const Shape& shape) {
    return Tensor::from(std::vector<uint8_t>{1, 0, 0, 1, 1, 0}, shape);
  };
  add_row(rows, "where", "two tensors", {{.shape = {2, 3}}, {.shape = {2, 3}}}, [mask](Operands v) {
    return autograd::where(mask({2, 3}), v[0].tensor(), v[1].tensor());
  });
  add_row(rows, "where", "stretched", {{.shape = {2, 1, 1}}, {.shape = {4}}}, [mask](Operands v) {
    return autograd::where(mask({2, 3, 1}), v[0].tensor(), v[1].tensor());
  });
  add_row(rows, "where", "values", {{.shape = {2, 3}}, {.shape = {3}}}, [mask](Operands v) {
    return autograd::where(mask({2, 3}), v[0].tensor(), 2.0) +
           autograd::masked_fill(v[1].tensor(), mask({2, 3}), -1.0);
  });
  for (const Shape& shape : {Shape{4}, Shape{3, 1}, Shape{2, 1, 4}, Shape{}}) {
    add_row(rows, "expand", str("of ", to_string(shape)), {{.shape = shape}}, [](Operands v) {
      return autograd::expand(v[0].tensor(), Shape{2, 3, 4});
    });
  }
  add_row(rows, "unary", "operators", {{.shape = {2, 3}, .low = 0.5, .high = 2}, {.shape = {3}}},
          [](Operands v) {
            const Tensor &a = v[0].tensor(), &b = v[1].tensor();
            return (2.0 - a) * b / 3.0 + 1.5 / a - (-b) * 0.5 + (b + 1.0) * (a - 4.0);
          });
}

void add_shape_function_rows(std::vector<GradcheckRow>& rows) {
  using autograd::Slice;
  const GradcheckOperand x{.shape = {2, 3, 4}};
  const auto row = [&](const char* name, auto f) {
    add_row(rows, "shapes", name, {x}, [f](Operands v) { return f(v[0].tensor()); });
  };
  row("at", [](const Tensor& t) { return autograd::at(t, {1, Slice{0, 2}}); });
  row("at the end", [](const Tensor& t) { return autograd::at(t, {Slice{}, -1, Slice{-3, -1}}); });
  row("unsqueeze and squeeze", [](const Tensor& t) {
    return autograd::squeeze(autograd::unsqueeze(autograd::at(t, {Slice{0, 1}}), -1), 0);
  });
  row("flatten", [](const Tensor& t) { return autograd::flatten(t, 1); });
  row("pad", [](const Tensor& t) { return autograd::pad(t, 1, 2, 1, 0.5); });
  row("flip", [](const Tensor& t) { return autograd::flip(t, 1); });
  add_row(rows, "shapes", "stack", {{.shape = {2, 3}}, {.shape = {2, 3}}}, [](Operands v) {
    return autograd::stack({v[0].tensor(), v[1].tensor()}, 1);
  });
}

void add_loss_function_rows(std::vector<GradcheckRow>& rows) {
  const GradcheckOperand logits{.shape = {2, 3, 5}, .low = -2, .high = 2};
  const auto labels = [] { return ids_tensor({4, 0, -100, 2, 1, -100}, {2, 3}); };
  const auto row = [&](const char* name, auto f) {
    add_row(rows, "losses", name, {logits}, [f](Operands v) { return f(v[0].tensor()); });
  };
  row("log_softmax", [](const Tensor& x) { return autograd::log_softmax(x); });
  row("log_softmax of the middle", [](const Tensor& x) { return autograd::log_softmax(x, 1); });
  row("nll_loss",
      [labels](const Tensor& x) { return autograd::nll_loss(autograd::log_softmax(x), labels()); });
  row("smoothed_cross_entropy",
      [labels](const Tensor& x) { return autograd::smoothed_cross_entropy(x, labels(), 0.2); });
  row("z_loss", [labels](const Tensor& x) { return autograd::z_loss(x, labels()); });
  const GradcheckOperand target{.shape = {2, 3, 5}, .low = 0, .high = 1};
  add_row(rows, "losses", "mse_loss", {logits, target},
          [](Operands v) { return autograd::mse_loss(v[0].tensor(), v[1].tensor()); });
  add_row(rows, "losses", "binary_cross_entropy_with_logits", {logits, target}, [](Operands v) {
    return autograd::binary_cross_entropy_with_logits(v[0].tensor(), v[1].tensor());
  });
}

void add_product_rows(std::vector<GradcheckRow>& rows) {
  struct Sum {
    const char* equation;
    Shape a, b;
  };
  const Sum sums[] = {
      {"ij,jk->ik", {2, 3}, {3, 4}}, {"bqhd,bkhd->bhqk", {2, 3, 2, 2}, {2, 4, 2, 2}},
      {"i,j->ij", {3}, {4}},         {"ij,ij->", {3, 4}, {3, 4}},
      {"ij,j->j", {3, 4}, {4}},      {"abc,cd->dab", {2, 3, 2}, {2, 3}}};
  for (const Sum& sum : sums) {
    add_row(rows, "products", str("einsum ", sum.equation), {{.shape = sum.a}, {.shape = sum.b}},
            [equation = sum.equation](Operands v) {
              return autograd::einsum(equation, v[0].tensor(), v[1].tensor());
            });
  }
  struct Convolution {
    const char* name;
    Shape weight;
    autograd::Conv1dOptions options;
  };
  const Convolution convolutions[] = {{"conv1d", {4, 3, 2}, {}},
                                      {"conv1d padded", {4, 3, 3}, {.padding = 2, .stride = 2}},
                                      {"conv1d dilated", {2, 3, 3}, {.padding = 1, .dilation = 2}},
                                      {"conv1d depthwise", {3, 1, 4}, {.padding = 3}}};
  for (const Convolution& c : convolutions) {
    add_row(rows, "products", c.name,
            {{.shape = {2, 3, 6}}, {.shape = c.weight}, {.shape = {c.weight[0]}}},
            [options = c.options](Operands v) {
              return autograd::conv1d(v[0].tensor(), v[1].tensor(), v[2].tensor(), options);
            });
  }
  add_row(rows, "norm", "layernorm without weights", {{.shape = {3, 5}}},
          [](Operands v) { return autograd::layernorm(v[0].tensor()); });
}

}  // namespace

void add_function_rows(std::vector<GradcheckRow>& rows) {
  add_reduction_rows(rows);
  add_padding_rows(rows);
  add_indexing_rows(rows);
  add_choice_rows(rows);
  add_shape_function_rows(rows);
  add_loss_function_rows(rows);
  add_product_rows(rows);
}

}  // namespace zinc::testing
