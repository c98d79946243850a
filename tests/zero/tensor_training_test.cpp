// Training with layers in slices gives what one rank gives: losses, norms, weights, states.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "autograd/backward.h"
#include "autograd/ops/binary.h"
#include "autograd/ops/reduce.h"
#include "autograd/ops/scale.h"
#include "autograd/ops/unary.h"
#include "comm/local/local.h"
#include "core/error.h"
#include "nn/attention/kv_cache.h"
#include "nn/dropout.h"
#include "nn/lora.h"
#include "nn/mlp.h"
#include "nn/models/encoder_classifier.h"
#include "parallel/tensor_ranks.h"
#include "tests/nn/plain_lm.h"
#include "tests/zero/mesh_models.h"
#include "tests/zero/tiny_model.h"
#include "tests/zero/tiny_training.h"
#include "zero/engine.h"

namespace zinc::zero {
namespace tensor_training_test {

using testing::HasSubstr;

constexpr int kSteps = 3;
constexpr int64_t kTokens = 12;  // of a text; ranks that share tokens divide them

enum class Kind : uint8_t {
  gpt2,
  gpt2_untied,
  gpt2_without_dropout,
  gpt2_with_dropout_of_scores,
  llama,
  bloom,
  neox,
  chatglm,
  // a model with fewer heads of keys and values than 4 ranks
  qwen3,
  llama_of_one_key,
  chatglm_of_two_keys,
  plain,
  plain_without_norms,
  plain_of_two_keys,
  bert,
  roberta,
  roberta_of_texts,
  classifier,
  t5,
  t5_gated
};

// Encoders, with texts that end early.
bool is_encoder(Kind kind) { return kind >= Kind::bert; }

// V = 37 and the hidden sizes do not divide by 2 or 4: slices are of unequal sizes.
std::unique_ptr<nn::Model> make(Kind kind) {
  switch (kind) {
    case Kind::gpt2:
    case Kind::gpt2_untied:
    case Kind::gpt2_without_dropout:
    case Kind::gpt2_with_dropout_of_scores: {
      nn::Gpt2Config config = test::tiny_config(kind == Kind::gpt2_without_dropout ? 0.0 : 0.1);
      config.attention_dropout = kind == Kind::gpt2_with_dropout_of_scores ? 0.2 : 0.0;
      config.num_heads = 4;
      config.intermediate_size = 41;
      config.tie_word_embeddings = kind != Kind::gpt2_untied;
      return std::make_unique<nn::Gpt2>(config);
    }
    case Kind::llama:
    case Kind::qwen3:
    case Kind::llama_of_one_key: {
      nn::LlamaConfig config = test::tiny_llama_config();
      config.num_kv_heads = kind == Kind::llama ? 4 : kind == Kind::qwen3 ? 2 : 1;
      config.intermediate_size = 39;
      if (kind == Kind::qwen3) config.kind = nn::LlamaKind::qwen3;
      return std::make_unique<nn::Llama>(config);
    }
    case Kind::bloom:
      return test::make_mesh_bloom();
    case Kind::neox:
      return test::make_mesh_neox();
    case Kind::chatglm:
      return test::make_mesh_chatglm();
    case Kind::chatglm_of_two_keys:
      return test::make_mesh_chatglm(2);
    case Kind::plain:
      return std::make_unique<nn::test::PlainLm>();
    case Kind::plain_without_norms:
      return std::make_unique<nn::test::PlainLm>(nn::test::PlainConfig{.norms = false});
    case Kind::plain_of_two_keys:
      return std::make_unique<nn::test::PlainLm>(
          nn::test::PlainConfig{.kv_heads = 2, .norms = false});
    case Kind::bert:
    case Kind::roberta:
    case Kind::roberta_of_texts: {
      nn::BertConfig config = test::tiny_roberta_config();
      if (kind == Kind::bert) {
        config.kind = nn::BertKind::bert;
        config.type_vocab_size = 2;
        config.pad_token = 0;
      }
      config.num_heads = 4;
      config.intermediate_size = 41;
      if (kind == Kind::roberta_of_texts) {
        config.task = nn::EncoderTask::sequence_classification;
        config.num_classes = 3;
      }
      return std::make_unique<nn::Bert>(config);
    }
    case Kind::classifier: {
      nn::EncoderClassifierConfig config;
      config.vocab_size = 37;
      config.max_positions = 16;
      config.hidden_size = 24;
      config.num_layers = 3;
      config.num_heads = 4;
      config.intermediate_size = 41;
      config.num_classes = 3;
      config.dropout = 0.0;
      config.pad_token = 1;
      return std::make_unique<nn::EncoderClassifier>(config);
    }
    case Kind::t5:
    case Kind::t5_gated: {
      nn::T5Config config = test::tiny_t5_config();
      config.num_heads = 4;
      config.intermediate_size = 41;
      if (kind == Kind::t5_gated) {
        config.activation = nn::T5Activation::gated_gelu_tanh;
        config.tie_word_embeddings = false;
      }
      return std::make_unique<nn::T5>(config);
    }
  }
  return nullptr;
}

nn::Batch batch_of(Kind kind, int64_t index) {
  if (!is_encoder(kind)) return test::make_batch(index, 2, kTokens);
  if (kind == Kind::t5 || kind == Kind::t5_gated) {
    return test::make_batch(test::Family::t5, index);
  }
  nn::Batch batch = test::make_batch(test::Family::roberta, index);
  if (kind == Kind::roberta_of_texts || kind == Kind::classifier) {
    batch.tensors.set("labels", Tensor::from<int64_t>({index % 3, 1}, {2}, DType::i32));
    batch.num_targets = 2;
  }
  return batch;
}

struct Trained {
  std::vector<double> figures;  // loss and norm of every step
  std::vector<double> values;   // weights, moments and gradients
  std::vector<std::string> names;
};

struct Ranks {
  int tensor = 1;
  int data = 1;
};

EngineConfig config_of(int stage, int64_t accumulation, DType dtype) {
  EngineConfig config = test::training_config(accumulation, dtype, ReduceSchedule::micro_step);
  config.zero.stage = stage;
  return config;
}

auto trained_of(nn::Model& model) {
  auto parameters = model.named_parameters();
  std::erase_if(parameters, [](const auto& one) { return !one.second->requires_grad(); });
  return parameters;
}

Trained train(Kind kind, const Ranks& ranks, int stage, int64_t micro_batches, DType dtype,
              const std::function<void(EngineConfig&)>& change = {},
              const std::function<void(nn::Model&)>& adapt = {}, bool shuffled = false) {
  Trained result;
  comm::ConnectOptions options;
  options.seed = 7;
  options.num_threads = 1;
  if (shuffled) {
    options.execution = ContextOptions::Execution::shuffled;
    options.shuffle_seed = 11;
  }
  comm::run_local_ranks(ranks.tensor * ranks.data, options, [&](comm::World& world) {
    comm::RankSettings settings = world.settings();
    settings.mesh.tensor = ranks.tensor;
    world.configure(settings);
    const std::unique_ptr<nn::Model> model = make(kind);
    if (adapt) adapt(*model);
    EngineConfig config = config_of(stage, micro_batches / ranks.data, dtype);
    if (change) change(config);
    Engine engine(*model, config, world);
    Trained mine;
    const auto keep = [&](const Tensor& tensor) {
      const auto values = tensor.to_vector<double>();
      mine.values.insert(mine.values.end(), values.begin(), values.end());
    };
    for (int step = 0; step < kSteps; ++step) {
      for (int64_t m = 0; m < micro_batches / ranks.data; ++m) {
        const int64_t index = step * micro_batches + m * world.data().size() + world.data().rank();
        engine.backward(engine.forward(batch_of(kind, index)));
      }
      if (step == 0) {
        for (const auto& [name, parameter] : trained_of(*model)) keep(engine.gradient(name));
      }
      const StepResult done = engine.step();
      mine.figures.insert(mine.figures.end(), {done.loss, done.gradient_norm});
    }
    for (const auto& [name, parameter] : trained_of(*model)) {
      mine.names.push_back(name);
      keep(engine.parameter(name));
      const bool averages = config.optimizer.kind == optim::OptimizerKind::schedule_free;
      keep(engine.optimizer_state(name, averages ? "z" : "exp_avg"));
      if (!averages) continue;
      keep(engine.evaluated_parameter(name));
      EXPECT_NE(engine.evaluated_parameter(name).to_vector<double>(),
                engine.parameter(name).to_vector<double>())
          << name;
    }
    if (config.optimizer.kind == optim::OptimizerKind::schedule_free) {
      mine.figures.push_back(engine.evaluate(batch_of(kind, 1000)).loss_sum);
    }
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    if (result.values.empty()) result = mine;
    // Every rank says the same, to the bit.
    EXPECT_EQ(result.figures, mine.figures);
    EXPECT_EQ(result.values, mine.values);
  });
  return result;
}

// sqrt(sum (a - b)^2 / sum b^2)
double distance(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double apart = 0.0, size = 0.0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    apart += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(apart / size);
}

constexpr Kind kEncoders[] = {Kind::bert,       Kind::roberta, Kind::roberta_of_texts,
                              Kind::classifier, Kind::t5,      Kind::t5_gated};

class TensorTraining : public testing::TestWithParam<std::tuple<Kind, Ranks, int>> {};

// f64: sums of 10^2 to 10^4 terms in another order are 1e-14 apart; AdamW divides small differences
// by small roots, which costs some digits.
TEST_P(TensorTraining, GivesWhatOneRankGives) {
  const auto& [kind, ranks, stage] = GetParam();
  const Trained one = train(kind, {}, 0, 4, DType::f64);
  const Trained shared = train(kind, ranks, stage, 4, DType::f64);
  EXPECT_LT(distance(shared.figures, one.figures), 1e-12);
  EXPECT_LT(distance(shared.values, one.values), 1e-10);
  EXPECT_EQ(shared.names, one.names);
}

INSTANTIATE_TEST_SUITE_P(
    Models, TensorTraining,
    testing::Combine(testing::Values(Kind::gpt2, Kind::gpt2_untied, Kind::llama, Kind::bloom,
                                     Kind::neox, Kind::chatglm, Kind::qwen3, Kind::llama_of_one_key,
                                     Kind::chatglm_of_two_keys, Kind::plain,
                                     Kind::plain_of_two_keys),
                     testing::Values(Ranks{2, 1}, Ranks{4, 1}), testing::Values(1)),
    [](const auto& info) { return testing::PrintToString(info.index); });
INSTANTIATE_TEST_SUITE_P(Encoders, TensorTraining,
                         testing::Combine(testing::ValuesIn(kEncoders),
                                          testing::Values(Ranks{2, 1}, Ranks{4, 1}),
                                          testing::Values(1)),
                         [](const auto& info) { return testing::PrintToString(info.index); });
INSTANTIATE_TEST_SUITE_P(StagesOfEncoders, TensorTraining,
                         testing::Combine(testing::Values(Kind::bert, Kind::t5_gated),
                                          testing::Values(Ranks{2, 2}),
                                          testing::Values(0, 1, 2, 3)),
                         [](const auto& info) { return testing::PrintToString(info.index); });
INSTANTIATE_TEST_SUITE_P(
    Stages, TensorTraining,
    testing::Combine(testing::Values(Kind::gpt2, Kind::llama, Kind::qwen3, Kind::plain),
                     testing::Values(Ranks{2, 2}), testing::Values(0, 1, 2, 3)),
    [](const auto& info) { return testing::PrintToString(info.index); });

// Averaged weights and the losses of evaluations, which are made with them.
TEST(TensorAverages, AreThoseOfOneRank) {
  const auto averages = [](EngineConfig& config) {
    config.optimizer = {.kind = optim::OptimizerKind::schedule_free,
                        .hyper = {.lr = 0.02, .weight_decay = 0.1, .beta1 = 0.8}};
  };
  for (const Kind kind : {Kind::gpt2, Kind::llama}) {
    const Trained one = train(kind, {}, 0, 4, DType::f64, averages);
    for (const int stage : {0, 1, 2, 3}) {
      const Trained shared = train(kind, {2, 2}, stage, 4, DType::f64, averages);
      EXPECT_LT(distance(shared.figures, one.figures), 1e-12) << stage;
      EXPECT_LT(distance(shared.values, one.values), 1e-10) << stage;
      EXPECT_EQ(shared.names, one.names) << stage;
    }
  }
}

// Ranks that share tokens between sliced layers; each draws different elements for dropout.
class TensorTokens : public testing::TestWithParam<std::tuple<Kind, Ranks, int>> {
 public:
  static void share(EngineConfig& config) { config.tensor_sequence_parallel = true; }
};

TEST_P(TensorTokens, GiveWhatOneRankGives) {
  const auto& [kind, ranks, stage] = GetParam();
  const Trained one = train(kind, {}, 0, 4, DType::f64);
  const Trained shared = train(kind, ranks, stage, 4, DType::f64, share);
  EXPECT_LT(distance(shared.figures, one.figures), 1e-12);
  EXPECT_LT(distance(shared.values, one.values), 1e-10);
  EXPECT_EQ(shared.names, one.names);
}

INSTANTIATE_TEST_SUITE_P(Models, TensorTokens,
                         testing::Combine(testing::Values(Kind::gpt2_without_dropout, Kind::llama,
                                                          Kind::bloom, Kind::neox, Kind::chatglm,
                                                          Kind::qwen3, Kind::llama_of_one_key,
                                                          Kind::chatglm_of_two_keys, Kind::plain),
                                          testing::Values(Ranks{2, 1}, Ranks{4, 1}),
                                          testing::Values(1)),
                         [](const auto& info) { return testing::PrintToString(info.index); });
INSTANTIATE_TEST_SUITE_P(Stages, TensorTokens,
                         testing::Combine(testing::Values(Kind::gpt2_without_dropout, Kind::qwen3),
                                          testing::Values(Ranks{2, 2}), testing::Values(0, 2, 3)),
                         [](const auto& info) { return testing::PrintToString(info.index); });

// Transferred values are summed in the same order, so values of the first forward pass are those of
// ranks that do not share tokens.
TEST(TensorTokensBits, OfTheFirstLossAreTheSame) {
  for (const Kind kind : {Kind::gpt2_without_dropout, Kind::llama}) {
    const Trained plain = train(kind, {2, 1}, 1, 1, DType::bf16);
    const Trained shared = train(kind, {2, 1}, 1, 1, DType::bf16, TensorTokens::share);
    EXPECT_EQ(shared.figures[0], plain.figures[0]);
  }
}

// Nor do bits depend on stage, recomputation, tier or what is made again.
TEST(TensorTokensBits, DoNotDependOnTheStage) {
  const auto trained = [](int stage, const std::function<void(EngineConfig&)>& change) {
    return train(Kind::gpt2, {2, 2}, stage, 4, DType::bf16, [&](EngineConfig& config) {
      config.tensor_sequence_parallel = true;
      change(config);
    });
  };
  const Trained first = trained(0, [](EngineConfig&) {});
  const std::function<void(EngineConfig&)> ways[] = {
      [](EngineConfig&) {}, [](EngineConfig& config) { config.recompute.every_blocks = 1; },
      [](EngineConfig& config) { config.recompute.selective = true; },
      [](EngineConfig& config) {
        config.recompute = {.every_blocks = 2, .cpu_checkpointing = true};
        config.zero.offload_optimizer.device = OffloadDevice::cpu;
      }};
  for (size_t i = 0; i < std::size(ways); ++i) {
    const Trained other = trained(static_cast<int>(i), ways[i]);
    EXPECT_EQ(other.figures, first.figures) << i;
    EXPECT_EQ(other.values, first.values) << i;
  }
}

// Nor on when sums run that travel beside products: shuffled streams, unlike those of a CPU.
TEST(TensorTokensBits, DoNotDependOnWhatRunsBeside) {
  for (const bool shares : {false, true}) {
    const auto change = [&](EngineConfig& config) { config.tensor_sequence_parallel = shares; };
    for (const Kind kind : {Kind::gpt2, Kind::llama}) {
      const Trained first = train(kind, {4, 1}, 1, 2, DType::bf16, change);
      const Trained other = train(kind, {4, 1}, 1, 2, DType::bf16, change, {}, true);
      EXPECT_EQ(other.figures, first.figures) << shares;
      EXPECT_EQ(other.values, first.values) << shares;
    }
  }
}

// Sums that travel while the next rows are made; least_piece as parallel::make_tensor_ranks() says.
std::vector<double> sum_of_products(int64_t least_piece, uint64_t shuffle_seed) {
  comm::ConnectOptions options{.seed = 7, .num_threads = 1};
  options.execution = ContextOptions::Execution::shuffled;
  options.shuffle_seed = shuffle_seed;
  std::vector<double> values;
  std::mutex mutex;
  comm::run_local_ranks(2, options, [&](comm::World& world) {
    const auto ranks = parallel::make_tensor_ranks(&world, {.sum_bytes = least_piece});
    nn::Module root;
    nn::Linear down(root, "down", {.in = 8, .out = 6, .bias = false, .split = nn::Split::rows});
    root.set_dtype(DType::f64);
    root.share_over(ranks.get());
    std::vector<double> mine;
    for (int i = 0; i < 60; ++i) mine.push_back(std::sin(i + 100 * world.rank()));
    const Tensor x = Tensor::from<double>(mine, {3, 5, 4});
    const auto sum = down.forward(x).to_vector<double>();
    const std::lock_guard lock(mutex);
    if (values.empty()) values = sum;
    EXPECT_EQ(values, sum);
  });
  return values;
}

TEST(TensorSums, InPieces_AreThoseOfTheWhole) {
  const std::vector<double> whole = sum_of_products(0, 1);
  EXPECT_GT(std::abs(whole.front()), 0.0);
  for (const uint64_t seed : {1, 2, 3, 4, 5}) {
    EXPECT_EQ(sum_of_products(6 * 8 * 4, seed), whole);  // 3 pieces of 5 rows
    EXPECT_EQ(sum_of_products(6 * 8, seed), whole);      // 4
  }
}

// Two blocks of column and row products, of tokens that ranks share.
struct SharingBlock : nn::Module {
  SharingBlock(Module& parent, std::string name) : Module(parent, std::move(name)) {}
  nn::Linear up{*this,
                "up",
                {.in = 6,
                 .out = 8,
                 .activation = autograd::Activation::gelu_tanh,
                 .split = nn::Split::columns}};
  nn::Linear middle{*this, "middle", {.in = 8, .out = 6, .bias = false, .split = nn::Split::rows}};
  nn::GatedMlp gated{*this, "gated", {.features = 6, .hidden = 10}};
  Tensor forward(const Tensor& x) { return gated.forward(middle.forward(up.forward(x))); }
};

// Results and gradients of each rank, one after the other. B sequences of 8 tokens.
std::vector<std::vector<double>> of_shared_tokens(int64_t B, const parallel::LeastPiece& least,
                                                  uint64_t shuffle_seed) {
  comm::ConnectOptions options{.seed = 7, .num_threads = 1};
  options.execution = ContextOptions::Execution::shuffled;
  options.shuffle_seed = shuffle_seed;
  std::vector<std::vector<double>> values(2);
  comm::run_local_ranks(2, options, [&](comm::World& world) {
    const auto ranks = parallel::make_tensor_ranks(&world, least);
    nn::Module root;
    SharingBlock first(root, "first"), second(root, "second");
    root.set_dtype(DType::f64);
    root.share_over(ranks.get());
    ranks->share_tokens(true);
    std::vector<double> tokens;
    for (int64_t i = 0; i < B * 8 * 6; ++i) tokens.push_back(std::sin(static_cast<double>(i)));
    const Tensor x = nn::own_tokens(ranks.get(), Tensor::from<double>(tokens, {B, 8, 6}));
    const Tensor once =
        ranks->sum_tokens(autograd::scale(ranks->gather_tokens(first.forward(x)), 0.5));
    // The gradient of the tensor comes from other ranks, and then from this rank too.
    const Tensor part = autograd::square(ranks->gather_tokens(once));
    const Tensor here = autograd::sum(autograd::square(part));
    const Tensor y = second.forward(ranks->sum_tokens(part));
    autograd::backward(autograd::add(here, autograd::sum(autograd::square(y))));
    std::vector<double>& mine = values[static_cast<size_t>(world.rank())];
    mine = ranks->gather_tokens(y.detach()).to_vector<double>();
    for (const auto& [name, parameter] : root.named_parameters()) {
      const auto gradient = parameter->grad()->to_vector<double>();
      mine.insert(mine.end(), gradient.begin(), gradient.end());
    }
  });
  return values;
}

TEST(TensorTokens, InPieces_AreThoseOfTheWhole) {
  constexpr int64_t kSequence = 8 * 6 * 8;  // bytes
  for (const int64_t B : {1, 3}) {
    const auto whole = of_shared_tokens(B, {}, 1);
    EXPECT_GT(std::abs(whole[0].front()), 0.0);
    EXPECT_NE(whole[0], whole[1]);
    for (const uint64_t seed : {1, 2, 3, 4, 5, 6, 7, 8}) {
      EXPECT_EQ(of_shared_tokens(B, {.sequence_bytes = kSequence, .tokens = 2}, seed), whole)
          << B << " " << seed;
    }
    EXPECT_EQ(of_shared_tokens(B, {.sequence_bytes = kSequence + 1, .tokens = 5}, 1), whole);
  }
}

TEST(TensorTokens, OfOneSequence_AreRunsOfIt) {
  comm::run_local_ranks(2, {.seed = 7, .num_threads = 1}, [&](comm::World& world) {
    const auto ranks = parallel::make_tensor_ranks(&world, {.sequence_bytes = 1, .tokens = 2});
    ranks->share_tokens(true);
    const Tensor ids = Tensor::from<int64_t>({0, 1, 2, 3, 4, 5, 6, 7}, {1, 8}, DType::i32);
    const std::vector<std::vector<int64_t>> owned{{0, 2, 4, 6}, {1, 3, 5, 7}};
    const auto& mine = owned[static_cast<size_t>(world.rank())];
    EXPECT_EQ(nn::own_tokens(ranks.get(), ids).to_vector<int64_t>(), mine);
    const Tensor rows = Tensor::from<int64_t>({0, 1, 2, 3, 4, 5, 6, 7}, {8, 1}, DType::i32);
    EXPECT_EQ(nn::own_tokens_of(ranks.get(), rows, 1).to_vector<int64_t>(), mine);
    const std::vector<int64_t> half =
        world.rank() == 0 ? std::vector<int64_t>{0, 1, 2, 3} : std::vector<int64_t>{4, 5, 6, 7};
    EXPECT_EQ(nn::own_tokens_of(ranks.get(), rows, 2).to_vector<int64_t>(), half);
    EXPECT_EQ(ranks->token_runs(1, 6), 3);
    EXPECT_EQ(ranks->token_runs(1, 14), 1);  // 7 tokens of each rank
    EXPECT_EQ(ranks->token_runs(1, 2), 1);
  });
}

// Between ranks, of one that has the same token everywhere.
TEST(TensorTokensDropout, DiffersBetweenTokensOfRanks) {
  std::mutex mutex;
  std::vector<double> kept;  // of both ranks
  comm::run_local_ranks(2, {.seed = 7, .num_threads = 1}, [&](comm::World& world) {
    const std::unique_ptr<nn::TensorRanks> ranks = parallel::make_tensor_ranks(&world);
    nn::Module root;
    nn::Dropout dropout(root, "dropout", 0.5);
    nn::Dropout of_slice(root, "of_slice", 0.5, true);
    root.share_over(ranks.get());
    ranks->share_tokens(true);
    const Tensor ones = Tensor::full({1, 1, 64}, 1.0);
    const auto mine = dropout.forward(ones).to_vector<double>();
    const auto same = of_slice.forward(ones).to_vector<double>();
    const std::lock_guard lock(mutex);
    kept.insert(kept.end(), mine.begin(), mine.end());
    static std::vector<double> first;
    if (first.empty()) first = same;
    EXPECT_EQ(same, first);
  });
  EXPECT_NE(std::vector<double>(kept.begin(), kept.begin() + 64),
            std::vector<double>(kept.begin() + 64, kept.end()));
}

// Layers are cut into 4 slices, whoever has them: Determinism::mesh.
class FixedSlices : public testing::TestWithParam<std::tuple<Kind, DType>> {
 public:
  static Trained train_with(Kind kind, const Ranks& ranks, DType dtype, int stage = 1,
                            const std::function<void(EngineConfig&)>& change = {}) {
    return train(kind, ranks, stage, 4, dtype, [&](EngineConfig& config) {
      config.determinism = Determinism::mesh;
      if (change) change(config);
    });
  }
};

TEST_P(FixedSlices, GiveTheSameBitsOnEveryMesh) {
  const auto& [kind, dtype] = GetParam();
  const Trained one = train_with(kind, {1, 1}, dtype);
  for (const Ranks& ranks : {Ranks{2, 1}, Ranks{4, 1}, Ranks{2, 2}}) {
    const Trained other = train_with(kind, ranks, dtype);
    EXPECT_EQ(other.figures, one.figures) << ranks.tensor << " x " << ranks.data;
    EXPECT_EQ(other.values, one.values) << ranks.tensor << " x " << ranks.data;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, FixedSlices,
    testing::Combine(testing::Values(Kind::gpt2, Kind::gpt2_untied,
                                     Kind::gpt2_with_dropout_of_scores, Kind::llama, Kind::bloom,
                                     Kind::neox, Kind::chatglm, Kind::bert, Kind::roberta_of_texts,
                                     Kind::classifier, Kind::t5, Kind::t5_gated,
                                     Kind::plain_without_norms),
                     testing::Values(DType::f32, DType::bf16)),
    [](const auto& info) { return testing::PrintToString(info.index); });

// A moment of bf16 is rounded by its place in the whole parameter, whatever slice of it is here.
TEST(FixedSlicesMoments, InBf16_AreTheSameOnEveryMesh) {
  for (const Kind kind : {Kind::gpt2, Kind::llama, Kind::bloom, Kind::chatglm, Kind::t5_gated}) {
    for (const OffloadDevice device : {OffloadDevice::none, OffloadDevice::cpu}) {
      const auto narrow = [&](EngineConfig& config) {
        config.optimizer.moments = optim::Moments::bf16;
        config.zero.offload_optimizer.device = device;
      };
      const Trained one = FixedSlices::train_with(kind, {1, 1}, DType::f32, 1, narrow);
      for (const Ranks& ranks : {Ranks{2, 1}, Ranks{4, 1}, Ranks{2, 2}}) {
        const Trained other = FixedSlices::train_with(kind, ranks, DType::f32, 1, narrow);
        EXPECT_EQ(other.figures, one.figures) << ranks.tensor << " x " << ranks.data;
        EXPECT_EQ(other.values, one.values) << ranks.tensor << " x " << ranks.data;
      }
    }
  }
}

// So are weights of bf16 that have no master weights.
TEST(FixedSlicesMoments, AndWeightsInBf16_AreTheSameOnEveryMesh) {
  const auto narrow = [](EngineConfig& config) { config.optimizer.narrow_weights = true; };
  for (const Kind kind : {Kind::gpt2, Kind::llama}) {
    const Trained one = FixedSlices::train_with(kind, {1, 1}, DType::bf16, 1, narrow);
    for (const Ranks& ranks : {Ranks{2, 1}, Ranks{4, 1}, Ranks{2, 2}}) {
      const Trained other = FixedSlices::train_with(kind, ranks, DType::bf16, 1, narrow);
      EXPECT_EQ(other.figures, one.figures) << ranks.tensor << " x " << ranks.data;
      EXPECT_EQ(other.values, one.values) << ranks.tensor << " x " << ranks.data;
    }
  }
}

// The slices are those of the whole layers.
TEST(FixedSlicesSums, AreThoseOfWholeLayers) {
  for (const Kind kind : {Kind::gpt2, Kind::llama, Kind::bert, Kind::t5_gated}) {
    const Trained plain = train(kind, {}, 0, 4, DType::f64);
    const Trained sliced = FixedSlices::train_with(kind, {2, 1}, DType::f64);
    EXPECT_LT(distance(sliced.figures, plain.figures), 1e-12);
    EXPECT_LT(distance(sliced.values, plain.values), 1e-10);
  }
}

TEST(FixedSlicesSums, DoNotDependOnTheStage) {
  const Trained first = FixedSlices::train_with(Kind::gpt2, {4, 1}, DType::bf16, 0);
  const std::function<void(EngineConfig&)> ways[] = {
      [](EngineConfig& config) { config.recompute.every_blocks = 1; },
      [](EngineConfig& config) { config.recompute.selective = true; },
      [](EngineConfig& config) {
        config.recompute = {.every_blocks = 2, .cpu_checkpointing = true};
        config.zero.offload_optimizer.device = OffloadDevice::cpu;
      }};
  for (size_t i = 0; i < std::size(ways); ++i) {
    for (const Ranks& ranks : {Ranks{1, 2}, Ranks{2, 2}}) {
      const Trained other =
          FixedSlices::train_with(Kind::gpt2, ranks, DType::bf16, static_cast<int>(i) + 1, ways[i]);
      EXPECT_EQ(other.figures, first.figures) << i;
      EXPECT_EQ(other.values, first.values) << i;
    }
  }
}

// Without them other numbers of ranks give other bits: the test above can fail.
TEST(FixedSlicesSums, AreNotThoseOfFreeOnes) {
  const auto world = [](EngineConfig& config) { config.determinism = Determinism::world; };
  EXPECT_NE(train(Kind::gpt2, {2, 1}, 1, 4, DType::bf16, world).figures,
            train(Kind::gpt2, {4, 1}, 1, 4, DType::bf16, world).figures);
}

TEST(FixedSlicesErrors, NameWhatDoesNotGo) {
  const auto error_of = [](Kind kind, const Ranks& ranks) -> std::string {
    try {
      FixedSlices::train_with(kind, ranks, DType::f32);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(error_of(Kind::qwen3, {1, 1}),
              HasSubstr("heads with 2 heads of keys and values cannot be cut into 4 slices"));
  EXPECT_THAT(error_of(Kind::llama, {8, 1}),
              HasSubstr("which 8 tensor ranks cannot share; take zinc.mesh.tensor 1, 2 or 4"));
}

class TensorAdapters : public testing::TestWithParam<std::tuple<Kind, Ranks, int>> {};

TEST_P(TensorAdapters, GiveWhatOneRankGives) {
  const auto& [kind, ranks, stage] = GetParam();
  const auto adapt = [](nn::Model& model) {
    nn::add_lora(model, {.rank = 3, .alpha = 12.0, .targets = {"all-linear"}});
  };
  const Trained one = train(kind, {}, 0, 4, DType::f64, {}, adapt);
  for (const bool shares_tokens : {false, true}) {
    if (shares_tokens && (kind == Kind::gpt2 || is_encoder(kind))) continue;
    SCOPED_TRACE(shares_tokens);
    const Trained shared = train(
        kind, ranks, stage, 4, DType::f64,
        [&](EngineConfig& config) { config.tensor_sequence_parallel = shares_tokens; }, adapt);
    EXPECT_LT(distance(shared.figures, one.figures), 1e-12);
    EXPECT_LT(distance(shared.values, one.values), 1e-10);
    EXPECT_EQ(shared.names, one.names);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TensorAdapters,
                         testing::Combine(testing::Values(Kind::gpt2, Kind::gpt2_without_dropout,
                                                          Kind::llama, Kind::qwen3, Kind::bloom,
                                                          Kind::neox, Kind::chatglm_of_two_keys),
                                          testing::Values(Ranks{2, 1}, Ranks{4, 1}),
                                          testing::Values(1)),
                         [](const auto& info) { return testing::PrintToString(info.index); });
INSTANTIATE_TEST_SUITE_P(Encoders, TensorAdapters,
                         testing::Combine(testing::Values(Kind::roberta, Kind::t5),
                                          testing::Values(Ranks{2, 1}), testing::Values(1)),
                         [](const auto& info) { return testing::PrintToString(info.index); });
INSTANTIATE_TEST_SUITE_P(Stages, TensorAdapters,
                         testing::Combine(testing::Values(Kind::llama),
                                          testing::Values(Ranks{2, 2}), testing::Values(0, 2, 3)),
                         [](const auto& info) { return testing::PrintToString(info.index); });

// With slices, as without them, no bit depends on the stage.
TEST(TensorStages, HaveTheSameBits) {
  const Trained first = train(Kind::gpt2, {2, 2}, 0, 4, DType::f32, [](EngineConfig& config) {
    config.gradient.reduce_schedule = ReduceSchedule::micro_step;
  });
  for (const int stage : {1, 2, 3}) {
    const Trained other =
        train(Kind::gpt2, {2, 2}, stage, 4, DType::f32, [&](EngineConfig& config) {
          config.recompute.every_blocks = stage == 2 ? 1 : 0;
          if (stage == 3) config.zero.offload_optimizer.device = OffloadDevice::cpu;
        });
    EXPECT_EQ(other.figures, first.figures) << stage;
    EXPECT_EQ(other.values, first.values) << stage;
  }
}

TEST(TensorInputs, InPartsGiveTheSameBitsOnEveryTier) {
  const auto trained = [](int tensor, const RecomputeConfig& recompute) {
    return train(Kind::gpt2, {tensor, 1}, 1, 2, DType::f32,
                 [&](EngineConfig& config) { config.recompute = recompute; });
  };
  for (const int tensor : {2, 4}) {
    const Trained whole = trained(tensor, {.every_blocks = 1});
    const auto expect_same = [&](RecomputeConfig recompute, const char* words) {
      recompute.every_blocks = 1;
      recompute.partition_activations = true;
      const Trained parts = trained(tensor, recompute);
      EXPECT_EQ(parts.figures, whole.figures) << words;
      EXPECT_EQ(parts.values, whole.values) << words;
    };
    expect_same({}, "device");
    expect_same({.contiguous_memory_optimization = true}, "side by side");
    expect_same({.cpu_checkpointing = true}, "host");
    expect_same({.offload = {.device = OffloadDevice::nvme, .nvme_path = testing::TempDir()}},
                "NVMe");
  }
}

class TensorInputsOf : public testing::TestWithParam<Kind> {};

// The bits are also the same if results of norms and activations are recomputed.
TEST_P(TensorInputsOf, InParts_GiveTheSameBits) {
  const auto trained = [](const RecomputeConfig& recompute) {
    return train(GetParam(), {2, 1}, 1, 2, DType::f32,
                 [&](EngineConfig& config) { config.recompute = recompute; });
  };
  const Trained whole = trained({.every_blocks = 1});
  for (const bool selective : {false, true}) {
    for (const bool host : {false, true}) {
      const Trained parts = trained({.every_blocks = 1,
                                     .selective = selective,
                                     .cpu_checkpointing = host,
                                     .partition_activations = true});
      EXPECT_EQ(parts.figures, whole.figures) << selective << host;
      EXPECT_EQ(parts.values, whole.values) << selective << host;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TensorInputsOf,
                         testing::Values(Kind::llama, Kind::bloom, Kind::neox, Kind::chatglm,
                                         Kind::qwen3, Kind::bert, Kind::roberta_of_texts,
                                         Kind::classifier, Kind::t5, Kind::t5_gated),
                         [](const auto& info) { return testing::PrintToString(info.index); });

// 4 blocks, inputs of [4, 16, 24] f32.
TEST(TensorInputs, InPartsTakeAPartOfTheMemory) {
  const auto live_after_forward = [](int tensor, bool parts) {
    int64_t live = 0;
    comm::run_local_ranks(tensor, {.seed = 7, .num_threads = 1}, [&](comm::World& world) {
      comm::RankSettings settings = world.settings();
      settings.mesh.tensor = tensor;
      world.configure(settings);
      const auto model = make(Kind::gpt2);
      EngineConfig config = config_of(1, 1, DType::f32);
      config.batch.micro_batch = 4;
      config.recompute = {.every_blocks = 1, .partition_activations = parts};
      Engine engine(*model, config, world);
      const Loss loss = engine.forward(test::make_batch(0, 4, 16));
      if (world.is_main()) {
        live = world.context().allocator().report().at(Tier::device, Label::activations).live;
      }
      engine.backward(loss);
    });
    return live;
  };
  constexpr int64_t kInput = 4 * 16 * 24 * 4;
  for (const int tensor : {2, 4}) {
    EXPECT_EQ(live_after_forward(tensor, false) - live_after_forward(tensor, true),
              4 * (kInput - kInput / tensor));
  }
}

// 4 blocks of [4, 16, 24] f32: what is kept between sliced layers is a part of the tokens.
TEST(TensorTokensMemory, OfActivationsBetweenLayersIsAPart) {
  const auto live_after_forward = [](bool shares) {
    int64_t live = 0;
    comm::run_local_ranks(4, {.seed = 7, .num_threads = 1}, [&](comm::World& world) {
      comm::RankSettings settings = world.settings();
      settings.mesh.tensor = 4;
      world.configure(settings);
      const auto model = make(Kind::llama);
      EngineConfig config = config_of(1, 1, DType::f32);
      config.batch.micro_batch = 4;
      config.tensor_sequence_parallel = shares;
      Engine engine(*model, config, world);
      const Loss loss = engine.forward(test::make_batch(0, 4, 16));
      if (world.is_main()) {
        live = world.context().allocator().report().at(Tier::device, Label::activations).live;
      }
      engine.backward(loss);
    });
    return live;
  };
  const nn::LlamaConfig shape = test::tiny_llama_config();
  const int64_t rows = int64_t{4} * 16, bytes = rows * shape.hidden_size * 4;
  // For each block a rank saves a part of four tensors: the inputs of both norms, and both results,
  // which the products do not save.
  EXPECT_GE(live_after_forward(false) - live_after_forward(true),
            shape.num_layers * 4 * (bytes - bytes / 4));
}

// Outputs, and texts that grow token by token, are whole on every rank.
TEST(TensorOutputs, AreThoseOfOneRank) {
  for (const Kind kind : {Kind::bert, Kind::roberta_of_texts, Kind::classifier, Kind::t5,
                          Kind::t5_gated, Kind::llama}) {
    std::vector<std::vector<double>> all;
    std::mutex mutex;
    for (const int tensor : {1, 2, 4}) {
      comm::run_local_ranks(tensor, {.seed = 7, .num_threads = 1}, [&](comm::World& world) {
        comm::RankSettings settings = world.settings();
        settings.mesh.tensor = tensor;
        world.configure(settings);
        const auto model = make(kind);
        Engine engine(*model, config_of(3, 1, DType::f64), world);
        std::vector<double> values = engine.predict([&] {
          return nn::require_interface<nn::HasOutputs>(*model, "a test")
              .outputs(batch_of(kind, 0))["logits"]
              .to_vector<double>();
        });
        if (auto* translates = nn::find_interface<nn::EncoderDecoderLm>(*model)) {
          const auto more = engine.predict([&] {
            nn::KvCache cache(4);
            translates->encode(batch_of(kind, 0), cache);
            std::vector<double> logits;
            for (const int64_t id : {3, 7}) {
              const Tensor ids = Tensor::from<int64_t>({id, id + 1}, {2, 1}, DType::i32);
              const auto next = translates->next_logits(ids, cache).to_vector<double>();
              logits.insert(logits.end(), next.begin(), next.end());
            }
            return logits;
          });
          values.insert(values.end(), more.begin(), more.end());
        }
        const std::lock_guard lock(mutex);
        all.push_back(std::move(values));
      });
    }
    // Logits are f32, values f64.
    for (const auto& values : all) EXPECT_LT(distance(values, all.front()), 1e-6);
  }
}

// Every rank learns of a gradient that is not finite in one slice.
TEST(TensorOverflow, IsSkippedOnAllRanks) {
  comm::run_local_ranks(2, {.seed = 7, .num_threads = 1}, [](comm::World& world) {
    comm::RankSettings settings = world.settings();
    settings.mesh.tensor = 2;
    world.configure(settings);
    const auto model = make(Kind::gpt2);
    EngineConfig config = config_of(1, 1, DType::f32);
    config.precision.check_overflow = true;
    Engine engine(*model, config, world);
    const std::string name = "transformer.h.1.mlp.c_fc.weight";
    // The last column, which the second rank has.
    engine.edit({name}, [](Engine::EditedParameters& parameters) {
      Tensor& weight = parameters.begin()->second;
      auto values = weight.to_vector<float>();
      values.back() = 3e38F;
      weight.copy_from(Tensor::from<float>(values, weight.shape()));
    });
    engine.backward(engine.forward(test::make_batch(0)));
    const StepResult result = engine.step();
    EXPECT_EQ(result.outcome, StepOutcome::skipped_overflow);
    EXPECT_THAT(result.overflow, HasSubstr("slice"));
  });
}

TEST(TensorErrors, NameTheCure) {
  const auto message_of = [](int ranks, int tensor, test::Family family,
                             const std::function<void(EngineConfig&)>& change = {}) {
    std::string message;
    try {
      comm::run_local_ranks(ranks, {.seed = 7, .num_threads = 1}, [&](comm::World& world) {
        comm::RankSettings settings = world.settings();
        settings.mesh.tensor = tensor;
        world.configure(settings);
        const auto model = test::make_tiny_model(family);
        EngineConfig config = config_of(0, 1, DType::f32);
        config.batch.sequence = 9;
        if (change) change(config);
        Engine engine(*model, config, world);
      });
    } catch (const std::exception& error) {
      message = error.what();
    }
    return message;
  };
  EXPECT_THAT(message_of(3, 2, test::Family::gpt2),
              HasSubstr("zinc.mesh.tensor 2 does not divide the world of 3 ranks"));
  EXPECT_THAT(message_of(2, 2, test::Family::gpt2), HasSubstr("3 heads"));
  const auto share = [](EngineConfig& config) { config.tensor_sequence_parallel = true; };
  EXPECT_THAT(message_of(2, 2, test::Family::llama, share),
              HasSubstr("zinc.tensor_sequence_parallel: 2 tensor ranks cannot share 9 tokens"));
  EXPECT_THAT(message_of(2, 2, test::Family::t5, share),
              HasSubstr("cannot share the tokens of a t5"));
  EXPECT_THAT(message_of(2, 2, test::Family::llama,
                         [&](EngineConfig& config) {
                           share(config);
                           config.recompute = {.every_blocks = 1, .partition_activations = true};
                         }),
              HasSubstr("give one"));
  EXPECT_THAT(message_of(2, 2, test::Family::roberta), HasSubstr("heads"));
}

}  // namespace tensor_training_test
}  // namespace zinc::zero
