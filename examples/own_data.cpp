// Data that are no text, and a figure of one's own: a classifier of small images.
//
//   build/release/example_own_data examples/classify.json out
//
// It trains twice. First through train::Run: the loader carries whole numbers, so a pixel travels
// as a byte and the model scales it. Then in a loop with batches of floats that the program makes
// itself. The losses are equal to the last bit. docs/own-data.md goes through it; the second loss
// and its file are docs/own-figures.md.
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "comm/gather_values.h"
#include "zinc.h"

namespace nn = zinc::nn;
using zinc::Tensor;

constexpr int64_t kSide = 8, kPixels = kSide * kSide, kWidth = 32, kSamples = 1000;
constexpr double kWhite = 256.0;  // a power of two: scaling rounds nothing

struct Classifier : nn::Model {
  nn::Linear rows{*this, "rows", {.in = kSide, .out = kWidth}};
  nn::Embedding places{*this, "places", {.count = kSide, .features = kWidth}};
  nn::LayerNorm norm{*this, "norm", {.features = kWidth}};
  nn::SelfAttention attention{
      *this, "attention", {.features = kWidth, .heads = 4, .causal = false}};
  nn::Linear head{*this, "head", {.in = kWidth, .out = 2}};
  Tensor last_penalty;  // of the last micro-batch on this rank

  static Tensor pixels(const zinc::Batch& batch) {  // [B, kPixels] f32, 0 to 1
    const Tensor floats = batch.find("pixels");
    if (floats.defined()) return floats;
    return zinc::cast(batch["input_ids"], zinc::DType::f32) * (1.0 / kWhite);
  }
  Tensor logits(const zinc::Batch& batch) {  // [B, 2]
    const int64_t images = batch.rows();
    const Tensor x = rows.forward(zinc::reshape(pixels(batch), {images, kSide, kSide}));
    const Tensor y = x + zinc::value(places.weight());
    return head.forward(zinc::mean(y + attention.forward(norm.forward(y)), {1}));
  }
  // The sum over all targets. The second loss keeps logits near zero; it is a sum, too.
  Tensor loss(const zinc::Batch& batch) override {
    const Tensor scores = logits(batch);
    const Tensor size = zinc::logsumexp(scores, {-1});
    const Tensor penalty = zinc::sum(size * size) * 0.01;
    last_penalty = penalty.detach();
    return zinc::cross_entropy(scores, batch["labels"]) + penalty;
  }
};

struct Image {
  std::vector<int32_t> pixels;
  int32_t label = 0;
};

// Stripes, upright or lying, under noise. The same for every call, on every rank.
Image image(int64_t index) {
  std::mt19937 random(static_cast<unsigned>(index));
  Image result{.label = static_cast<int32_t>(random() % 2)};
  for (int64_t i = 0; i < kPixels; ++i) {
    const int64_t line = result.label == 1 ? i % kSide : i / kSide;
    result.pixels.push_back(static_cast<int32_t>(random() % 128 + (line % 2 == 0 ? 128 : 0)));
  }
  return result;
}

// A figure beside those of metrics.jsonl, in a file that zinc plot draws: the penalties of all
// ranks together. Observers are called on every rank, in the same order; one rank writes.
class Penalties final : public zinc::train::TrainerObserver {
 public:
  Penalties(zinc::World& world, std::string path, const Classifier& model)
      : world_(world), path_(std::move(path)), model_(model) {}
  void on_step(const zinc::train::StepMetrics& metrics, const zinc::train::Progress&) override {
    const double own[] = {model_.last_penalty.item()};
    const std::vector<double> all = zinc::comm::gather_values(world_, own);
    if (!world_.is_main()) return;
    // Not before the first step: until then the folder's name may be that of a run it replaces.
    if (!file_.is_open()) file_.open(path_);
    file_ << "{\"step\":" << metrics.step << ",\"loss\":" << metrics.loss
          << ",\"val_penalty\":" << std::accumulate(all.begin(), all.end(), 0.0) << "}\n"
          << std::flush;
  }

 private:
  zinc::World& world_;
  const std::string path_;
  std::ofstream file_;
  const Classifier& model_;
};

// Every loss of a run, for the comparison.
struct Losses final : zinc::train::TrainerObserver {
  std::vector<double> all;
  void on_step(const zinc::train::StepMetrics& metrics, const zinc::train::Progress&) override {
    all.push_back(metrics.loss);
  }
};

constexpr int64_t kSteps = 60;

std::vector<double> by_run(zinc::World& world, const zinc::Config& config,
                           const zinc::Dataset& data, const std::string& out) {
  zinc::Loader loader(data, zinc::loader_options(config, world, kPixels));
  Classifier model;
  zinc::train::Run run(world, config, {.out = out, .force = true, .steps = kSteps});
  run.begin();
  run.make_engine(model, loader);
  Losses losses;
  Penalties penalties(world, out + "/penalty.jsonl", model);
  zinc::train::ObserverList both({&losses, &penalties});
  run.train(loader, {}, &both);
  run.end();
  return losses.all;
}

// The floats of some samples as a batch.
zinc::Batch batch_of(const std::vector<int64_t>& samples) {
  std::vector<float> pixels;
  std::vector<int32_t> labels;
  for (const int64_t index : samples) {
    const Image one = image(index);
    for (const int32_t pixel : one.pixels) pixels.push_back(static_cast<float>(pixel / kWhite));
    labels.push_back(one.label);
  }
  const int64_t images = std::ssize(samples);
  return {.tensors = {{"pixels", Tensor::from(pixels, {images, kPixels})},
                      {"labels", Tensor::from(labels, {images})}},
          .num_targets = images,  // the terms of the loss: the engine divides by their sum
          .num_tokens = images * kPixels};
}

std::vector<double> by_loop(zinc::World& world, const zinc::Config& config,
                            const zinc::Dataset& data) {
  const int64_t images = config.engine.batch.micro_batch;
  Classifier model;
  zinc::Engine engine = zinc::initialize(
      model, config, world,
      {.total_steps = kSteps,
       .example = [&] { return batch_of(std::vector<int64_t>(static_cast<size_t>(images), 0)); }});
  // The loader's order of samples, without the loader: any other order is as good.
  const zinc::LoaderOptions order = zinc::loader_options(config, world, kPixels);
  std::vector<double> losses;
  for (int64_t micro_batch = 0; std::ssize(losses) < kSteps; ++micro_batch) {
    const int64_t number = micro_batch * order.world + order.rank;
    const auto samples = zinc::data::micro_batch_samples(data, order, number * images);
    engine.backward(engine.forward(batch_of(samples)));
    const zinc::StepResult result = engine.step();
    if (result.outcome != zinc::StepOutcome::accumulated) losses.push_back(result.loss);
  }
  return losses;
}

void train(const std::string& config_path, const std::string& out) {
  zinc::World world = zinc::connect();
  const zinc::Config config = zinc::load_config(config_path, world, {.total_steps = kSteps});
  const auto data =
      zinc::make_dataset(kSamples,
                         [](int64_t index) {
                           const Image one = image(index);
                           return zinc::Sample{.tokens = one.pixels, .labels = {one.label}};
                         },
                         {.labels = zinc::LabelsOf::row});
  const std::vector<double> a = by_run(world, config, *data, out);
  const std::vector<double> b = by_loop(world, config, *data);
  if (world.is_main()) std::printf("loss %.4f, then %.4f\n", a.front(), a.back());
  zinc::require(a == b, "the two ways differ");
  zinc::require(a.back() < 0.5 * a.front(), "nothing was learned");
  zinc::require(std::ifstream(out + "/penalty.jsonl").good(), "the figures are not in ", out);
  if (world.is_main()) std::puts("bytes by a loader, floats by a loop: equal to the last bit");
}

int main(int argc, char** argv) {
  if (argc != 3) return std::puts("usage: example_own_data CONFIG.json OUT"), 64;
  return zinc::run_program([&] { train(argv[1], argv[2]); });
}
