#include "optim/adafactor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "core/error.h"
#include "kernels/binary.h"
#include "kernels/element_update.h"
#include "kernels/norm_rate.h"
#include "kernels/reduce.h"
#include "kernels/unary.h"
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

// num_update_values() of the rules gradient and running_mean.
constexpr int64_t kGradientScalars = 2, kMeanScalars = 5;

// kept = decay kept + (1 - decay) (means + least), as `rule` has it.
void follow(const View& kept, const View& means, kernels::ElementUpdate rule, StreamRef stream) {
  rule.weights = kept.reshape(Shape{kept.numel()});
  rule.gradient = means.reshape(Shape{means.numel()});
  kernels::element_update(rule, stream);
}

// d = d / sqrt(squares)
void divide_by_root(const View& d, const View& squares, const View& room, StreamRef stream) {
  kernels::unary({.op = UnaryOp::rsqrt, .x = squares, .y = room}, stream);
  kernels::binary({.op = BinaryOp::mul, .a = d, .b = room, .y = d}, stream);
}

// One matrix. `squares`: room for it.
void direct_matrix(const View& d, const View& squares, const View& rows, const View& columns,
                   const kernels::ElementUpdate& mean_rule, StreamRef stream) {
  kernels::unary({.op = UnaryOp::square, .x = d, .y = squares}, stream);
  const Tensor row_room = take_room(rows.shape(), d.dtype());
  const Tensor column_room = take_room(columns.shape(), d.dtype());
  const Tensor mean = take_room(Shape{1}, d.dtype());
  const auto reduce = [&](kernels::ReduceOver over, const View& x, const View& y) {
    kernels::reduce({.op = kernels::ReduceOp::mean, .over = over, .x = x, .y = y}, stream);
  };
  reduce(kernels::ReduceOver::last, squares, row_room.view());
  reduce(kernels::ReduceOver::leading, squares, column_room.view());
  follow(rows, row_room.view(), mean_rule, stream);
  follow(columns, column_room.view(), mean_rule, stream);
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
          "Adafactor: eps1 must be above 0 and eps2 not below, got ", options.least_square, " and ",
          options.least_scale);
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

kernels::ElementUpdate Adafactor::direction(const Update& args) const {
  kernels::ElementUpdate update = element_update_of(args, seed_);
  update.rule = kernels::UpdateRule::gradient;
  update.weights = update.model_weights = {};
  update.direction = args.direction;
  return update;
}

kernels::ElementUpdate Adafactor::means(int64_t step) const {
  const double decay = 1.0 - std::pow(static_cast<double>(step), options_.decay_rate);
  return {.rule = kernels::UpdateRule::running_mean,
          .constants = {.beta2 = decay, .eps = options_.least_square}};
}

DecayedStep Adafactor::step_of(const HyperParameters& hyper, int64_t step) const {
  const auto n = static_cast<double>(step);
  double lr = hyper.lr;
  if (options_.relative_step) {
    lr *= std::min(options_.warmup_init ? 1e-6 * n : 1e-2, 1.0 / std::sqrt(n));
  }
  return {.lr = lr, .weight_decay = hyper.weight_decay, .seed = seed_};
}

int64_t Adafactor::num_scalars() const {
  return kGradientScalars + kMeanScalars +
         (options_.scale_parameter ? kernels::kNormRateGiven : kDecayedStepScalars);
}

void Adafactor::scalars(const HyperParameters& hyper, int64_t step, std::span<float> values) const {
  kernels::update_values(direction({.step = step}), values.first(kGradientScalars));
  kernels::update_values(means(step), values.subspan(kGradientScalars, kMeanScalars));
  const std::span<float> of_step = values.subspan(kGradientScalars + kMeanScalars);
  if (options_.scale_parameter) {
    kernels::norm_rate_given(decayed_step_rate(step_of(hyper, step), step), of_step);
  } else {
    decayed_step_scalars(step_of(hyper, step), step, of_step);
  }
}

void Adafactor::direct(const Update& args, const HyperParameters&, StreamRef stream) const {
  kernels::ElementUpdate update = direction(args);
  if (update.values) update.values = update.values.narrow(0, 0, kGradientScalars);
  kernels::element_update(update, stream);
}

void Adafactor::transform(const WholeParameter& parameter, const HyperParameters&,
                          StreamRef stream) const {
  const View& d = parameter.direction;
  if (d.numel() == 0) return;
  kernels::ElementUpdate mean_rule = means(parameter.step);
  mean_rule.skip = parameter.skip;
  if (parameter.scalars) {
    mean_rule.values = parameter.scalars.narrow(0, kGradientScalars, kMeanScalars);
  }
  const Tensor room = take_room(d.shape(), d.dtype());
  const View squares = room.view();
  if (d.rank() < 2) {
    kernels::unary({.op = UnaryOp::square, .x = d, .y = squares}, stream);
    const View& kept = parameter.vectors[kElements];
    follow(kept, squares, mean_rule, stream);
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
      direct_matrix(matrix(d, i), matrix(squares, i), vector(kRows, i), vector(kColumns, i),
                    mean_rule, stream);
    }
  }
  const double most = options_.clip_threshold * std::sqrt(static_cast<double>(d.numel()));
  scale_by_norm(d, most, most, d, stream);
}

void Adafactor::rates(const MeasuredParameter& parameter, const HyperParameters& hyper,
                      StreamRef stream) const {
  kernels::NormRate rate = decayed_step_rate(step_of(hyper, parameter.step), parameter.step);
  rate.sums = parameter.sums;
  rate.numel = parameter.numel;
  rate.least = options_.least_scale;
  rate.values = parameter.rates;
  if (parameter.scalars) {
    rate.given =
        parameter.scalars.narrow(0, kGradientScalars + kMeanScalars, kernels::kNormRateGiven);
  }
  kernels::norm_rate(rate, stream);
}

void Adafactor::apply(const Update& args, const HyperParameters& hyper, StreamRef stream) const {
  DecayedStep step = step_of(hyper, args.step);
  if (options_.scale_parameter) {
    require(static_cast<bool>(args.rates), "Adafactor: apply() without the result of rates()");
    step.values = args.rates;
  } else if (args.scalars) {
    step.values = args.scalars.narrow(0, kGradientScalars + kMeanScalars, kDecayedStepScalars);
  }
  decayed_step(args, step, stream);
}

}  // namespace zinc::optim
