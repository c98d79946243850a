#include "kernels/swiglu.h"

#include <cmath>

#include "kernels/cpu/row_walk.h"

namespace zinc::kernels::cpu {
namespace {

template <class A>
A sigmoid(A x) {
  return A(1) / (A(1) + std::exp(-x));
}

}  // namespace

void swiglu_forward(const SwiGluForward& args) {
  dispatch_float(args.gate.dtype(), [&]<class T>() {
    using A = AccumulatorOf<T>;
    const T* gate = args.gate.data_as<T>();
    const T* up = args.up.data_as<T>();
    T* y = args.y.data_as<T>();
    parallel_elements(
        args.gate.shape(),
        [&](const auto& at, int64_t n) {
          for (int64_t i = 0; i < n; ++i) {
            const A z = A(gate[at[0] + i]);
            y[at[2] + i] = T(z * sigmoid(z) * A(up[at[1] + i]));
          }
        },
        args.gate, args.up, args.y);
  });
}

void swiglu_backward(const SwiGluBackward& args) {
  dispatch_float(args.gate.dtype(), [&]<class T>() {
    using A = AccumulatorOf<T>;
    const T* dy = args.dy.data_as<T>();
    const T* gate = args.gate.data_as<T>();
    const T* up = args.up.data_as<T>();
    T* dgate = args.dgate.data_as<T>();
    T* dup = args.dup.data_as<T>();
    parallel_elements(
        args.gate.shape(),
        [&](const auto& at, int64_t n) {
          for (int64_t i = 0; i < n; ++i) {
            const A z = A(gate[at[1] + i]);
            const A s = sigmoid(z);
            const A d = A(dy[at[0] + i]);
            const A slope = s * (A(1) + z * sigmoid(-z));
            const A u = A(up[at[2] + i]);
            dgate[at[3] + i] = T(d * u * slope);
            dup[at[4] + i] = T(d * z * s);
          }
        },
        args.dy, args.gate, args.up, args.dgate, args.dup);
  });
}

}  // namespace zinc::kernels::cpu
