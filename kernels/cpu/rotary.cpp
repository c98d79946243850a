#include "kernels/rotary.h"

#include "core/parallel.h"

namespace zinc::kernels::cpu {
namespace {

// One head: pairs (first + j * step, first + j * step + gap).
template <class T>
void turn(T* head, const AccumulatorOf<T>* cos, const AccumulatorOf<T>* sin, int64_t pairs,
          int64_t step, int64_t gap, AccumulatorOf<T> sign) {
  using A = AccumulatorOf<T>;
  for (int64_t j = 0; j < pairs; ++j) {
    T* u = head + j * step;
    T* v = u + gap;
    const A a = A(*u);
    const A b = A(*v);
    const A s = sign * sin[j];
    *u = T(a * cos[j] - b * s);
    *v = T(a * s + b * cos[j]);
  }
}

template <class T>
void turn_heads(const View& x, int64_t b, int64_t t, const Rotary& args, int64_t position) {
  using A = AccumulatorOf<T>;
  const int64_t pairs = args.cos.cols();
  const A* cos = args.cos.data_as<A>() + position * pairs;
  const A* sin = args.sin.data_as<A>() + position * pairs;
  const bool half_split = args.layout == RotaryLayout::half_split;
  T* token = x.data_as<T>() + b * x.stride(0) + t * x.stride(1);
  for (int64_t h = 0; h < x.dim(2); ++h) {
    turn(token + h * x.stride(2), cos, sin, pairs, half_split ? 1 : 2, half_split ? pairs : 1,
         args.inverse ? A(-1) : A(1));
  }
}

int64_t position_of(const Rotary& args, int64_t token) {
  if (!args.positions) return args.start + token % args.q.dim(1);
  return args.positions.dtype() == DType::i32 ? args.positions.data_as<int32_t>()[token]
                                              : args.positions.data_as<int64_t>()[token];
}

}  // namespace

void rotary(const Rotary& args) {
  const int64_t tokens = args.q.dim(0) * args.q.dim(1);
  for (int64_t i = 0; args.positions && i < tokens; ++i) {
    const int64_t position = position_of(args, i);
    require(position >= 0 && position < args.cos.dim(0), "rotary: position ", position,
            " of token ", i, " is outside the table of ", args.cos.dim(0));
  }
  const int64_t width =
      2 * args.cos.cols() * (args.q.dim(2) + (args.k ? args.k.dim(2) : int64_t{0}));
  const int64_t grain = std::max<int64_t>(1, (1 << 13) / (width + 1));
  dispatch_float(args.q.dtype(), [&]<class T>() {
    parallel_for(tokens, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t b = i / args.q.dim(1);
        const int64_t t = i % args.q.dim(1);
        turn_heads<T>(args.q, b, t, args, position_of(args, i));
        if (args.k) turn_heads<T>(args.k, b, t, args, position_of(args, i));
      }
    });
  });
}

}  // namespace zinc::kernels::cpu
