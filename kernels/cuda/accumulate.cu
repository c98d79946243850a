// accumulator = accumulator + x, or x: maps (elementwise.h); 3 or 2 arrays of traffic.
#include "kernels/accumulate.h"

#include "kernels/cuda/elementwise.h"

namespace zinc::kernels::cuda {
namespace {

struct Same : HotFunction {
  __device__ __forceinline__ void operator()(const float (&in)[1], float (&out)[1]) const {
    out[0] = in[0];
  }
};
struct Sum : HotFunction {
  __device__ __forceinline__ void operator()(const float (&in)[2], float (&out)[1]) const {
    out[0] = in[0] + in[1];
  }
};

}  // namespace

void accumulate(const Accumulate& args, StreamRef stream) {
  dispatch_device_float("accumulate", args.accumulator.dtype(), [&]<class To>() {
    dispatch_device_float("accumulate", args.x.dtype(), [&]<class T>() {
      const std::array<View, 1> out{args.accumulator};
      if (args.overwrite) {
        launch_map<To, T>(Same{}, out, std::array<ConstView, 1>{args.x}, stream);
      } else {
        launch_map<To, To, T>(Sum{}, out, std::array<ConstView, 2>{args.accumulator, args.x},
                              stream);
      }
    });
  });
}

}  // namespace zinc::kernels::cuda
