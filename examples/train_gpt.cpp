// A transformer written with zinc's layers, trained on a text file, and saved:
//
//   mpirun -np 2 build/release/example_train_gpt examples/bible.json text.txt 50 out
//
// The configuration is DeepSpeed's JSON; its zero_optimization.stage decides what is sharded.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "zinc.h"

namespace {

constexpr int64_t kSequence = 64;

// x + attn(ln_1(x)), then x + mlp(ln_2(x)).
struct Block : zinc::nn::Module {
  Block(Module& parent, std::string name, int64_t width)
      : Module(parent, std::move(name)),
        ln_1{*this, "ln_1", {.features = width}},
        attn{*this, "attn", {.features = width, .heads = 4, .causal = true}},
        ln_2{*this, "ln_2", {.features = width}},
        mlp{*this, "mlp", {.features = width, .hidden = 4 * width}} {
    mark_shard_unit();
  }
  zinc::nn::LayerNorm ln_1;
  zinc::nn::SelfAttention attn;
  zinc::nn::LayerNorm ln_2;
  zinc::nn::Mlp mlp;

  zinc::Tensor forward(const zinc::Tensor& x) {  // [B, T, C] -> [B, T, C]
    const zinc::Tensor y = zinc::add(x, attn.forward(ln_1.forward(x)));
    return zinc::add(y, mlp.forward(ln_2.forward(y)));
  }
};

struct ByteModel : zinc::nn::Model {
  static constexpr int64_t kWidth = 128;
  zinc::nn::Embedding wte{*this, "wte", {.count = 256, .features = kWidth}};
  zinc::nn::Embedding wpe{*this, "wpe", {.count = kSequence, .features = kWidth}};
  zinc::nn::ModuleList<Block> h{*this, "h", 3, kWidth};
  zinc::nn::LayerNorm ln_f{*this, "ln_f", {.features = kWidth}};
  zinc::nn::Linear head{*this, "head", {.in = kWidth, .out = 256, .bias = false}};

  zinc::Tensor hidden(const zinc::Tensor& ids) {
    zinc::Tensor x = zinc::embedding(ids, wte.weight(), wpe.weight());
    for (Block& block : h) x = block.forward(x);
    return ln_f.forward(x);
  }
  zinc::Tensor loss(const zinc::Batch& batch) override {
    return zinc::linear_cross_entropy(hidden(batch.input_ids), head.weight(), batch.labels);
  }
  zinc::Tensor next_logits(const zinc::Tensor& ids) override {
    const zinc::Tensor x = hidden(ids);
    const zinc::Tensor last = zinc::contiguous(zinc::narrow(x, 1, x.dim(1) - 1, 1));
    return zinc::linear(zinc::reshape(last, {x.dim(0), kWidth}), head.weight());
  }
  std::string_view model_type() const override { return "byte_model"; }
  int64_t vocab_size() const override { return 256; }
  int64_t max_sequence() const override { return kSequence; }
  double flops_per_token(int64_t sequence) override {
    return 6.0 * static_cast<double>(num_parameters() + 3 * kWidth * sequence);
  }
};

// Prints what the run tells, on one rank.
struct Printer : zinc::train::TrainerObserver {
  void on_step(const zinc::train::StepMetrics& metrics, const zinc::train::Progress&) override {
    if (metrics.step != 1 && metrics.step % 10 != 0) return;
    std::printf("step %lld loss %.4f\n", static_cast<long long>(metrics.step), metrics.loss);
  }
};

void train(const std::string& config_path, const std::string& text_path, int64_t steps,
           const std::string& out) {
  zinc::World world = zinc::connect();
  const zinc::Config config =
      zinc::load_config(config_path, world, {.micro_batch = 16, .total_steps = steps});
  const zinc::train::TokenWindows dataset(zinc::train::TokenSequence::open({text_path}),
                                          {.seq_len = kSequence, .vocabulary_size = 256});
  ByteModel model;
  zinc::Loader loader(dataset, zinc::loader_options(config, world, kSequence));
  Printer printer;
  // The folder with metrics.jsonl, the trace, the weights in final/: see train/run.h. A loop of
  // one's own is engine.forward(batch), engine.backward(loss), engine.step().
  zinc::train::Run run(world, config, {.out = out, .steps = steps});
  run.begin();
  run.make_engine(model);
  run.train(loader, nullptr, world.is_main() ? &printer : nullptr);
  run.end();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: %s CONFIG.json TEXT STEPS OUT\n", argv[0]);
    return 64;
  }
  try {
    train(argv[1], argv[2], std::atoll(argv[3]), argv[4]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    zinc::abort_job(1);  // of several ranks; returns where this process is alone
    return 1;
  }
  return 0;
}
