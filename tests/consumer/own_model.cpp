// A program outside of the tree that uses the library for its own model: it checks gradients, saves
// weights and reads them by name, trains, predicts and generates.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <zinc/zinc.h>

namespace nn = zinc::nn;
using zinc::Tensor;

namespace {

struct Own : nn::Model, nn::CausalLm {
  nn::Embedding tokens{*this, "tokens", {.count = 8, .features = 6}};
  nn::Parameter scale{*this, "scale", {6}, zinc::Initializer::ones()};
  nn::Linear head{*this, "head", {.in = 6, .out = 8}};

  Tensor logits(const Tensor& ids) {
    return head.forward(zinc::tanh(tokens.forward(ids) * zinc::value(scale)));
  }
  Tensor loss(const zinc::Batch& batch) override {
    return zinc::cross_entropy(logits(batch["input_ids"]), batch["labels"]);
  }
  Tensor next_logits(const Tensor& ids) override {
    return zinc::at(logits(ids), {zinc::Slice{}, -1});
  }
  int64_t max_sequence() const override { return 16; }
};

// The token after i is i + 1.
zinc::Sample count_from(int64_t index) {
  zinc::Sample sample;
  for (int64_t i = 0; i < 8; ++i) {
    sample.tokens.push_back(static_cast<int32_t>((index + i) % 8));
    sample.labels.push_back(static_cast<int32_t>((index + i + 1) % 8));
  }
  return sample;
}

void expect(bool holds, const std::string& what) {
  if (!holds) throw zinc::Error("does not hold: " + what);
}

void run(const std::string& folder) {
  zinc::World world = zinc::connect();
  const Tensor ids = Tensor::from(std::vector<int32_t>{3, 1, 4, 1}, {2, 2});
  {
    Own model;
    const auto check = nn::gradcheck(
        model, [&] { return zinc::sum(zinc::flatten(zinc::square(model.logits(ids)))); });
    expect(check.ok(), to_string(check));
  }
  const zinc::Config config = zinc::train::parse_config(
      R"({"train_micro_batch_size_per_gpu": 8,
          "optimizer": {"type": "AdamW", "params": {"lr": 0.05}}})",
      "config", world.size());
  const auto data = zinc::make_dataset(64, count_from);
  zinc::Loader loader(*data, zinc::loader_options(config, world, 8));
  Own model;
  zinc::Engine engine = zinc::initialize(model, config, world);
  double loss = 0.0;
  for (int step = 0; step < 80; ++step) {
    engine.backward(engine.forward(loader.next()));
    loss = engine.step().loss;
  }
  expect(loss < 0.1, "a loss of " + std::to_string(loss));
  const std::vector<int32_t> more = zinc::generate_tokens(
      engine, std::vector<int32_t>{2, 3}, {.max_tokens = 3, .sampling = {.temperature = 0.0}});
  expect(more == std::vector<int32_t>{4, 5, 6}, "2 3 goes on with 4 5 6");
  zinc::save_weights(engine, folder, {.replace = true});

  Own again;
  again.load(zinc::SafetensorsWeights(folder, again));
  const auto numbers = [](const Tensor& x) { return x.to_vector<float>(); };
  const auto before = engine.predict([&] { return numbers(model.logits(ids)); });
  expect(before == numbers(again.logits(ids)), "weights read back give the same logits");
}

}  // namespace

int main(int, char** argv) {
  return zinc::run_program([&] { run(argv[1]); });
}
