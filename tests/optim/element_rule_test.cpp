#include "optim/element_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/error.h"
#include "optim/factory.h"

namespace zinc::optim {
namespace element_rule_test {

using testing::HasSubstr;

std::string message_of(const OptimizerConfig& config) {
  try {
    make_optimizer(config);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return {};
}

TEST(ElementRule, Adam8bit_HasTheMomentsOfAdamWInBlocks) {
  const auto rule = make_optimizer({.kind = OptimizerKind::adam8bit});
  EXPECT_EQ(rule->name(), "AdamW");  // whose checkpoints it has
  EXPECT_EQ(rule->state_name(0), "exp_avg");
  EXPECT_EQ(rule->state_name(1), "exp_avg_sq");
  EXPECT_EQ(rule->state_dtype(), DType::f32);
  const States states = rule->states();
  EXPECT_EQ(states.count, 2);
  EXPECT_EQ(states.blocks_of(0, DType::f32), BlockFormat::signed8);
  EXPECT_EQ(states.blocks_of(1, DType::f32), BlockFormat::unsigned8);
  EXPECT_EQ(states.blocks_of(2, DType::f32), std::nullopt);
  EXPECT_EQ(states.blocks_of(0, DType::f64), std::nullopt);
  EXPECT_EQ(make_optimizer({})->states().blocks_of(0, DType::f32), std::nullopt);
}

TEST(ElementRule, Adam8bit_HasNoOtherMoments) {
  EXPECT_THAT(message_of({.kind = OptimizerKind::adam8bit, .amsgrad = true}),
              HasSubstr("leave zinc.moments and amsgrad out"));
  EXPECT_THAT(message_of({.kind = OptimizerKind::adam8bit, .moments = Moments::bf16}),
              HasSubstr("leave zinc.moments and amsgrad out"));
  EXPECT_THROW(ElementRule({.rule = kernels::UpdateRule::lion, .states = DType::u8}),
               InvalidArgument);
  EXPECT_THROW(ElementRule({.decoupled = false, .states = DType::u8}), InvalidArgument);
}

}  // namespace element_rule_test
}  // namespace zinc::optim
