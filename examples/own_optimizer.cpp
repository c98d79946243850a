// Update rules of one's own: one that looks at an element alone, and one that looks at whole
// matrices, in one optimizer.
//
//   build/release/example_own_optimizer
//
// Two ranks, threads of this process, train a small GPT-2: with whole states on every rank, on
// ZeRO stage 3, and on stage 2 with states in host memory. The losses are equal to the last bit,
// because a rule does not see where its states are. docs/own-optimizer.md goes through it.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "optim/update_elements.h"
#include "zinc.h"

namespace {

// For the weights of linear layers in the model's blocks: the momentum, each row of length 1.
class NormalizedRows final : public zinc::optim::WholeRule {
 public:
  bool takes(const zinc::autograd::Parameter&) const override { return true; }
  int num_states() const override { return 1; }
  std::string_view state_name(int) const override { return "momentum_buffer"; }

  // Any range of elements, where their states are: from gradients to directions.
  void direct(const zinc::optim::Update& args, const zinc::optim::HyperParameters& hyper,
              zinc::StreamRef stream) const override {
    zinc::optim::direct_elements(args, num_states(), stream,
                                 [hyper]<class A>(A& direction, A gradient, auto& states) {
                                   states[0] = A(hyper.momentum) * states[0] + gradient;
                                   direction = states[0];
                                 });
  }

  // A whole matrix, on the rank that owns it: from directions to steps, in place.
  void transform(const zinc::optim::WholeParameter& parameter, const zinc::optim::HyperParameters&,
                 zinc::StreamRef stream) const override {
    const zinc::View matrix = parameter.direction;
    if (matrix.device().meta) return;  // a plan: nothing is computed
    stream.submit("normalize_rows", [matrix] {
      const int64_t columns = matrix.dim(1);
      for (int64_t i = 0; i < matrix.dim(0); ++i) {
        const std::span<float> row(matrix.data_as<float>() + i * columns,
                                   static_cast<size_t>(columns));
        double sum = 0.0;
        for (const float value : row) sum += double{value} * double{value};
        const auto scale = static_cast<float>(sum > 0.0 ? 1.0 / std::sqrt(sum) : 0.0);
        for (float& value : row) value *= scale;
      }
    });
  }

  // Any range of elements, where their weights are.
  void apply(const zinc::optim::Update& args, const zinc::optim::HyperParameters& hyper,
             zinc::StreamRef stream) const override {
    zinc::optim::update_elements(args, 0, stream, [hyper]<class A>(A& weight, A step, auto&) {
      weight -= A(hyper.lr) * (step + A(hyper.weight_decay) * weight);
    });
  }

  int64_t flops(int64_t rows, int64_t columns) const override { return 3 * rows * columns; }
};

// All other parameters: Signum (Bernstein et al., ICML 2018), the sign of a running mean.
class RowsAndSigns final : public zinc::optim::Optimizer {
 public:
  std::string_view name() const override { return "RowsAndSigns"; }
  int num_states() const override { return 1; }
  std::string_view state_name(int) const override { return "exp_avg"; }
  const zinc::optim::WholeRule* whole_rule() const override { return &matrices_; }

  void update(const zinc::optim::Update& args, const zinc::optim::HyperParameters& hyper,
              zinc::StreamRef stream) const override {
    zinc::optim::update_elements(args, num_states(), stream,
                                 [hyper]<class A>(A& weight, A gradient, auto& states) {
                                   A& mean = states[0];
                                   mean = A(hyper.beta1) * mean + A(1.0 - hyper.beta1) * gradient;
                                   const A sign = mean > A(0) ? A(1) : mean < A(0) ? A(-1) : A(0);
                                   weight -= A(hyper.lr) * (sign + A(hyper.weight_decay) * weight);
                                 });
  }

 private:
  NormalizedRows matrices_;
};

// The same text every time: the model learns it.
zinc::Batch batch_of(int rank, int64_t vocabulary) {
  constexpr int64_t kSequences = 2, kPositions = 32;
  std::vector<int32_t> ids;
  for (int64_t i = 0; i <= kSequences * kPositions; ++i) {
    ids.push_back(static_cast<int32_t>((i * i + 7 * rank) % vocabulary));
  }
  const std::vector<int32_t> inputs(ids.begin(), ids.end() - 1);
  const std::vector<int32_t> labels(ids.begin() + 1, ids.end());
  const zinc::Shape shape{kSequences, kPositions};
  return {.tensors = {{"input_ids", zinc::Tensor::from<int32_t>(inputs, shape)},
                      {"labels", zinc::Tensor::from<int32_t>(labels, shape)}},
          .num_targets = kSequences * kPositions,
          .num_tokens = kSequences * kPositions};
}

std::vector<double> train(zinc::Config config) {
  config.engine.batch.micro_batch = 2;
  config.engine.optimizer.hyper = {.lr = 1e-3, .weight_decay = 0.1};
  // Matrices take longer steps. The decay is the same.
  config.engine.optimizer.matrix_hyper = {.lr = 3e-2, .weight_decay = 0.1, .momentum = 0.9};
  config.engine.zero.allow_untested_optimizer = true;  // stages 1 to 3: the rule sees shards
  config.engine.zero.force_cpu_optimizer = false;      // offload_optimizer: the CPU runs the rule
  std::vector<double> found;
  zinc::run_local_ranks(2, {.seed = 7, .num_threads = 1}, [&](zinc::World& world) {
    zinc::nn::Gpt2 model({.vocab_size = 256,
                          .max_positions = 32,
                          .hidden_size = 64,
                          .num_layers = 4,
                          .num_heads = 4});
    zinc::EngineOptions options;
    options.optimizer = std::make_unique<RowsAndSigns>();
    zinc::Engine engine = zinc::initialize(model, config, world, std::move(options));
    std::vector<double> losses;
    for (int64_t step = 0; step < 12; ++step) {
      engine.backward(engine.forward(batch_of(world.rank(), model.vocab_size())));
      losses.push_back(engine.step().loss);
    }
    if (world.is_main()) found = losses;
  });
  return found;
}

bool compare() {
  zinc::Config whole, sharded, in_host;
  whole.engine.zero.stage = 0;
  sharded.engine.zero.stage = 3;
  in_host.engine.zero.stage = 2;
  in_host.engine.zero.offload_optimizer.device = zinc::zero::OffloadDevice::cpu;
  const std::vector<double> a = train(whole), b = train(sharded), c = train(in_host);
  std::printf("step   stage 0    stage 3    stage 2, states in host memory\n");
  for (size_t i = 0; i < a.size(); i += 11) {
    std::printf("%4zu   %.6f   %.6f   %.6f\n", i + 1, a[i], b[i], c[i]);
  }
  const bool equal = a == b && a == c;
  std::printf("the losses are %s\n", equal ? "equal to the last bit" : "different");
  return equal && a.back() < 0.9 * a.front();
}

}  // namespace

int main() {
  try {
    return compare() ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
