// A frozen base that is kept in 4 or 8 bits, and decoded for each use.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/local/local.h"
#include "core/error.h"
#include "nn/lora.h"
#include "nn/quantize.h"
#include "tests/zero/tiny_model.h"
#include "tests/zero/tiny_training.h"
#include "zero/engine.h"
#include "zero/layout/shard_group.h"

namespace zinc::zero {
namespace quantized_test {

using testing::AllOf;
using testing::HasSubstr;

constexpr int kRanks = 2;
constexpr const char* kMatrix = "transformer.h.1.attn.c_attn.weight";

std::unique_ptr<nn::Model> adapted_model() {
  auto model = test::make_tiny_model(test::Family::gpt2);
  nn::add_lora(*model, {.rank = 3, .dropout = 0.1, .targets = {"all-linear"}});
  return model;
}

EngineConfig config_on(int stage, DType dtype = DType::bf16) {
  EngineConfig config = test::training_config(1, dtype, ReduceSchedule::boundary);
  config.zero.stage = stage;
  return config;
}

std::vector<double> train(Engine& engine, int steps) {
  std::vector<double> losses;
  for (int64_t step = 0; step < steps; ++step) {
    engine.backward(engine.forward(test::make_batch(kRanks * step + engine.world().rank())));
    losses.push_back(engine.step().loss);
  }
  return losses;
}

void on_ranks(const std::function<void(comm::World&)>& work) {
  comm::run_local_ranks(kRanks, {.seed = 5, .num_threads = 1}, work);
}

// Plain adapters over a base whose values are the decoded ones.
TEST(Quantized, TrainsAsOverTheBaseThatItDecodesTo) {
  for (const BlockFormat format : {BlockFormat::nf4, BlockFormat::int8}) {
    for (const int stage : {0, 3}) {
      on_ranks([&](comm::World& world) {
        std::map<std::string, std::vector<float>> base;
        std::vector<double> quantized, plain, whole;
        std::vector<float> after;
        {
          const auto model = adapted_model();
          const std::vector<std::string> paths = nn::quantize_base(*model, format);
          EXPECT_EQ(paths.size(), 16u) << "four in each of four blocks";
          Engine engine(*model, config_on(stage), world);
          for (const std::string& path : paths) {
            base[path + ".weight"] = engine.parameter(path + ".weight").to_vector<float>();
          }
          quantized = train(engine, 3);
          after = test::weights_of(engine);
        }
        {
          const auto model = adapted_model();
          Engine engine(*model, config_on(stage), world);
          EXPECT_NE(engine.parameter(kMatrix).to_vector<float>(), base[kMatrix]);
          for (const auto& [name, values] : base) {
            engine.set_parameter(name, Tensor::from(values, engine.parameter(name).shape()));
          }
          plain = train(engine, 3);
          EXPECT_TRUE(test::weights_of(engine) == after);
        }
        {
          const auto model = adapted_model();
          Engine engine(*model, config_on(stage), world);
          whole = train(engine, 3);
        }
        EXPECT_EQ(quantized, plain) << name_of(format) << ", stage " << stage;
        EXPECT_NE(quantized, whole);
      });
    }
  }
}

// The bytes in memory between steps, by stage: everything but the matrices of the blocks, and these
// encoded.
TEST(Quantized, TakesTheBytesOfItsFormat) {
  for (const int stage : {0, 1, 2, 3}) {
    on_ranks([&](comm::World& world) {
      const auto bytes = [&](std::optional<BlockFormat> format) {
        const auto model = adapted_model();
        if (format) nn::quantize_base(*model, *format);
        const Engine engine(*model, config_on(stage), world);
        return world.context().allocator().report().at(Tier::device, Label::parameters).live;
      };
      const auto model = adapted_model();
      nn::quantize_base(*model, BlockFormat::nf4);
      model->set_dtype(DType::bf16);
      int64_t before = 0, after = 0;
      for (const ShardGroup& group : make_shard_groups(*model, kRanks, 100)) {
        for (const Segment& segment : group.segments()) {
          if (!is_quantized(segment.kind)) continue;
          before += segment.size * 2;
          after += segment.size / 1024 * 536;
        }
      }
      EXPECT_GT(before, 0);
      const int64_t parts = stage == 3 ? kRanks : 1;
      // Without a format they lie beside the frozen ones, and share their padding.
      const int64_t padding = 4 * kRanks * kShardUnit * 2 / parts;
      EXPECT_NEAR(static_cast<double>(bytes({}) - bytes(BlockFormat::nf4)),
                  static_cast<double>((before - after) / parts), static_cast<double>(padding))
          << "stage " << stage;
    });
  }
}

TEST(Quantized, ValuesThatAreSetAreEncoded_AndTheModelGetsDecodedOnes) {
  for (const int stage : {0, 3}) {
    on_ranks([&](comm::World& world) {
      const auto model = adapted_model();
      nn::quantize_base(*model, BlockFormat::int8);
      std::vector<float> decoded;
      {
        Engine engine(*model, config_on(stage, DType::f32), world);
        const Shape shape = engine.parameter(kMatrix).shape();
        std::vector<float> values(static_cast<size_t>(shape.numel()));
        for (size_t i = 0; i < values.size(); ++i) values[i] = i % 256 == 7 ? 2.0f : -0.25f;
        engine.set_parameter(kMatrix, Tensor::from(values, shape));
        decoded = engine.parameter(kMatrix).to_vector<float>();
        for (size_t i = 0; i < values.size(); ++i) {
          ASSERT_NEAR(decoded[i], values[i], 2.0 * 0.0072) << i;
        }
        train(engine, 1);
        EXPECT_EQ(engine.parameter(kMatrix).to_vector<float>(), decoded);
        engine.release_to_model();
      }
      EXPECT_EQ(model->parameter(kMatrix).data().to_vector<float>(), decoded);
    });
  }
}

TEST(Quantized, AModelThatWasNotGivenItsValuesSaysSo) {
  on_ranks([&](comm::World& world) {
    const auto model = adapted_model();
    nn::quantize_base(*model, BlockFormat::nf4);
    { const Engine engine(*model, config_on(0), world); }
    EXPECT_NO_THROW(model->parameter("transformer.ln_f.weight").data());
    try {
      model->parameter(kMatrix).data();
      FAIL();
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("release_to_model"));
    }
  });
}

class NotANumber : public nn::WeightSource {
 public:
  std::optional<Shape> shape_of(const autograd::Parameter& parameter) const override {
    return parameter.shape();
  }
  void read(const autograd::Parameter& parameter, int64_t, View out) const override {
    const bool is_bad = parameter.name() == kMatrix;
    const float value = is_bad ? std::numeric_limits<float>::quiet_NaN() : 0.0f;
    for (int64_t i = 0; i < out.numel(); ++i) {
      if (out.dtype() == DType::f32) {
        out.data_as<float>()[i] = value;
      } else {
        out.data_as<bf16>()[i] = bf16(value);
      }
    }
  }
};

TEST(Quantized, IsRefusedByName) {
  const auto message = [](const auto& work) -> std::string {
    try {
      work();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const auto whole = test::make_tiny_model(test::Family::gpt2);
  EXPECT_THAT(message([&] { nn::quantize_base(*whole, BlockFormat::nf4); }),
              HasSubstr("no linear layer is frozen"));
  const auto dora = test::make_tiny_model(test::Family::gpt2);
  nn::add_lora(*dora, {.rank = 2, .dora = true, .targets = {"c_attn"}});
  EXPECT_THAT(message([&] { nn::quantize_base(*dora, BlockFormat::nf4); }),
              AllOf(HasSubstr("DoRA"), HasSubstr("leave dora out")));
  whole->parameter(kMatrix).set_block_format(BlockFormat::int8);
  EXPECT_THAT(message([&] { make_shard_groups(*whole, 1, 0); }),
              AllOf(HasSubstr(kMatrix), HasSubstr("is trained")));
  for (const BlockFormat format : {BlockFormat::nf4, BlockFormat::int8}) {
    const auto model = adapted_model();
    nn::quantize_base(*model, format);
    EXPECT_THAT(message([&] {
                  on_ranks([&](comm::World& world) {
                    const auto mine = adapted_model();
                    nn::quantize_base(*mine, format);
                    const NotANumber values;
                    const Engine engine(*mine, config_on(3), world, {.weights = &values});
                  });
                }),
                AllOf(HasSubstr(kMatrix), HasSubstr("NaN"), HasSubstr(name_of(format))));
  }
}

}  // namespace quantized_test
}  // namespace zinc::zero
