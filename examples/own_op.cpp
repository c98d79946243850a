// Two ops of one's own with their gradients: a recurrence over time, which is a loop that no
// composition of tensor functions expresses, and a sum over ranks, which is a collective.
//
//   build/release/example_own_op
//
// gradcheck compares the gradients with differences. Then two ranks, threads of this process, train
// a model with both ops on ZeRO stages 0 and 3, and on stage 3 with states and parameters in host
// memory and activations computed again: the losses are equal to the last bit.
// docs/own-op.md goes through it.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "autograd/backward_pass.h"
#include "autograd/node.h"
#include "comm/workspace.h"
#include "core/parallel.h"
#include "nn/gradcheck.h"
#include "zinc.h"

namespace {

using zinc::ConstView;
using zinc::StreamRef;
using zinc::Tensor;
using zinc::View;
namespace nn = zinc::nn;

// --- y[b, t, c] = gate[b, t, c] y[b, t - 1, c] + x[b, t, c]

// Calls visit(first, step) for each (b, c): elements first, first + step, ... are its times.
template <class Visit>
void for_each_series(const zinc::Shape& shape, const Visit& visit) {
  const int64_t times = shape.dim(1), channels = shape.dim(2);
  zinc::parallel_for(shape.dim(0) * channels, 256, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      visit(i / channels * times * channels + i % channels, channels);
    }
  });
}

// x, gate, y: [B, T, C] of one float dtype, contiguous. Sums in f32 (f64 for f64).
void recurrence_forward(ConstView x, ConstView gate, View y, StreamRef stream) {
  if (x.device().meta) return;  // the engine records the model without memory
  zinc::dispatch_float(x.dtype(), [&]<class T>() {
    stream.submit("recurrence", [=] {
      using A = zinc::AccumulatorOf<T>;
      const T *px = x.data_as<T>(), *pg = gate.data_as<T>();
      T* py = y.data_as<T>();
      for_each_series(x.shape(), [&](int64_t at, int64_t step) {
        A state = 0;
        for (int64_t t = 0; t < x.dim(1); ++t, at += step) {
          state = A(pg[at]) * state + A(px[at]);
          py[at] = T(state);
        }
      });
    });
  });
}

// dx[t] = dy[t] + gate[t + 1] dx[t + 1];  dgate[t] = dx[t] y[t - 1]
void recurrence_backward(ConstView dy, ConstView gate, ConstView y, View dx, View dgate,
                         StreamRef stream) {
  if (dy.device().meta) return;
  zinc::dispatch_float(dy.dtype(), [&]<class T>() {
    stream.submit("recurrence_backward", [=] {
      using A = zinc::AccumulatorOf<T>;
      const T *pdy = dy.data_as<T>(), *pg = gate.data_as<T>(), *py = y.data_as<T>();
      T *pdx = dx.data_as<T>(), *pdg = dgate.data_as<T>();
      for_each_series(dy.shape(), [&](int64_t first, int64_t step) {
        A later = 0;  // gate[t + 1] dx[t + 1]
        for (int64_t t = dy.dim(1) - 1; t >= 0; --t) {
          const int64_t at = first + t * step;
          const A sum = A(pdy[at]) + later;
          pdx[at] = T(sum);
          pdg[at] = T(t > 0 ? sum * A(py[at - step]) : A(0));
          later = A(pg[at]) * sum;
        }
      });
    });
  });
}

class RecurrenceNode final : public zinc::autograd::Node {
 public:
  std::string_view name() const override { return "recurrence"; }
  void backward(zinc::autograd::BackwardPass& pass) override {
    const Tensor dy = pass.take_gradient(0);
    const Tensor gate = pass.take_saved(0), y = pass.take_saved(1);
    Tensor dx = pass.gradient_memory(0), dgate = pass.gradient_memory(1);
    recurrence_backward(dy.view(), gate.view(), y.view(), dx.view(), dgate.view(),
                        zinc::autograd::compute_stream());
    pass.give(0, std::move(dx));
    pass.give(1, std::move(dgate));
  }
};

Tensor recurrence(const Tensor& x, const Tensor& gate) {
  zinc::require(x.rank() == 3 && gate.shape() == x.shape() && gate.dtype() == x.dtype(),
                "recurrence: x and gate must be [B, T, C] of one dtype: ", x.shape(), " and ",
                gate.shape());
  const Tensor inputs = zinc::contiguous(x), gates = zinc::contiguous(gate);
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  recurrence_forward(inputs.view(), gates.view(), y.view(), zinc::autograd::compute_stream());
  if (zinc::autograd::needs_gradient(inputs, gates)) {
    auto node = zinc::autograd::make_node<RecurrenceNode>();
    node->add_input(inputs);  // input 0
    node->add_input(gates);   // input 1
    node->save(gates);        // saved tensor 0
    node->save(y);            // saved tensor 1
    node->set_output(y);
  }
  return y;
}

// --- y = the sum of x over the ranks of a communicator. The gradient is summed the same way.

Tensor sum_in_place(Tensor x, zinc::comm::Communicator& ranks) {
  if (x.device().meta) return x;  // collectives do not run while the engine records
  const int64_t bytes =
      ranks.workspace_bytes(zinc::comm::Collective::all_reduce, x.view().bytes(), x.dtype());
  const Tensor workspace = Tensor::empty({bytes}, zinc::DType::u8, zinc::Label::communication);
  ranks.all_reduce({.inout = x.view().reshape({x.numel()}), .workspace = workspace.view()},
                   zinc::autograd::compute_stream());
  return x;
}

class SumOverRanksNode final : public zinc::autograd::Node {
 public:
  explicit SumOverRanksNode(zinc::comm::Communicator& ranks) : ranks_(ranks) {}
  std::string_view name() const override { return "sum_over_ranks"; }
  void backward(zinc::autograd::BackwardPass& pass) override {
    const Tensor dy = pass.take_gradient(0);
    pass.give(0, sum_in_place(dy.is_sole_owner() ? dy : dy.clone(), ranks_));
  }

 private:
  zinc::comm::Communicator& ranks_;
};

// `ranks` must outlive the graph.
Tensor sum_over_ranks(const Tensor& x, zinc::comm::Communicator& ranks) {
  Tensor y = sum_in_place(x.clone(), ranks);
  if (zinc::autograd::needs_gradient(x)) {
    auto node = zinc::autograd::make_node<SumOverRanksNode>(ranks);
    node->add_input(x);
    node->set_output(y);
  }
  return y;
}

// --- a layer and a model

constexpr int64_t kWidth = 32, kPositions = 24;

struct Recurrence : nn::Module {
  using Module::Module;
  nn::Linear in{*this, "in", {.in = kWidth, .out = kWidth}};
  nn::Linear gate{*this, "gate", {.in = kWidth, .out = kWidth}};
  Tensor forward(const Tensor& x) {  // [B, T, C] -> [B, T, C]
    return recurrence(in.forward(x), zinc::sigmoid(gate.forward(x)));
  }
};

struct OwnModel : nn::Model {
  OwnModel(zinc::comm::Communicator& all, bool again) : ranks(&all), recomputes(again) {}
  nn::Embedding bytes{*this, "bytes", {.count = 256, .features = kWidth}};
  nn::ModuleList<Recurrence> layers{*this, "layers", 2};
  nn::Linear head{*this, "head", {.in = kWidth, .out = 256}};
  zinc::comm::Communicator* ranks;
  bool recomputes;

  Tensor loss(const zinc::Batch& batch) override {
    Tensor x = zinc::embedding(batch["input_ids"], bytes.weight());
    for (Recurrence& layer : layers) {
      const auto forward = [&layer](const Tensor& input) { return layer.forward(input); };
      x = x + (recomputes ? zinc::recompute(forward, x) : forward(x));
    }
    // The mean over all ranks is taken out of each row.
    const Tensor mean = sum_over_ranks(zinc::mean(x, {0, 1}, true), *ranks);
    x = x - mean * (1.0 / ranks->size());
    return head.cross_entropy(x, batch["labels"]);
  }
};

bool gradients_are_right() {
  bool right = false;
  zinc::run_local_ranks(1, {.seed = 3, .num_threads = 1}, [&](zinc::World& world) {
    Recurrence layer;
    std::vector<double> values;
    for (int i = 0; i < 2 * 5 * kWidth; ++i) values.push_back(std::sin(0.7 * i));
    const Tensor x = Tensor::from(values, {2, 5, kWidth}, zinc::DType::f64);
    // Gradients of the layer's weights pass through both inputs of the op.
    const nn::GradcheckResult check = nn::gradcheck(layer, [&] {
      const Tensor y = sum_over_ranks(layer.forward(x), world.communicator());
      return zinc::sum(y * y);
    });
    std::printf("gradcheck: %s\n", check.ok() ? "right" : to_string(check).c_str());
    right = check.ok();
  });
  return right;
}

std::vector<double> train(int stage, bool saves_memory) {
  zinc::Config config;
  config.engine.batch.micro_batch = 2;
  config.engine.zero.stage = stage;
  if (saves_memory) {
    config.engine.zero.offload_optimizer.device = zinc::zero::OffloadDevice::cpu;
    config.engine.zero.offload_param.device = zinc::zero::OffloadDevice::cpu;
  }
  config.engine.optimizer.hyper = {.lr = 1e-2};
  std::vector<double> found;
  zinc::run_local_ranks(2, {.seed = 7, .num_threads = 1}, [&](zinc::World& world) {
    OwnModel model(world.communicator(), saves_memory);
    const auto data = zinc::make_dataset(64, [](int64_t index) {
      zinc::Sample sample;
      for (int64_t t = 0; t < kPositions; ++t) {
        sample.tokens.push_back(static_cast<int32_t>((index + 3 * t) % 256));
        sample.labels.push_back(static_cast<int32_t>((index + 3 * t + 3) % 256));
      }
      return sample;
    });
    zinc::Loader loader(*data, zinc::loader_options(config, world, kPositions));
    zinc::Engine engine =
        zinc::initialize(model, config, world, {.example = [&] { return loader.example(); }});
    std::vector<double> losses;
    for (int step = 0; step < 20; ++step) {
      engine.backward(engine.forward(loader.next()));
      losses.push_back(engine.step().loss);
    }
    if (world.is_main()) found = losses;
  });
  return found;
}

bool compare() {
  const std::vector<double> whole = train(0, false), sharded = train(3, false),
                            smallest = train(3, true);
  std::printf("step   stage 0    stage 3    stage 3 in host memory, recomputed\n");
  for (size_t i = 0; i < whole.size(); i += 19) {
    std::printf("%4zu   %.6f   %.6f   %.6f\n", i + 1, whole[i], sharded[i], smallest[i]);
  }
  const bool equal = whole == sharded && whole == smallest;
  std::printf("the losses are %s\n", equal ? "equal to the last bit" : "different");
  return equal && whole.back() < 0.9 * whole.front();
}

}  // namespace

int main() {
  try {
    return gradients_are_right() && compare() ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
