#include "optim/muon.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "autograd/parameter.h"
#include "core/error.h"
#include "core/glob.h"
#include "kernels/element_update.h"
#include "kernels/gemm.h"
#include "optim/norm_scale.h"
#include "tensor/tensor.h"

namespace zinc::optim {
namespace {

// num_update_values() of the rule muon.
constexpr int64_t kMuonScalars = 5;

Tensor workspace(const Shape& shape, DType dtype) {
  return Tensor::empty(shape, dtype, Label::workspace);
}

double factor_of(MuonScale scale, int64_t rows, int64_t columns) {
  const auto r = static_cast<double>(rows);
  const auto c = static_cast<double>(columns);
  return scale == MuonScale::original ? std::sqrt(std::max(1.0, r / c))
                                      : 0.2 * std::sqrt(std::max(r, c));
}

}  // namespace

Muon::Muon(MuonOptions options, uint64_t seed) : options_(std::move(options)), seed_(seed) {
  require(options_.steps >= 1 && options_.steps < 100,
          "Muon: steps of the iteration must lie in [1, 100), got ", options_.steps);
  require(options_.eps > 0.0, "Muon: eps must be above 0, got ", options_.eps);
  require(options_.products == DType::bf16 || options_.products == DType::f32,
          "Muon: products must be bf16 or f32, not ", options_.products);
}

bool Muon::takes(const autograd::Parameter& parameter) const {
  const Shape& shape = parameter.whole_shape();
  if (shape.rank() != 2 || shape[0] < 2 || shape[1] < 2) return false;
  return std::none_of(options_.exclude.begin(), options_.exclude.end(),
                      [&](const auto& pattern) { return matches_glob(pattern, parameter.name()); });
}

std::string_view Muon::state_name(int i) const {
  require(i == 0, "Muon: there is no state ", i);
  return "momentum_buffer";
}

kernels::ElementUpdate Muon::direction(const Update& args, const HyperParameters& hyper) const {
  kernels::ElementUpdate update = element_update_of(args, seed_);
  update.rule = kernels::UpdateRule::muon;
  update.weights = update.model_weights = {};
  update.direction = args.direction;
  // Without a momentum both forms are the gradient.
  update.constants = {.momentum = hyper.momentum,
                      .nesterov = options_.nesterov && hyper.momentum > 0.0};
  return update;
}

DecayedStep Muon::step_of(const HyperParameters& hyper, const ConstView& scalars) const {
  return {.lr = hyper.lr,
          .weight_decay = hyper.weight_decay,
          .values = scalars ? scalars.narrow(0, kMuonScalars, kDecayedStepScalars) : scalars,
          .seed = seed_};
}

int64_t Muon::num_scalars() const { return kMuonScalars + kDecayedStepScalars; }

void Muon::scalars(const HyperParameters& hyper, int64_t step, std::span<float> values) const {
  kernels::update_values(direction({.step = step}, hyper), values.first(kMuonScalars));
  decayed_step_scalars(step_of(hyper, {}), step, values.subspan(kMuonScalars));
}

void Muon::direct(const Update& args, const HyperParameters& hyper, StreamRef stream) const {
  require(hyper.momentum >= 0.0 && hyper.momentum < 1.0, "Muon: momentum must lie in [0, 1), got ",
          hyper.momentum);
  kernels::ElementUpdate update = direction(args, hyper);
  if (update.values) update.values = update.values.narrow(0, 0, kMuonScalars);
  kernels::element_update(update, stream);
}

void Muon::transform(const WholeParameter& parameter, const HyperParameters&,
                     StreamRef stream) const {
  const View& matrix = parameter.direction;
  require(matrix.rank() == 2, "Muon: a matrix is [rows, columns], not ", matrix.shape());
  const int64_t rows = matrix.rows();
  const int64_t columns = matrix.cols();
  const bool tall = rows > columns;
  const Shape square{std::min(rows, columns), std::min(rows, columns)};
  const Tensor room = workspace(matrix.shape(), matrix.dtype());
  const Tensor gram = workspace(square, matrix.dtype());
  const Tensor polynomial = workspace(square, matrix.dtype());
  View x = matrix;
  View next = room.view();
  if (options_.steps % 2 == 1) std::swap(x, next);  // the last product goes to `matrix`
  scale_by_norm(matrix, 1.0, options_.eps, x, stream);
  for (int step = 1; step <= options_.steps; ++step) {
    kernels::gemm({.a = x, .b = x, .c = gram.view(), .transpose_a = tall, .transpose_b = !tall},
                  stream);
    kernels::gemm({.a = gram.view(),
                   .b = gram.view(),
                   .addend = gram.view(),
                   .c = polynomial.view(),
                   .alpha = options_.c,
                   .beta = options_.b},
                  stream);
    const double factor = step == options_.steps ? factor_of(options_.scale, rows, columns) : 1.0;
    kernels::gemm({.a = tall ? x : polynomial.view(),
                   .b = tall ? polynomial.view() : x,
                   .addend = x,
                   .c = next,
                   .alpha = factor,
                   .beta = factor * options_.a},
                  stream);
    std::swap(x, next);
  }
}

void Muon::apply(const Update& args, const HyperParameters& hyper, StreamRef stream) const {
  decayed_step(args, step_of(hyper, args.scalars), stream);
}

int64_t Muon::flops(int64_t rows, int64_t columns) const {
  const int64_t n = std::min(rows, columns);
  const int64_t m = std::max(rows, columns);
  return options_.steps * (4 * n * n * m + 2 * n * n * n);
}

MuonWithAdamW::MuonWithAdamW(const MuonOptions& matrices, const ElementRuleOptions& elements)
    : elements_(elements), matrices_(matrices, elements.seed) {
  require(elements.rule == kernels::UpdateRule::adamw && elements.decoupled,
          "Muon: AdamW updates what is no matrix");
}

}  // namespace zinc::optim
