#include "kernels/element_update.h"

#include <bit>

#include "core/error.h"
#include "kernels/checks.h"
#include "kernels/launch.h"
#include "kernels/state_codes.h"

namespace zinc::kernels {

namespace cpu {
void element_update(const ElementUpdate& args);
void block_update(const ElementUpdate& args);
}  // namespace cpu
namespace cuda {
void element_update(const ElementUpdate& args, StreamRef stream);
void block_update(const ElementUpdate& args, StreamRef stream);
}  // namespace cuda
namespace {

bool has_blocks(const ElementUpdate& args) {
  return args.states[0] && args.states[0].dtype() == DType::u8;
}

void require_blocks(const char* op, const ElementUpdate& args) {
  const int64_t n = args.weights.numel();
  require(!state_formats(args.rule).empty() && args.weights.dtype() == DType::f32, op,
          ": states in 8 bits are for adamw with f32 weights, not for ", op, " with ",
          args.weights.dtype());
  require(n % kFormatChunk == 0, op, ": states in 8 bits are in chunks of ", kFormatChunk, ", and ",
          n, " elements are not");
  for (size_t i = 0; i < state_formats(args.rule).size(); ++i) {
    require_workspace(op, args.states[i], encoded_bytes(state_formats(args.rule)[i], n));
  }
}

void require_result(const char* op, const ElementUpdate& args) {
  if (!makes_direction(args.rule)) {
    require(!args.direction, op, ": weights change here, no direction comes");
    require_update_operands(op, args.weights, args.gradient, args.model_weights, args.factor,
                            args.skip);
    return;
  }
  require(static_cast<bool>(args.weights) == reads_weights(args.rule) && !args.model_weights, op,
          ": a direction comes here, no weights change",
          reads_weights(args.rule) ? "; weights are read" : "");
  require_direction_operands(op, args.direction, args.gradient, args.factor, args.skip);
  if (!reads_weights(args.rule)) return;
  require_update_operands(op, args.weights, args.gradient, {}, args.factor, args.skip);
  require_apart(op, "direction", args.direction, "weights", args.weights);
}

}  // namespace

std::span<const BlockFormat> state_formats(UpdateRule rule) {
  if (rule == UpdateRule::adamw) return kMomentFormats;
  return {};
}

void element_update(const ElementUpdate& args, StreamRef stream) {
  const char* const op = name_of(args.rule).data();  // a literal
  require_result(op, args);
  const DType dtype = accumulator_of(args.gradient.dtype());
  const auto num = static_cast<size_t>(num_states(args.rule));
  const bool is_narrow =
      dtype == DType::f32 && args.states[0] && args.states[0].dtype() == DType::bf16;
  require(!is_narrow || num <= 2, op, ": ", num,
          " states cannot be bf16: an element's random word "
          "rounds two");
  if (has_blocks(args)) require_blocks(op, args);
  const Shape in_blocks{encoded_bytes(BlockFormat::signed8, args.gradient.numel())};
  for (size_t i = 0; i < num; ++i) {
    const View& state = args.states[i];
    if (has_blocks(args)) {
      require_dense_operand(op, "state", state, DType::u8, in_blocks);
    } else {
      require_dense_operand(op, "state", state, is_narrow ? DType::bf16 : dtype,
                            args.gradient.shape());
    }
    require_apart(op, "state", state, "weights", args.weights);
    require_apart(op, "state", state, "direction", args.direction);
    require_apart(op, "state", state, "gradient", args.gradient);
    require_apart(op, "state", state, "model_weights", args.model_weights);
    for (size_t other = 0; other < i; ++other) {
      require_apart(op, "state", state, "another state", args.states[other]);
    }
    require_same_device(op, {args.gradient, state});
  }
  require(args.step >= 1, op, ": step counts from 1, not ", args.step);
  const UpdateConstants& constants = args.constants;
  for (const double beta : {constants.beta1, constants.beta2}) {
    require(beta >= 0.0 && beta < 1.0, op, ": a beta must be in [0, 1), not ", beta);
  }
  require(!constants.nesterov || (constants.momentum > 0.0 && constants.dampening == 0.0), op,
          ": nesterov needs momentum and no dampening");
  require(constants.eps >= 0.0, op, ": eps must not be negative: ", constants.eps);
  if (args.values) {
    require_operand(op, "values", args.values, dtype, Shape{num_update_values(args.rule)});
    require_same_device(op, {args.gradient, args.values});
  }
  if (args.gradient.numel() == 0) return;
  if (has_blocks(args)) {
    return run_on_device(
        op, args, args.gradient.device(), stream, [args] { cpu::block_update(args); },
        [&] { cuda::block_update(args, stream); });
  }
  run_on_device(
      op, args, args.gradient.device(), stream, [args] { cpu::element_update(args); },
      [&] { cuda::element_update(args, stream); });
}

int64_t num_update_values(UpdateRule rule) { return num_scalars(rule) + 2; }

void update_values(const ElementUpdate& args, std::span<float> values) {
  const auto count = static_cast<size_t>(num_update_values(args.rule));
  require(values.size() == count, "update_values: room for ", values.size(), " of ", count);
  const UpdateScalars scalars = update_scalars(args.rule, args.constants, args.step);
  for (size_t i = 0; i + 2 < count; ++i) values[i] = static_cast<float>(scalars[i]);
  for (const int half : {0, 1}) {
    values[count - 2 + static_cast<size_t>(half)] =
        std::bit_cast<float>(static_cast<uint32_t>(args.random.counter_high >> 32 * half));
  }
}

Cost cost(const ElementUpdate& args) {
  const int64_t weights = optional_bytes(args.weights);
  int64_t kept = 0;
  const int num = num_states(args.rule);
  for (size_t i = 0; i < static_cast<size_t>(num); ++i) kept += args.states[i].bytes();
  return {.bytes_read = kept + weights + args.gradient.bytes(),
          .bytes_written = kept + (makes_direction(args.rule) ? args.direction.bytes() : weights) +
                           optional_bytes(args.model_weights),
          .flops = update_flops(args.rule, args.constants) * args.gradient.numel()};
}

}  // namespace zinc::kernels
