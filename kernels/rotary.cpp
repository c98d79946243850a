#include "kernels/rotary.h"

#include <cmath>
#include <numbers>

#include "kernels/checks.h"
#include "kernels/launch.h"

namespace zinc::kernels {

namespace cpu {
void rotary(const Rotary& args);
}  // namespace cpu
namespace cuda {
void rotary(const Rotary& args, StreamRef stream);
}  // namespace cuda

namespace {

double scaled_frequency(double frequency, const RotaryScaling& scaling) {
  switch (scaling.kind) {
    case RotaryScaling::Kind::none:
      return frequency;
    case RotaryScaling::Kind::linear:
      return frequency / scaling.factor;
    case RotaryScaling::Kind::llama3:
      break;
  }
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  const double length = scaling.original_max_positions;
  if (wavelength < length / scaling.high_freq_factor) return frequency;
  if (wavelength > length / scaling.low_freq_factor) return frequency / scaling.factor;
  const double share = (length / wavelength - scaling.low_freq_factor) /
                       (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1.0 - share) * frequency / scaling.factor + share * frequency;
}

void require_heads(std::string_view op, std::string_view name, const ConstView& x,
                   const Rotary& args) {
  require_float(op, name, x);
  require(x.rank() == 4, op, ": ", name, " must be [B, T, H, D], not ", x.shape());
  require_dtype(op, name, x, args.q.dtype());
  require(x.dim(0) == args.q.dim(0) && x.dim(1) == args.q.dim(1) && x.dim(3) == args.q.dim(3), op,
          ": q and k must agree in all but the number of heads: ", args.q.shape(), " vs ",
          x.shape());
}

}  // namespace

std::vector<double> rotary_frequencies(int64_t rotary_dims, double theta,
                                       const RotaryScaling& scaling) {
  constexpr auto kOp = "rotary_frequencies";
  require(rotary_dims >= 0 && rotary_dims % 2 == 0, kOp,
          ": rotary_dims must be even and not negative, not ", rotary_dims);
  require(theta > 0.0, kOp, ": theta must be positive, not ", theta);
  require(scaling.kind == RotaryScaling::Kind::none || scaling.factor > 0.0, kOp,
          ": factor must be positive, not ", scaling.factor);
  if (scaling.kind == RotaryScaling::Kind::llama3) {
    require(scaling.low_freq_factor > 0.0 && scaling.high_freq_factor > scaling.low_freq_factor,
            kOp, ": llama3 needs 0 < low_freq_factor < high_freq_factor, not ",
            scaling.low_freq_factor, " and ", scaling.high_freq_factor);
    require(scaling.original_max_positions > 0.0, kOp,
            ": original_max_positions must be positive, not ", scaling.original_max_positions);
  }
  std::vector<double> frequencies;
  for (int64_t j = 0; j < rotary_dims / 2; ++j) {
    const double exponent = -2.0 * static_cast<double>(j) / static_cast<double>(rotary_dims);
    frequencies.push_back(scaled_frequency(std::pow(theta, exponent), scaling));
  }
  return frequencies;
}

void fill_rotary_table(std::span<const double> frequencies, int64_t first_position, const View& cos,
                       const View& sin) {
  constexpr auto kOp = "fill_rotary_table";
  require(cos.rank() == 2, kOp, ": cos must be [positions, rotary_dims / 2], not ", cos.shape());
  const auto pairs = static_cast<int64_t>(frequencies.size());
  const Shape shape{cos.dim(0), pairs};
  require(cos.dtype() == DType::f32 || cos.dtype() == DType::f64, kOp,
          ": cos must be f64 or f32, not ", cos.dtype());
  for (const View& view : {cos, sin}) {
    require_dtype(kOp, "cos or sin", view, cos.dtype());
    require_shape(kOp, "cos or sin", view, shape);
    require_contiguous(kOp, "cos or sin", view);
    require(view.device().is_cpu() || view.tier() == Tier::pinned_host, kOp,
            ": cos and sin must be host memory");
    if (view.device().meta) return;
  }
  const auto fill = [&]<class T>(T* cos_out, T* sin_out) {
    for (int64_t p = 0; p < shape[0]; ++p) {
      for (int64_t j = 0; j < pairs; ++j) {
        const double angle =
            static_cast<double>(first_position + p) * frequencies[static_cast<size_t>(j)];
        cos_out[p * pairs + j] = static_cast<T>(std::cos(angle));
        sin_out[p * pairs + j] = static_cast<T>(std::sin(angle));
      }
    }
  };
  if (cos.dtype() == DType::f64) {
    fill(cos.data_as<double>(), sin.data_as<double>());
  } else {
    fill(cos.data_as<float>(), sin.data_as<float>());
  }
}

void rotary(const Rotary& args, StreamRef stream) {
  constexpr auto kOp = "rotary";
  require_heads(kOp, "q", args.q, args);
  if (args.k) {
    require_heads(kOp, "k", args.k, args);
    require(args.k.data() != args.q.data() || args.q.numel() == 0, kOp,
            ": q and k must not be the same");
    require_apart(kOp, "k", args.k, "q", args.q);
  }
  require(static_cast<bool>(args.cos) && args.cos.rank() == 2, kOp,
          ": cos must be [positions, rotary_dims / 2]");
  require(2 * args.cos.cols() <= args.q.dim(3), kOp, ": a table for ", 2 * args.cos.cols(),
          " rotary dimensions does not fit heads of ", args.q.dim(3));
  const DType table = accumulator_of(args.q.dtype());
  require_dense_operand(kOp, "cos", args.cos, table, args.cos.shape());
  require_dense_operand(kOp, "sin", args.sin, table, args.cos.shape());
  if (args.positions) {
    require_index(kOp, "positions", args.positions);
    require_shape(kOp, "positions", args.positions, Shape{args.q.dim(0), args.q.dim(1)});
  } else {
    require(args.start >= 0 && args.start + args.q.dim(1) <= args.cos.dim(0), kOp, ": positions ",
            args.start, " to ", args.start + args.q.dim(1) - 1, " are outside the table of ",
            args.cos.dim(0));
  }
  require_same_device(kOp, {args.q, args.k, args.cos, args.sin, args.positions});
  if (args.q.dim(0) * args.q.dim(1) * args.cos.cols() == 0) return;
  run_on_device(
      kOp, args, args.q.device(), stream, [args] { cpu::rotary(args); },
      [&] { cuda::rotary(args, stream); });
}

// The elements that turn are read and written, the table's rows are read once per position.
Cost cost(const Rotary& args) {
  const int64_t heads = args.q.dim(2) + (args.k ? args.k.dim(2) : 0);
  const int64_t tokens = args.q.dim(0) * args.q.dim(1);
  const int64_t turned = tokens * heads * 2 * args.cos.cols();
  const int64_t table = 2 * args.q.dim(1) * args.cos.cols() * size_of(args.cos.dtype());
  const int64_t positions = args.positions ? args.positions.bytes() : 0;
  return {.bytes_read = turned * size_of(args.q.dtype()) + table + positions,
          .bytes_written = turned * size_of(args.q.dtype()),
          .flops = 3 * turned};
}

}  // namespace zinc::kernels
