// A decoder with a gated MLP of its own, written with zinc's layers, trained on a text file, saved,
// and asked to go on with a text:
//
//   mpirun -np 2 build/release/example_train_gpt examples/bible.json text.txt 50 out
//
// The configuration is DeepSpeed's JSON; its zero_optimization.stage decides what is sharded.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "zinc.h"

namespace nn = zinc::nn;
using zinc::Tensor;

constexpr int64_t kSequence = 64, kWidth = 128, kBytes = 256;

// down(silu(gate(x)) * up(x))
struct GatedMlp : nn::Module {
  using Module::Module;
  nn::Linear gate{*this, "gate", {.in = kWidth, .out = 3 * kWidth, .bias = false}};
  nn::Linear up{*this, "up", {.in = kWidth, .out = 3 * kWidth, .bias = false}};
  nn::Linear down{*this, "down", {.in = 3 * kWidth, .out = kWidth, .bias = false}};

  Tensor forward(const Tensor& x) {
    return down.forward(zinc::silu(gate.forward(x)) * up.forward(x));
  }
};

// x + attn(norm_1(x)), then x + mlp(norm_2(x)).
struct Block : nn::Module {
  using Module::Module;
  nn::RMSNorm norm_1{*this, "norm_1", {.features = kWidth}};
  nn::SelfAttention attn{*this, "attn", {.features = kWidth, .heads = 4, .causal = true}};
  nn::RMSNorm norm_2{*this, "norm_2", {.features = kWidth}};
  GatedMlp mlp{*this, "mlp"};

  Tensor forward(const Tensor& x) {  // [B, T, C] -> [B, T, C]
    const Tensor y = x + attn.forward(norm_1.forward(x));
    return y + mlp.forward(norm_2.forward(y));
  }
};

struct ByteModel : nn::Model, nn::CausalLm {
  nn::Embedding wte{*this, "wte", {.count = kBytes, .features = kWidth}};
  nn::Embedding wpe{*this, "wpe", {.count = kSequence, .features = kWidth}};
  nn::ModuleList<Block> h{*this, "h", 3};
  nn::RMSNorm norm{*this, "norm", {.features = kWidth}};
  nn::Linear head{*this, "head", {.in = kWidth, .out = kBytes, .bias = false}};

  Tensor hidden(const Tensor& ids) {
    Tensor x = zinc::embedding(ids, wte.weight(), wpe.weight());
    for (Block& block : h) x = block.forward(x);
    return norm.forward(x);
  }
  Tensor loss(const zinc::Batch& batch) override {  // a sum: the engine divides
    return head.cross_entropy(hidden(batch["input_ids"]), batch["labels"]);
  }
  Tensor next_logits(const Tensor& ids) override {  // [B, T] -> [B, kBytes]
    return zinc::at(head.forward(hidden(ids)), {zinc::Slice{}, -1});
  }
  int64_t max_sequence() const override { return kSequence; }
};

void train(const std::string& config_path, const std::string& text, int64_t steps,
           const std::string& out) {
  zinc::World world = zinc::connect();
  const zinc::Config config = zinc::load_config(config_path, world, {.total_steps = steps});
  const zinc::data::TokenWindows dataset(zinc::data::TokenSequence::open({text}),
                                         {.seq_len = kSequence, .vocabulary_size = kBytes});
  zinc::Loader loader(dataset, zinc::loader_options(config, world, kSequence));
  ByteModel model;
  // The folder with metrics.jsonl, the trace, checkpoints, the weights in final/: train/run.h. A
  // loop of one's own is engine.forward(batch), engine.backward(loss), engine.step().
  zinc::train::Run run(world, config, {.out = out, .steps = steps});
  run.begin();
  zinc::Engine& engine = run.make_engine(model, loader);
  const zinc::train::TrainResult result = run.train(loader);
  if (world.is_main()) std::printf("loss %.4f\n", result.loss);

  const std::string prompt = "And God said, ";
  const std::vector<int32_t> ids(prompt.begin(), prompt.end());
  const auto more = zinc::generate_tokens(engine, ids, {.max_tokens = 40});
  if (world.is_main()) {
    std::printf("%s%s\n", prompt.c_str(), std::string(more.begin(), more.end()).c_str());
  }
  run.end();
}

int main(int argc, char** argv) {
  if (argc == 5) {
    return zinc::run_program([&] { train(argv[1], argv[2], std::atoll(argv[3]), argv[4]); });
  }
  std::fprintf(stderr, "usage: %s CONFIG.json TEXT STEPS OUT\n", argv[0]);
  return 64;
}
