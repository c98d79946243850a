// kernels/update_table.h: the element-wise update rules. A rule is a line of this table, its
// scalars (update_rules.cpp) and its row (update_rows-inl.h), which makes the oracle in f64, the
// vector code and the CUDA kernel.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace zinc::kernels {

inline constexpr int kMaxUpdateStates = 4;
inline constexpr int kMaxUpdateScalars = 12;

// Note [Bits of an update]
// Two devices give the same bits because the order of operations is part of the contract. Scalars
// are computed on the host in f64 and rounded once to f32 (not at all for f64 weights):
//   b1 = beta1, c1 = 1 - beta1, b2 = beta2, c2 = 1 - beta2,
//   a = lr / (1 - beta1^step), s = 1 / sqrt(1 - beta2^step)
// Per element; each line's operations in the order written and each rounded to nearest even;
// fma(x, y, z) = x * y + z rounded once; division and square root correctly rounded; denormals
// kept; max(x, y) is y where y is a NaN, sign(0) = 0, sign(NaN) = NaN:
//   g = f(gradient) * factor
//   g = fma(weight_decay, w, g)          where the rule's decay is L2, and weight_decay != 0
//   (the rule's lines, below)
//   model_weights = round(w)
// Decoupled decay is w = fma(-lr * weight_decay, w, w) ahead of the line that changes w, where
// weight_decay != 0.
//
//   adagrad   Duchi et al., JMLR 2011, as torch.optim.Adagrad. L2 decay.
//             h = fma(g, g, h);  w = fma(-lr / (1 + (step - 1) lr_decay), g / (sqrt(h) + eps), w)
//   adamw     Kingma and Ba, ICLR 2015, algorithm 1; decoupled decay (Loshchilov and Hutter, ICLR
//             2019, algorithm 2) or L2.
//             m = fma(b1, m, c1 * g);  v = fma(b2, v, (c2 * g) * g)
//             w = fma(-a, m / fma(sqrt(v), s, eps), w)
//   amsgrad   Reddi et al., ICLR 2018, as torch.optim.AdamW with amsgrad: adamw, and behind v
//             h = max(h, v);  w = fma(-a, m / fma(sqrt(h), s, eps), w)
//   gradient  d = g
//   lamb      You et al., ICLR 2020, algorithm 2, without its last line: the direction d that
//             optim/lamb.h makes a step of.
//             m = fma(b1, m, c1 * g);  v = fma(b2, v, (c2 * g) * g);  d = m / (sqrt(v) + eps)
//             d = fma(weight_decay, w, d)  where weight_decay != 0
//   lion      Chen et al., NeurIPS 2023. Decoupled decay.
//             u = fma(b1, m, c1 * g);  w = fma(-lr, sign(u), w);  m = fma(b2, m, c2 * g)
//   momentum  Sutskever et al., ICML 2013, in the form in which the learning rate scales the
//             velocity at the step. L2 decay.
//             u = step == 1 ? g : fma(momentum, u, (1 - dampening) * g)
//             w = fma(-lr, nesterov ? fma(momentum, u, g) : u, w)
//   muon      Jordan, kellerjordan.github.io/posts/muon, 2024, as torch.optim.Muon: the direction d
//             that optim/muon.h makes a step of.
//             u = fma(momentum, u, (1 - momentum) * g)
//             d = nesterov ? fma(momentum, u, (1 - momentum) * g) : u
//   onebit    Tang et al., "1-bit Adam", ICML 2021, algorithm 1, as DeepSpeed's OneBitAdam behind
//             its freeze_step: the gradient is a momentum that was sent, and v stays. Where v is
//             0, an element has never had a gradient, and only the decay changes it. Decoupled
//             decay.
//             m = g;  w = fma(-lr, v > 0 ? m / (sqrt(v) + eps) : 0, w)
//   running_mean   of gradients, in the place of weights: what optim/adafactor.h keeps of squares.
//             w = fma(b2, w, fma(1 - b2, g, (1 - b2) * eps))
//   schedulefree   Defazio et al., "The road less scheduled", NeurIPS 2024, as AdamWScheduleFree of
//             the package schedulefree: gradients are taken at w = y, between z, which makes the
//             steps, and the average x of z's path. optim/schedule_free.h says what `average` is.
//             The decay is part of the step.
//             v = fma(b2, v, (c2 * g) * g);  u = g / fma(sqrt(v), s, eps)
//             u = fma(weight_decay, w, u)  where weight_decay != 0
//             w = fma(average, z - w, w);  w = fma(lr * (beta1 * (1 - average) - 1), u, w)
//             z = fma(-lr, u, z)
//   schedulefree_average   of y in the gradient's place, and z: d = fma(1 - 1 / beta1, z - g, g)
//   sgd       L2 decay. w = fma(-lr, g, w)
//   sgdw      Loshchilov and Hutter, as above, algorithm 1 without momentum. Decoupled decay.
//             w = fma(-lr, g, w)
//
// ROW(name, states, scalars, result): how many states an element has, and how many scalars a step.
// result: weights; direction, of a rule that neither reads nor writes weights; or
// direction_at_weights, of a rule that reads weights.
#define ZINC_UPDATE_RULES(ROW)               \
  ROW(adagrad, 1, 3, weights)                \
  ROW(adamw, 2, 9, weights)                  \
  ROW(amsgrad, 3, 9, weights)                \
  ROW(gradient, 0, 0, direction)             \
  ROW(lamb, 2, 6, direction_at_weights)      \
  ROW(lion, 1, 6, weights)                   \
  ROW(momentum, 1, 6, weights)               \
  ROW(muon, 1, 3, direction)                 \
  ROW(onebit, 2, 3, weights)                 \
  ROW(running_mean, 0, 3, weights)           \
  ROW(schedulefree, 2, 8, weights)           \
  ROW(schedulefree_average, 1, 1, direction) \
  ROW(sgd, 0, 2, weights)                    \
  ROW(sgdw, 0, 2, weights)

#define ZINC_ENUMERATOR(name, ...) name,
enum class UpdateRule : uint8_t { ZINC_UPDATE_RULES(ZINC_ENUMERATOR) };
#undef ZINC_ENUMERATOR

std::string_view name_of(UpdateRule rule);
int num_states(UpdateRule rule);
int num_scalars(UpdateRule rule);
enum class UpdateResult : uint8_t { weights, direction, direction_at_weights };
constexpr UpdateResult result_of(UpdateRule rule) {
  constexpr UpdateResult kResults[] = {
#define ZINC_ROW(name, states, scalars, result) UpdateResult::result,
      ZINC_UPDATE_RULES(ZINC_ROW)
#undef ZINC_ROW
  };
  return kResults[static_cast<int>(rule)];
}
constexpr bool makes_direction(UpdateRule rule) { return result_of(rule) != UpdateResult::weights; }
constexpr bool reads_weights(UpdateRule rule) { return result_of(rule) != UpdateResult::direction; }

// A rule ignores members that its formula has not.
struct UpdateConstants {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  bool decoupled = true;   // adamw, amsgrad: the decay; false: L2
  double lr_decay = 0.0;   // adagrad
  double momentum = 0.0;   // momentum, muon
  double dampening = 0.0;  // momentum
  bool nesterov = false;   // momentum, muon
  double average = 1.0;    // schedulefree: the share of z in the average, in [0, 1]
};

// Operations per element, as the note lists them; an fma is two.
int64_t update_flops(UpdateRule rule, const UpdateConstants& constants);

// The scalars of a step, counted from 1. Those behind num_scalars() are 0.
using UpdateScalars = std::array<double, kMaxUpdateScalars>;
UpdateScalars update_scalars(UpdateRule rule, const UpdateConstants& constants, int64_t step);

}  // namespace zinc::kernels
