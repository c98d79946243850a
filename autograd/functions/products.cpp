#include "autograd/functions/products.h"

#include <algorithm>
#include <string>
#include <vector>

#include "autograd/functions/shapes.h"
#include "autograd/operators.h"
#include "autograd/ops/cast.h"
#include "autograd/ops/concat.h"
#include "autograd/ops/gather.h"
#include "autograd/ops/matmul.h"
#include "autograd/ops/permute.h"
#include "autograd/ops/reduce.h"
#include "autograd/ops/reshape.h"
#include "autograd/ops/split.h"

namespace zinc::autograd {
namespace {

bool has(std::string_view letters, char letter) {
  return letters.find(letter) != std::string_view::npos;
}

struct Equation {
  std::string_view a, b, result;
};

Equation parse(std::string_view equation) {
  const size_t comma = equation.find(',');
  const size_t arrow = equation.find("->");
  require(comma != std::string_view::npos && arrow != std::string_view::npos && comma < arrow,
          "einsum: '", equation, "' is not of the form \"ij,jk->ik\"");
  const Equation parsed{equation.substr(0, comma), equation.substr(comma + 1, arrow - comma - 1),
                        equation.substr(arrow + 2)};
  for (const std::string_view letters : {parsed.a, parsed.b, parsed.result}) {
    for (size_t i = 0; i < letters.size(); ++i) {
      require(letters[i] >= 'a' && letters[i] <= 'z', "einsum: '", equation,
              "': a dimension is a letter from a to z");
      require(!has(letters.substr(i + 1), letters[i]), "einsum: '", equation, "': ", letters[i],
              " stands twice in one tensor");
    }
  }
  for (const char letter : parsed.result) {
    require(has(parsed.a, letter) || has(parsed.b, letter), "einsum: '", equation, "': ", letter,
            " of the result is in neither tensor");
  }
  return parsed;
}

// x with its dimensions in the order of `letters`; those that it names and the letters lack are
// summed.
Tensor ordered(Tensor x, std::string names, std::string_view letters) {
  std::vector<int> summed;
  std::string kept;
  for (size_t i = 0; i < names.size(); ++i) {
    if (has(letters, names[i])) {
      kept += names[i];
    } else {
      summed.push_back(static_cast<int>(i));
    }
  }
  if (!summed.empty()) x = sum(x, Dims(summed));
  std::vector<int> order;
  for (const char letter : letters) order.push_back(static_cast<int>(kept.find(letter)));
  return std::ranges::is_sorted(order) ? contiguous(x) : permute(x, order);
}

int64_t extent_of(const Tensor& x, std::string_view names, std::string_view letters) {
  int64_t extent = 1;
  for (const char letter : letters) extent *= x.dim(static_cast<int>(names.find(letter)));
  return extent;
}

}  // namespace

Tensor einsum(std::string_view equation, const Tensor& a, const Tensor& b) {
  const Equation e = parse(equation);
  const auto require_rank = [&](const Tensor& x, std::string_view names) {
    require(x.rank() == static_cast<int>(names.size()), "einsum: '", equation, "': ", names,
            " for a tensor of shape ", x.shape());
  };
  require_rank(a, e.a);
  require_rank(b, e.b);
  std::string batch, contracted, left, right;
  for (const char letter : e.a) {
    const bool in_result = has(e.result, letter);
    if (has(e.b, letter)) {
      require(extent_of(a, e.a, {&letter, 1}) == extent_of(b, e.b, {&letter, 1}), "einsum: '",
              equation, "': the extents of ", letter, " differ: ", a.shape(), " vs ", b.shape());
      (in_result ? batch : contracted) += letter;
    } else if (in_result) {
      left += letter;
    }
  }
  for (const char letter : e.b) {
    if (!has(e.a, letter) && has(e.result, letter)) right += letter;
  }
  const int64_t batches = extent_of(a, e.a, batch);
  const int64_t inner = extent_of(a, e.a, contracted);
  const Shape rows{batches, extent_of(a, e.a, left), inner};
  const Shape cols{batches, extent_of(b, e.b, right), inner};
  const Tensor product =
      matmul(reshape(ordered(a, std::string(e.a), batch + left + contracted), rows),
             reshape(ordered(b, std::string(e.b), batch + right + contracted), cols),
             {.transpose_b = true});
  Shape shape;
  for (const char letter : batch + left) shape.push_back(extent_of(a, e.a, {&letter, 1}));
  for (const char letter : right) shape.push_back(extent_of(b, e.b, {&letter, 1}));
  return ordered(reshape(product, shape), batch + left + right, e.result);
}

Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const Conv1dOptions& options) {
  require(x.rank() == 3 && weight.rank() == 3,
          "conv1d: x must be [B, C, T] and weight [O, C, K], not ", x.shape(), " and ",
          weight.shape());
  const bool depthwise = weight.dim(1) == 1 && weight.dim(0) == x.dim(1);
  require(depthwise || weight.dim(1) == x.dim(1), "conv1d: channels differ: x of shape ", x.shape(),
          ", weight of shape ", weight.shape());
  require(options.padding >= 0 && options.stride >= 1 && options.dilation >= 1,
          "conv1d: padding must not be negative, stride and dilation must be positive: ",
          options.padding, ", ", options.stride, ", ", options.dilation);
  require(!bias.defined() || bias.shape() == Shape{weight.dim(0)}, "conv1d: bias must be [",
          weight.dim(0), "], not ", bias.defined() ? bias.shape() : Shape{});
  const int64_t taps = weight.dim(2);
  const Tensor padded = pad(x, 2, options.padding, options.padding);
  const int64_t reach = padded.dim(2) - options.dilation * (taps - 1);
  require(taps >= 1 && reach >= 1, "conv1d: ", taps, " taps, ", options.dilation,
          " apart, do not fit into ", padded.dim(2), " elements of shape ", x.shape());
  const auto tap = [&](int64_t k) {
    const Tensor all = narrow(padded, 2, k * options.dilation, reach);
    if (options.stride == 1) return all;
    return index_select(all, 2, arange(0, reach, options.stride));
  };
  Tensor y;
  if (depthwise) {
    // 16-bit floats are rounded once, at the end.
    const DType wide = is_16bit_float(x.dtype()) ? DType::f32 : x.dtype();
    const Tensor matrix = cast(reshape(weight, Shape{weight.dim(0), taps}), wide);
    for (int64_t k = 0; k < taps; ++k) {
      const Tensor term = cast(tap(k), wide) * narrow(matrix, 1, k, 1);
      y = y.defined() ? y + term : term;
    }
    y = cast(y, x.dtype());
  } else {
    // [B, K C, T'] = the taps side by side; weight as [O, K C].
    std::vector<Tensor> parts;
    for (int64_t k = 0; k < taps; ++k) parts.push_back(tap(k));
    const Tensor columns = transpose(concat(parts, 1));
    const Tensor flat =
        reshape(permute(weight, {0, 2, 1}), Shape{weight.dim(0), taps * weight.dim(1)});
    y = transpose(matmul(columns, flat, {.transpose_b = true}));
  }
  return bias.defined() ? y + reshape(bias, Shape{weight.dim(0), 1}) : y;
}

}  // namespace zinc::autograd
