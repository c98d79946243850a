#include "kernels/rotary.h"

#include "core/parallel.h"
#include "kernels/cpu/rotary_tokens.h"

namespace zinc::kernels::cpu {

void rotary_lanes(const Rotary& args);

namespace {

void turn_token(const View& x, int64_t i, const Rotary& args) {
  const int64_t pairs = args.cos.cols();
  const int64_t row = rotary_position(args, i) * pairs;
  const double* cos = args.cos.data_as<double>() + row;
  const double* sin = args.sin.data_as<double>() + row;
  const bool half_split = args.layout == RotaryLayout::half_split;
  double* token = x.data_as<double>() + i / x.dim(1) * x.stride(0) + i % x.dim(1) * x.stride(1);
  for (int64_t h = 0; h < x.dim(2); ++h) {
    for (int64_t j = 0; j < pairs; ++j) {
      double* u = token + h * x.stride(2) + (half_split ? j : 2 * j);
      double* v = u + (half_split ? pairs : 1);
      const double a = *u;
      const double b = *v;
      const double s = args.inverse ? -sin[j] : sin[j];
      *u = a * cos[j] - b * s;
      *v = a * s + b * cos[j];
    }
  }
}

}  // namespace

void rotary(const Rotary& args) {
  const int64_t tokens = args.q.dim(0) * args.q.dim(1);
  for (int64_t i = 0; args.positions && i < tokens; ++i) {
    const int64_t position = rotary_position(args, i);
    require(position >= 0 && position < args.cos.dim(0), "rotary: position ", position,
            " of token ", i, " is outside the table of ", args.cos.dim(0));
  }
  if (args.q.dtype() != DType::f64) return rotary_lanes(args);
  parallel_for(tokens, rotary_grain(args), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      turn_token(args.q, i, args);
      if (args.k) turn_token(args.k, i, args);
    }
  });
}

}  // namespace zinc::kernels::cpu
