#include "optim/update_elements.h"

#include "core/error.h"
#include "core/float16.h"

namespace zinc::optim::detail {
namespace {

template <class A>
void load(const ConstView& from, int64_t begin, int64_t count, A* to) {
  dispatch_float(from.dtype(), [&]<class T>() {
    const T* values = from.data_as<T>() + begin;
    for (int64_t i = 0; i < count; ++i)
      to[i] = static_cast<A>(static_cast<AccumulatorOf<T>>(values[i]));
  });
}

template <class A>
void store(const A* from, const View& to, int64_t begin, int64_t count) {
  dispatch_float(to.dtype(), [&]<class T>() {
    T* values = to.data_as<T>() + begin;
    for (int64_t i = 0; i < count; ++i) values[i] = T(static_cast<AccumulatorOf<T>>(from[i]));
  });
}

}  // namespace

bool may_update_on_host(const Update& args, const View& changed, int num_states) {
  if (changed.device().meta) return false;
  require(changed.device().is_cpu(), "update_elements: the weights are on ", changed.device(),
          ", where an update needs a kernel; or keep the states on the CPU: \"offload_optimizer\": "
          "{\"device\": \"cpu\"}");
  require(num_states >= 0 && num_states <= kMaxOptimizerStates, "update_elements: ", num_states,
          " states; ", kMaxOptimizerStates, " at most");
  for (size_t i = 0; i < static_cast<size_t>(num_states); ++i) {
    require(args.states[i].dtype() == changed.dtype(), "update_elements: state ", i, " is ",
            args.states[i].dtype(), ", and the weights are ", changed.dtype());
  }
  return true;
}

bool is_skipped(const Update& args) { return args.skip && *args.skip.data_as<int32_t>() != 0; }

double factor_of(const Update& args) {
  return args.factor ? double{*args.factor.data_as<float>()} : 1.0;
}

void load_elements(const ConstView& from, int64_t begin, int64_t count, float* to) {
  load(from, begin, count, to);
}
void load_elements(const ConstView& from, int64_t begin, int64_t count, double* to) {
  load(from, begin, count, to);
}
void store_elements(const float* from, const View& to, int64_t begin, int64_t count) {
  store(from, to, begin, count);
}
void store_elements(const double* from, const View& to, int64_t begin, int64_t count) {
  store(from, to, begin, count);
}

}  // namespace zinc::optim::detail
