// A model's required interface, its optional ones, and the arguments of a builder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "autograd/backward.h"
#include "autograd/functions/shapes.h"
#include "autograd/operators.h"
#include "autograd/ops/reduce.h"
#include "autograd/ops/softmax.h"
#include "autograd/ops/unary.h"
#include "core/error.h"
#include "nn/buffer.h"
#include "nn/gradcheck.h"
#include "nn/linear.h"
#include "nn/model.h"
#include "nn/models/gpt2.h"
#include "nn/models/llama.h"
#include "nn/stages.h"
#include "tests/autograd/rank.h"

namespace zinc::nn {
namespace model_test {

using ::testing::HasSubstr;
using zinc::testing::random_tensor;
using zinc::testing::Rank;

template <class Work>
std::string refusal(const Work& work) {
  try {
    work();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(NamedTensors, AreFoundReplacedAndTakenOut_InTheirOrder) {
  const Rank rank;
  NamedTensors tensors{{"b", Tensor::zeros({2})}, {"none", Tensor()}, {"a", Tensor::zeros({3})}};
  EXPECT_EQ(tensors.size(), 2u);
  tensors.set("b", Tensor::zeros({5}, DType::i32));
  EXPECT_EQ(to_string(tensors), "b [5] i32, a [3] f32");
  EXPECT_FALSE(tensors.find("none").defined());
  tensors.set("b", {});
  EXPECT_EQ(to_string(tensors), "a [3] f32");
  EXPECT_THAT(refusal([] {
                NamedTensors({{"x", Tensor::zeros({1})}, {"x", Tensor::zeros({1})}});
              }),
              HasSubstr("\"x\" comes twice"));
}

TEST(Batch, WithoutWhatTheModelAsksFor_NamesWhatItHas) {
  const Rank rank;
  const Batch batch{.tensors = {{"input_ids", Tensor::zeros({2, 7}, DType::i32)},
                                {"lengths", Tensor::zeros({2}, DType::i32)}}};
  EXPECT_EQ(
      refusal([&] { static_cast<void>(batch["input_id"]); }),
      "there is no tensor \"input_id\"; did you mean \"input_ids\"? there are input_ids [2, 7] "
      "i32, lengths [2] i32");
  EXPECT_EQ(batch.rows(), 2);
  EXPECT_EQ(batch.positions(), 7);
  EXPECT_FALSE(batch.find("labels").defined());
}

// A loss, and nothing else.
struct LossAlone : Model {
  Tensor loss(const Batch& batch) override { return autograd::sum(line.forward(batch["x"])); }
  Linear line{*this, "line", {.in = 4, .out = 3}};
};

TEST(Model, NeedsALossAlone_AndSaysWhatItLacks) {
  const Rank rank;
  LossAlone model;
  EXPECT_EQ(model.loss({.tensors = {{"x", Tensor::zeros({2, 4})}}}).rank(), 0);
  EXPECT_EQ(model.flops_per_token(8), 6.0 * 15);
  EXPECT_EQ(model.max_sequence(), 0);
  EXPECT_EQ(find_interface<Staged>(model), nullptr);
  EXPECT_EQ(refusal([&] { require_interface<CausalLm>(model, "generation"); }),
            "model model: generation needs zinc::nn::CausalLm, which this model does not derive "
            "from");
  Gpt2 gpt2(
      {.vocab_size = 7, .max_positions = 4, .hidden_size = 4, .num_layers = 2, .num_heads = 2});
  EXPECT_NE(find_interface<HasOutputs>(gpt2), nullptr);
  EXPECT_EQ(gpt2.num_blocks(), 2);
}

// --- stages

// Changes two tensors in turn; blocks are the stages between, but for the third.
struct Counting : Model, Staged {
  Tensor loss(const Batch& batch) override { return loss_of_stages(*this, batch); }
  int64_t num_stages() override { return 8; }
  bool is_block(int64_t index) override { return index != 3 && Staged::is_block(index); }
  TensorList stage(int64_t index, const Batch& batch, TensorList x) override {
    calls.push_back(index);
    if (index == 0) return {batch["x"] * 1.0f, autograd::square(batch["x"])};
    if (index == 7) return {autograd::sum(x[0] * x[1])};
    return {autograd::sigmoid(x[1]) * static_cast<float>(index), x[0]};
  }
  std::vector<int64_t> calls;
};

TEST(Stages, AreGroupedForRecomputationFromOutside) {
  Counting model;
  const auto text = [&](int64_t every) {
    std::string all;
    for (const StageSegment& segment : stage_segments(model, every)) {
      all += str("[", segment.begin, ",", segment.end, segment.recomputed ? ")r " : ") ");
    }
    return all;
  };
  EXPECT_EQ(text(0), "[0,1) [1,2) [2,3) [3,4) [4,5) [5,6) [6,7) [7,8) ");
  EXPECT_EQ(text(2), "[0,1) [1,3)r [3,4) [4,6)r [6,7)r [7,8) ");
  EXPECT_EQ(text(9), "[0,1) [1,3)r [3,4) [4,7)r [7,8) ");
}

TEST(Stages, WithListsOfTensors_HaveTheSameGradientsRecomputed) {
  const Rank rank;
  std::vector<double> gradients[3];
  double losses[3];
  size_t calls[3];
  for (const int64_t every : {0, 2, 9}) {
    const size_t at = every == 0 ? 0 : every == 2 ? 1 : 2;
    Counting model;
    model.set_recompute_every(every);
    Tensor x = random_tensor({3, 5}, 1, DType::f64);
    autograd::requires_grad_(x);
    const Tensor loss = model.loss({.tensors = {{"x", x}}});
    losses[at] = loss.item();
    autograd::backward(loss);
    gradients[at] = autograd::grad(x).to_vector<double>();
    calls[at] = model.calls.size();
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_EQ(gradients[0], gradients[1]);
  EXPECT_EQ(gradients[0], gradients[2]);
  EXPECT_EQ(calls[0], 8u);
  EXPECT_GT(calls[2], 8u);
}

TEST(Outputs, AreTheLogitsThatTheLossIsOf) {
  const Rank rank;
  const autograd::NoGrad no_grad;
  Llama model({.vocab_size = 11,
               .max_positions = 8,
               .hidden_size = 8,
               .intermediate_size = 12,
               .num_layers = 2,
               .num_heads = 2});
  const auto ids = [](const std::vector<int32_t>& values) {
    return Tensor::from<int32_t>(values, {1, 3}, DType::i32);
  };
  const Batch batch{.tensors = {{"input_ids", ids({1, 4, 9})}, {"labels", ids({4, 9, 2})}}};
  const NamedTensors outputs = model.outputs(batch);
  const std::vector<double> logits = outputs["logits"].to_vector<double>();
  EXPECT_EQ(outputs["hidden"].shape(), (Shape{1, 3, 8}));
  double loss = 0.0;
  for (size_t t = 0; t < 3; ++t) {
    double sum = 0.0;
    for (size_t v = 0; v < 11; ++v) sum += std::exp(logits[t * 11 + v]);
    const std::vector<size_t> labels{4, 9, 2};
    loss += std::log(sum) - logits[t * 11 + labels[t]];
  }
  EXPECT_NEAR(model.loss(batch).item(), loss, 1e-5);
  const std::vector<double> last = model.next_logits(batch["input_ids"]).to_vector<double>();
  for (size_t v = 0; v < 11; ++v) EXPECT_NEAR(last[v], logits[22 + v], 1e-6);
}

// --- buffers

TEST(Buffer, IsMadeOncePerDeviceDtypeAndLength) {
  int made = 0;
  Buffer buffer([&](int64_t size, DType dtype) {
    ++made;
    return TensorList{Tensor::zeros({size}, dtype)};
  });
  const Rank rank;
  EXPECT_EQ(buffer.get(4, DType::f32)[0].shape(), (Shape{4}));
  EXPECT_EQ(buffer.get(3, DType::f32)[0].shape(), (Shape{4}));
  EXPECT_EQ(made, 1);
  const void* const first = buffer.get(4, DType::f32)[0].storage_id();
  EXPECT_EQ(buffer.get(6, DType::f32)[0].shape(), (Shape{8}));
  EXPECT_EQ(buffer.get(6, DType::f64)[0].dtype(), DType::f64);
  EXPECT_EQ(made, 3);
  // A graph may have recorded it: it is still there, and the first choice.
  EXPECT_EQ(buffer.get(4, DType::f32)[0].storage_id(), first);
  const Rank meta({.device = {.meta = true}});
  EXPECT_TRUE(buffer.get(6, DType::f64)[0].device().meta);
  EXPECT_EQ(made, 4);
}

// Of batches of any length one table is made, on each device, if the longest is known.
TEST(Buffer, IsMadeAtOnceForTheLargestBatch) {
  int made = 0;
  Buffer buffer([&](int64_t size, DType dtype) {
    ++made;
    return TensorList{Tensor::zeros({size}, dtype)};
  });
  {
    const Rank meta({.device = {.meta = true}});
    const LargestBatchScope largest(true);
    buffer.get(5, DType::f32);
  }
  const Rank rank;
  EXPECT_FALSE(LargestBatchScope::is_on());
  for (const int64_t size : {3, 5, 4}) {
    EXPECT_EQ(buffer.get(size, DType::f32)[0].shape(), (Shape{5}));
  }
  EXPECT_EQ(made, 2);
  EXPECT_EQ(buffer.get(6, DType::f32)[0].shape(), (Shape{10}));
}

// --- gradcheck

struct Gate : Module {
  Gate(bool forgets) : forgets_(forgets) {}
  Tensor forward(const Tensor& x) {
    const Tensor gate = autograd::sigmoid(up.forward(x));
    return (forgets_ ? gate.detach() : gate) * down.forward(x);
  }
  Linear up{*this, "up", {.in = 5, .out = 4}};
  Linear down{*this, "down", {.in = 5, .out = 4}};
  bool forgets_;
};

TEST(Gradcheck, OfAModule_FindsTheParameterWhoseGradientIsWrong) {
  const Rank rank;
  const Tensor x = random_tensor({2, 3, 5}, 1, DType::f64);
  const auto check = [&](Gate& gate) {
    return gradcheck(gate, [&] { return autograd::sum(autograd::square(gate.forward(x))); });
  };
  Gate right(false);
  const GradcheckResult good = check(right);
  EXPECT_TRUE(good.ok()) << to_string(good);
  EXPECT_LT(good.worst, 1e-7);
  Gate wrong(true);
  const GradcheckResult bad = check(wrong);
  ASSERT_EQ(bad.wrong.size(), 2u) << to_string(bad);
  EXPECT_THAT(to_string(bad), HasSubstr("up.weight: 0 by backward"));
  EXPECT_THAT(to_string(bad), HasSubstr("up.bias"));
}

// A constant that is added to all scores of a softmax changes nothing.
struct Shifted : Module {
  Linear score{*this, "score", {.in = 5, .out = 4}};
  Linear shift{*this, "shift", {.in = 5, .out = 1}};
};

TEST(Gradcheck, AGradientOfZeroIsNoError) {
  const Rank rank;
  const Tensor x = random_tensor({6, 5}, 1, DType::f64);
  Shifted module;
  const GradcheckResult check = gradcheck(module, [&] {
    const Tensor scores = module.score.forward(x) + module.shift.forward(x);
    return autograd::sum(autograd::square(autograd::softmax(scores)));
  });
  EXPECT_TRUE(check.ok()) << to_string(check);
}

TEST(Gradcheck, RefusesWhatItCannotCheck) {
  const Rank rank;
  Gate gate(false);
  gate.up.weight().data();
  const auto sum = [] { return Tensor::zeros({}, DType::f64); };
  EXPECT_THAT(refusal([&] { gradcheck(gate, sum); }),
              HasSubstr("parameter 'up.weight' has values in f32; call module.set_dtype"));
  Gate other(false);
  EXPECT_THAT(refusal([&] { gradcheck(other, [] { return Tensor::zeros({2}); }); }),
              HasSubstr("must give an f64 scalar, not f32 [2]"));
}

}  // namespace model_test
}  // namespace zinc::nn
