// An encoder that says of words of digits whether the largest digit comes before the middle:
// mpirun -np 2 build/release/example_classify examples/classify.json 200 out
#include <algorithm>
#include <cstdio>
#include <random>
#include <string>

#include "zinc.h"

namespace nn = zinc::nn;
using zinc::Tensor;

constexpr int64_t kWidth = 64, kLongest = 24, kSamples = 4000, kHeldOut = 400;

struct Layer : nn::Module {
  using Module::Module;
  nn::LayerNorm norm_1{*this, "norm_1", {.features = kWidth}};
  nn::SelfAttention attn{*this, "attn", {.features = kWidth, .heads = 4, .causal = false}};
  nn::LayerNorm norm_2{*this, "norm_2", {.features = kWidth}};
  nn::Mlp mlp{*this, "mlp", {.features = kWidth, .hidden = 4 * kWidth}};

  Tensor forward(const Tensor& x, const Tensor& lengths) {  // [B, T, C], [B] -> [B, T, C]
    const Tensor y = x + attn.forward(norm_1.forward(x), {.lengths = lengths});
    return y + mlp.forward(norm_2.forward(y));
  }
};

struct Classifier : nn::Model {
  nn::Embedding digits{*this, "digits", {.count = 10, .features = kWidth}};
  nn::Embedding places{*this, "places", {.count = kLongest, .features = kWidth}};
  nn::ModuleList<Layer> layers{*this, "layers", 2};
  nn::Linear head{*this, "head", {.in = kWidth, .out = 2}};

  Tensor logits(const zinc::Batch& batch) {  // [B, 2]
    const Tensor &ids = batch["input_ids"], &lengths = batch["lengths"];
    Tensor x = zinc::embedding(ids, digits.weight(), places.weight());
    for (Layer& layer : layers) x = layer.forward(x, lengths);
    return head.forward(zinc::mean_over_tokens(x, lengths));
  }
  Tensor loss(const zinc::Batch& batch) override {
    return zinc::cross_entropy(logits(batch), batch["labels"]);
  }
};

zinc::Sample word(int64_t index) {
  std::mt19937 random(static_cast<unsigned>(index));
  const auto below = [&](unsigned n) { return static_cast<int32_t>(random() % n); };
  zinc::Sample sample{.tokens = std::vector<int32_t>(static_cast<size_t>(4 + below(20)))};
  for (int32_t& digit : sample.tokens) digit = below(10);
  const auto largest = std::max_element(sample.tokens.begin(), sample.tokens.end());
  sample.labels = {2 * (largest - sample.tokens.begin()) < std::ssize(sample.tokens) ? 1 : 0};
  return sample;
}

void train(const std::string& config_path, int64_t steps, const std::string& out) {
  zinc::World world = zinc::connect();
  const zinc::Config config = zinc::load_config(config_path, world, {.total_steps = steps});
  const zinc::BatchFields fields{.lengths = true, .labels = zinc::LabelsOf::row};
  const auto data = zinc::make_dataset(kSamples, word, fields);
  zinc::Loader loader(*data, zinc::loader_options(config, world, kLongest));
  Classifier model;
  zinc::train::Run run(world, config, {.out = out, .steps = steps});
  run.begin();
  zinc::Engine& engine = run.make_engine(model, loader);
  const zinc::train::TrainResult result = run.train(loader);

  const auto held_out = [](int64_t index) { return word(kSamples + index); };
  const auto test = zinc::make_dataset(kHeldOut, held_out, fields);
  const auto batch = zinc::EvaluationSet(*test, {.batch = kHeldOut, .seq_len = kLongest}).batch(0);
  const auto found =
      engine.predict([&] { return zinc::argmax(model.logits(batch)).to_vector<int64_t>(); });
  const double right = zinc::accuracy(batch["labels"].to_vector<int64_t>(), found);
  if (world.is_main()) std::printf("loss %.3f, accuracy %.3f\n", result.loss, right);
  run.end();
}

int main(int argc, char** argv) {
  if (argc != 4) return std::puts("usage: example_classify CONFIG.json STEPS OUT"), 64;
  return zinc::run_program([&] { train(argv[1], std::atoll(argv[2]), argv[3]); });
}
