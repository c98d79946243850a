// optim/update_elements.h: an update rule of a client's own, from functions of one element.
// docs/own-optimizer.md has examples.
//
// The function runs on the CPU: for every engine on CPU ranks, and on a GPU for states in host
// memory or swap space. States on a GPU need a kernel.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "core/parallel.h"
#include "core/stream.h"
#include "core/view.h"
#include "optim/optimizer.h"

namespace zinc::optim {

namespace detail {

// Throws InvalidArgument if the CPU cannot read the views, or a state has another dtype than
// `changed`, the weights or the direction. Returns false on a meta device, where nothing is
// computed.
bool may_update_on_host(const Update& args, const View& changed, int num_states);
bool is_skipped(const Update& args);
double factor_of(const Update& args);
// Elements [begin, begin + count) of a view.
void load_elements(const ConstView& from, int64_t begin, int64_t count, float* to);
void load_elements(const ConstView& from, int64_t begin, int64_t count, double* to);
void store_elements(const float* from, const View& to, int64_t begin, int64_t count);
void store_elements(const double* from, const View& to, int64_t begin, int64_t count);

// `from`: what an element of `to` is before; absent: 0.
template <class A, class Step>
void update_on_host(const Update& args, const ConstView& from, const View& to, int num_states,
                    const Step& step) {
  constexpr int64_t kBlock = 256;
  constexpr int64_t kGrain = 64 * kBlock;
  if (is_skipped(args)) return;
  const auto factor = static_cast<A>(factor_of(args));
  const A* before = from ? from.data_as<A>() : nullptr;
  A* changed = to.data_as<A>();
  parallel_for(to.numel(), kGrain, [&](int64_t first, int64_t last) {
    std::array<A, kBlock> gradients{};
    for (int64_t begin = first; begin < last; begin += kBlock) {
      const int64_t count = std::min(kBlock, last - begin);
      load_elements(args.gradient, begin, count, gradients.data());
      for (int64_t i = begin; i < begin + count; ++i) {
        std::array<A, kMaxOptimizerStates> states{};
        for (size_t s = 0; s < static_cast<size_t>(num_states); ++s) {
          states[s] = args.states[s].data_as<A>()[i];
        }
        A value = before != nullptr ? before[i] : A(0);
        step(value, gradients[static_cast<size_t>(i - begin)] * factor, states);
        changed[i] = value;
        for (size_t s = 0; s < static_cast<size_t>(num_states); ++s) {
          args.states[s].data_as<A>()[i] = states[s];
        }
      }
      if (args.model_weights) store_elements(changed + begin, args.model_weights, begin, count);
    }
  });
}

template <class Step>
void change_elements(const Update& args, const View& changed, int num_states, StreamRef stream,
                     const Step& step) {
  if (!may_update_on_host(args, changed, num_states)) return;
  stream.submit("update_elements", [args, changed, num_states, step] {
    if (changed.dtype() == DType::f64) {
      update_on_host<double>(args, args.weights, changed, num_states, step);
    } else {
      update_on_host<float>(args, args.weights, changed, num_states, step);
    }
  });
}

}  // namespace detail

// For Optimizer::update() and WholeRule::apply(): calls step(weight, gradient, states) for every
// element. A is f32, and f64 for f64 weights.
//   A& weight                                     to be changed
//   A gradient                                    of the mean loss, clipped
//   std::array<A, kMaxOptimizerStates>& states    the first `num_states` of them, to be changed
// `step` is copied, and called by several threads at once. Asynchronous on `stream`. Throws
// InvalidArgument.
template <class Step>
void update_elements(const Update& args, int num_states, StreamRef stream, const Step& step) {
  detail::change_elements(args, args.weights, num_states, stream, step);
}

// For WholeRule::direct(): calls step(direction, gradient, states) for every element, as
// update_elements() does. For a rule whose directions have the dtype of weights.
//   A& direction    to be set; before, the weight, for a rule that measures() weights, else 0
template <class Step>
void direct_elements(const Update& args, int num_states, StreamRef stream, const Step& step) {
  detail::change_elements(args, args.direction, num_states, stream, step);
}

}  // namespace zinc::optim
