#include "optim/adafactor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "core/error.h"
#include "kernels/binary.h"
#include "kernels/element_update.h"
#include "kernels/reduce.h"
#include "kernels/unary.h"
#include "optim/element_rule.h"
#include "optim/norm_scale.h"
#include "tensor/tensor.h"

namespace zinc::optim {
namespace {

using kernels::BinaryOp;
using kernels::UnaryOp;

enum Vector : uint8_t { kRows, kColumns, kElements };

Tensor take_room(const Shape& shape, DType dtype) {
  return Tensor::empty(shape, dtype, Label::workspace);
}

// kept = decay kept + (1 - decay) (means + least). `means` changes.
void follow(const View& kept, const View& means, double decay, double least, StreamRef stream) {
  kernels::unary(
      {.op = UnaryOp::affine, .x = means, .y = means, .p = 1.0 - decay, .q = (1.0 - decay) * least},
      stream);
  kernels::unary({.op = UnaryOp::affine, .x = kept, .y = kept, .p = decay}, stream);
  kernels::binary({.op = BinaryOp::add, .a = kept, .b = means, .y = kept}, stream);
}

// d = d / sqrt(squares)
void divide_by_root(const View& d, const View& squares, const View& room, StreamRef stream) {
  kernels::unary({.op = UnaryOp::rsqrt, .x = squares, .y = room}, stream);
  kernels::binary({.op = BinaryOp::mul, .a = d, .b = room, .y = d}, stream);
}

// One matrix. `squares`: room for it.
void direct_matrix(const View& d, const View& squares, const View& rows, const View& columns,
                   double decay, double least, StreamRef stream) {
  kernels::unary({.op = UnaryOp::square, .x = d, .y = squares}, stream);
  const Tensor row_room = take_room(rows.shape(), d.dtype());
  const Tensor column_room = take_room(columns.shape(), d.dtype());
  const Tensor mean = take_room(Shape{1}, d.dtype());
  const auto reduce = [&](kernels::ReduceOver over, const View& x, const View& y) {
    kernels::reduce({.op = kernels::ReduceOp::mean, .over = over, .x = x, .y = y}, stream);
  };
  reduce(kernels::ReduceOver::last, squares, row_room.view());
  reduce(kernels::ReduceOver::leading, squares, column_room.view());
  follow(rows, row_room.view(), decay, least, stream);
  follow(columns, column_room.view(), decay, least, stream);
  reduce(kernels::ReduceOver::all, rows, mean.view());
  kernels::binary({.op = BinaryOp::div, .a = rows, .b = mean.view(), .y = row_room.view()}, stream);
  const View by_row = row_room.view().reshape(Shape{rows.numel(), 1});
  divide_by_root(d, by_row, by_row, stream);
  divide_by_root(d, columns, column_room.view(), stream);
}

}  // namespace

Adafactor::Adafactor(const AdafactorOptions& options, uint64_t seed)
    : options_(options), seed_(seed) {
  require(options.least_square > 0.0 && options.least_scale >= 0.0,
          "Adafactor: eps must be one number above 0 and one not below 0, got ",
          options.least_square, " and ", options.least_scale);
  require(options.clip_threshold > 0.0, "Adafactor: clip_threshold must be above 0, got ",
          options.clip_threshold);
  require(options.decay_rate < 0.0, "Adafactor: decay_rate must be below 0, got ",
          options.decay_rate);
  require(options.relative_step || !options.warmup_init,
          "Adafactor: warmup_init is the beginning of a relative_step");
}

std::string_view Adafactor::state_name(int i) const {
  throw InvalidArgument(str("Adafactor: there is no state ", i, " of an element"));
}

std::string_view Adafactor::vector_name(int i) const {
  constexpr std::array<std::string_view, 3> kNames{"exp_avg_sq_row", "exp_avg_sq_col",
                                                   "exp_avg_sq"};
  require(i >= 0 && i < num_vectors(), "Adafactor: there is no vector ", i);
  return kNames[static_cast<size_t>(i)];
}

std::optional<Shape> Adafactor::vector_shape(const Shape& parameter, int i) const {
  const bool is_factored = parameter.rank() >= 2;
  if (is_factored != (i != kElements)) return std::nullopt;
  if (!is_factored) return parameter;
  Shape shape;
  for (int dim = 0; dim < parameter.rank(); ++dim) {
    if (dim != parameter.rank() - (i == kRows ? 1 : 2)) shape.push_back(parameter[dim]);
  }
  return shape;
}

void Adafactor::direct(const Update& args, const HyperParameters&, StreamRef stream) const {
  kernels::ElementUpdate update = element_update_of(args, seed_);
  update.rule = kernels::UpdateRule::gradient;
  update.weights = update.model_weights = {};
  update.direction = args.direction;
  kernels::element_update(update, stream);
}

void Adafactor::transform(const WholeParameter& parameter, const HyperParameters&,
                          StreamRef stream) const {
  const View& d = parameter.direction;
  if (d.numel() == 0) return;
  const double decay = 1.0 - std::pow(static_cast<double>(parameter.step), options_.decay_rate);
  const Tensor room = take_room(d.shape(), d.dtype());
  const View squares = room.view();
  if (d.rank() < 2) {
    kernels::unary({.op = UnaryOp::square, .x = d, .y = squares}, stream);
    const View& kept = parameter.vectors[kElements];
    follow(kept, squares, decay, options_.least_square, stream);
    divide_by_root(d, kept, squares, stream);
  } else {
    const int64_t rows = d.dim(d.rank() - 2), columns = d.dim(d.rank() - 1);
    const int64_t matrices = d.numel() / (rows * columns);
    const auto matrix = [&](const View& all, int64_t i) {
      return all.reshape(Shape{matrices * rows, columns}).narrow(0, i * rows, rows);
    };
    const auto vector = [&](Vector which, int64_t i) {
      const View& all = parameter.vectors[which];
      const int64_t numel = all.numel() / matrices;
      return all.reshape(Shape{all.numel()}).narrow(0, i * numel, numel);
    };
    for (int64_t i = 0; i < matrices; ++i) {
      direct_matrix(matrix(d, i), matrix(squares, i), vector(kRows, i), vector(kColumns, i), decay,
                    options_.least_square, stream);
    }
  }
  const double most = options_.clip_threshold * std::sqrt(static_cast<double>(d.numel()));
  scale_by_norm(d, most, most, d, stream);
}

void Adafactor::apply(const Update& args, const HyperParameters& hyper, StreamRef stream) const {
  const auto step = static_cast<double>(args.step);
  double lr = hyper.lr;
  if (options_.relative_step) {
    lr *= std::min(options_.warmup_init ? 1e-6 * step : 1e-2, 1.0 / std::sqrt(step));
  }
  if (options_.scale_parameter && args.sums.numel > 0) {
    const double mean = args.sums.weights / static_cast<double>(args.sums.numel);
    lr *= std::max(options_.least_scale, std::sqrt(mean));
  }
  kernels::ElementUpdate update = element_update_of(args, seed_);
  update.rule = kernels::UpdateRule::sgdw;
  update.constants = {.lr = lr, .weight_decay = hyper.weight_decay};
  kernels::element_update(update, stream);
}

}  // namespace zinc::optim
