#include "kernels/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>
#include <tuple>

#include "tests/kernels/attention_inputs.h"
#include "tests/kernels/cpu_context.h"
#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace attention_test {

using ::testing::HasSubstr;
using ::testing::ValuesIn;
using namespace zinc::test;

// Blocks are 128 queries by 512 (forward) or 256 (backward) keys; on CUDA 32 by 32, on tensor cores
// 128 by 64 and 32 by 128 (backward).
constexpr Case kCases[] = {
    {"OneToken", 1, 1, 1, 1, 1, 4, kCausal},
    {"Small", 2, 5, 5, 3, 3, 8, kCausal},
    {"Full", 2, 7, 9, 2, 2, 16, 0},
    {"ManyBlocks", 1, 300, 300, 2, 2, 24, kCausal},
    {"ManyKeys", 1, 140, 700, 2, 1, 16, 0},
    {"CachedKeys", 2, 3, 200, 4, 2, 8, kCausal},
    {"MoreQueriesThanKeys", 1, 9, 4, 2, 2, 8, kCausal},
    {"GroupedQuery", 2, 70, 70, 6, 2, 16, kCausal},
    {"MultiQuery", 1, 150, 150, 4, 1, 8, kCausal},
    {"Lengths", 3, 40, 40, 2, 2, 8, kLengths},
    {"CausalLengths", 3, 40, 40, 2, 2, 8, kCausal | kLengths},
    {"Documents", 2, 300, 300, 2, 2, 8, kCausal | kDocuments},
    {"FullDocuments", 2, 70, 70, 2, 2, 8, kDocuments},
    {"Alibi", 2, 60, 60, 4, 4, 8, kCausal | kAlibi},
    {"FullAlibi", 1, 33, 50, 4, 2, 8, kAlibi},
    {"Bias", 2, 20, 30, 3, 3, 8, kBias},
    {"SharedBias", 3, 140, 140, 2, 2, 8, kSharedBias},
    {"OneBias", 2, 20, 30, 4, 2, 8, kOneBias | kCausal},
    {"Dropout", 2, 70, 70, 2, 2, 16, kCausal | kDropout},
    {"Scale", 2, 20, 20, 2, 2, 8, kCausal | kScale},
    {"Everything", 2, 150, 290, 4, 2, 12,
     kCausal | kLengths | kDocuments | kAlibi | kSharedBias | kDropout | kScale},
    {"OddHead", 1, 65, 65, 2, 2, 5, kCausal},
    {"Window", 2, 150, 150, 2, 1, 8, kCausal | kWindow},
    {"FullWindow", 1, 70, 150, 2, 2, 16, kWindow},
    {"WindowOverManyBlocks", 1, 140, 1100, 1, 1, 8, kWindow | kCausal},
    {"WindowedLengths", 3, 60, 40, 2, 2, 8, kWindow | kLengths},
    {"Softcap", 2, 70, 70, 4, 2, 16, kCausal | kSoftcap},
    {"DistanceBias", 2, 70, 70, 2, 2, 16, kDistanceBias},
    {"CausalDistanceBias", 3, 140, 140, 4, 2, 8, kCausal | kDistanceBias},
    {"OneDistanceBias", 2, 20, 50, 3, 1, 8, kOneDistanceBias | kLengths},
    {"DistanceBiasOfFewKeys", 1, 45, 3, 2, 2, 8, kDistanceBias},
    {"Place", 2, 70, 70, 2, 1, 16, kCausal | kPlace},
    {"FarPlace", 2, 70, 40, 2, 2, 16, kCausal | kFarPlace},
    {"PlaceOfManyKeys", 1, 140, 700, 2, 1, 8, kCausal | kPlace | kDropout},
    {"PlacedLengths", 3, 60, 40, 2, 2, 8, kFarPlace | kLengths},
    {"PlacedDocuments", 2, 150, 150, 2, 1, 16, kCausal | kPlace | kDocuments},
    {"PlacedAlibi", 2, 60, 60, 4, 4, 16, kCausal | kFarPlace | kAlibi},
    {"PlacedWindow", 1, 140, 150, 2, 1, 16, kCausal | kPlace | kWindow},
    {"FarWindow", 1, 40, 150, 2, 1, 8, kCausal | kFarPlace | kWindow},
    {"PlacedTerms", 2, 150, 290, 4, 2, 16,
     kCausal | kPlace | kLengths | kDocuments | kAlibi | kDistanceBias | kDropout | kScale |
         kWindow | kSoftcap},
    {"AllTerms", 2, 150, 290, 4, 2, 16,
     kCausal | kLengths | kDocuments | kAlibi | kDistanceBias | kDropout | kScale | kWindow |
         kSoftcap},
    {"Layout", 1, 140, 140, 2, 2, 16, kLayout},
    {"OneLayout", 2, 150, 150, 4, 2, 16, kOneLayout},
    {"CausalLayout", 2, 150, 150, 2, 1, 24, kCausal | kLayout},
    {"LayoutOfManyKeys", 1, 700, 1300, 2, 1, 8, kOneLayout},
    {"CausalLayoutOfManyKeys", 1, 300, 1300, 2, 1, 16, kCausal | kLayout},
    {"LayoutOfCachedKeys", 2, 3, 200, 4, 2, 8, kCausal | kLayout},
    {"LayoutAndLengths", 3, 70, 70, 2, 2, 16, kLayout | kLengths},
    {"LayoutAndAlibi", 2, 150, 150, 4, 2, 16, kLayout | kAlibi},
    {"LayoutAndBias", 2, 70, 140, 2, 1, 16, kLayout | kSharedBias | kDropout},
    {"PlacedLayout", 2, 70, 150, 4, 2, 16, kCausal | kPlace | kLayout | kWindow},
    {"FarLayout", 2, 70, 150, 4, 2, 16, kFarPlace | kOneLayout | kDropout},
    {"LayoutAndAllTerms", 2, 150, 290, 4, 2, 16,
     kCausal | kLengths | kDocuments | kAlibi | kDistanceBias | kDropout | kScale | kWindow |
         kSoftcap | kLayout},
    {"PlacedLayoutAndAllTerms", 2, 150, 290, 4, 2, 12,
     kCausal | kPlace | kLengths | kDocuments | kAlibi | kDistanceBias | kDropout | kScale |
         kSoftcap | kOneLayout},
};

double value_of(const View& view, int64_t a, int64_t b, int64_t c, int64_t d) {
  const int64_t at = a * view.stride(0) + b * view.stride(1) + c * view.stride(2) + d;
  return view.data_as<double>()[at];
}

// Whether query i of head h sees key j, by the text of the header.
bool sees(const Inputs& x, int64_t b, int64_t h, int64_t i, int64_t j) {
  const int64_t position = x.first_query() + i, key = x.first_key() + j;
  if (x.mask.causal && key > position) return false;
  if (x.mask.window > 0 && std::abs(position - key) >= x.mask.window) return false;
  if (x.mask.key_lengths && static_cast<double>(key) >= x.lengths.at(b)) return false;
  if (x.mask.layout.blocks) {
    const BlockLayout& layout = *x.mask.layout.blocks;
    const int64_t row = position / layout.block(), column = key / layout.block();
    if (!layout.sees(x.mask.layout.first_head + h, row, column)) return false;
  }
  if (x.mask.key_begin && static_cast<double>(key) < x.begin.at(b * x.c.Tq + i)) return false;
  return !(x.mask.key_end && static_cast<double>(key) >= x.end.at(b * x.c.Tq + i));
}

// out and lse of f64 inputs with all scores of a row in memory.
void forward_naively(const Inputs& x, HostArray& out, HostArray& lse) {
  const Case& c = x.c;
  const double scale = x.scale != 0.0 ? x.scale : 1.0 / std::sqrt(static_cast<double>(c.D));
  for (int64_t b = 0; b < c.B; ++b) {
    for (int64_t h = 0; h < c.H; ++h) {
      const int64_t g = h / (c.H / c.G);
      for (int64_t i = 0; i < c.Tq; ++i) {
        double sum = 0.0;
        std::vector<double> total(static_cast<size_t>(c.D), 0.0);
        for (int64_t j = 0; j < c.Tk; ++j) {
          if (!sees(x, b, h, i, j)) continue;
          double s = 0.0;
          for (int64_t d = 0; d < c.D; ++d)
            s += value_of(x.q(), b, i, h, d) * value_of(x.k(), b, j, g, d);
          s *= scale;
          if (x.softcap != 0.0) s = x.softcap * std::tanh(s / x.softcap);
          if (x.mask.alibi_slopes) {
            const int64_t distance = x.first_query() + i - x.first_key() - j;
            s -= x.slopes.at(h) * static_cast<double>(std::abs(distance));
          }
          if (x.mask.bias && x.bias.shape().rank() == 2) {
            const int64_t row = x.bias.shape()[0] == 1 ? 0 : h;
            s += x.bias.at(row * (c.Tq + c.Tk - 1) + c.Tq - 1 + j - i);
          } else if (x.mask.bias) {
            const int64_t bb = x.bias.shape()[0] == 1 ? 0 : b, hh = x.bias.shape()[1] == 1 ? 0 : h;
            s += x.bias.at(((bb * x.bias.shape()[1] + hh) * c.Tq + i) * c.Tk + j);
          }
          const double e = std::exp(s);
          sum += e;
          const auto element = static_cast<uint64_t>(((b * c.H + h) * c.Tq + i) * c.Tk + j);
          const bool dropped = x.dropout.key.uniform(element) < x.dropout.probability;
          if (dropped) continue;
          const double kept = e / (1.0 - double{x.dropout.probability});
          for (int64_t d = 0; d < c.D; ++d) {
            total[static_cast<size_t>(d)] += kept * value_of(x.v(), b, j, g, d);
          }
        }
        for (int64_t d = 0; d < c.D; ++d) {
          out.set(((b * c.Tq + i) * c.H + h) * c.D + d,
                  sum == 0.0 ? 0.0 : total[static_cast<size_t>(d)] / sum);
        }
        lse.set((b * c.H + h) * c.Tq + i, std::log(sum));
      }
    }
  }
}

class AttentionOver : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(All, AttentionOver, ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(AttentionOver, F64_MatchesDefinition) {
  CpuContext context;
  Inputs x(GetParam(), DType::f64);
  x.forward(context.stream());
  HostArray out = x.out, lse = x.lse;
  forward_naively(x, out, lse);
  // Scores of size 10 or less lose at most 1e3 epsilons between two orders of summation.
  EXPECT_LE(relative_l2(x.out, out), 1e-13);
  EXPECT_LE(max_relative_error(x.lse, lse, 1.0), 1e-13);
}

// <gradient, direction> against the central difference of <dout, out> along a random direction,
// for each input.
TEST_P(AttentionOver, F64Gradients_MatchCentralDifferences) {
  CpuContext context;
  Inputs x(GetParam(), DType::f64);
  x.forward(context.stream());
  x.backward(context.stream());
  const double h = 1e-5;
  const auto loss = [&] {
    x.forward(context.stream());
    double sum = 0.0;
    const Case& c = x.c;
    for (int64_t b = 0; b < c.B; ++b) {
      for (int64_t i = 0; i < c.Tq; ++i) {
        for (int64_t head = 0; head < c.H; ++head) {
          for (int64_t d = 0; d < c.D; ++d) {
            sum += value_of(x.out, b, i, head, d) * value_of(x.dout(), b, i, head, d);
          }
        }
      }
    }
    return sum;
  };
  const auto check = [&](const char* name, HostArray& store, const View& input,
                         const HostArray& gradient) {
    const HostArray direction = HostArray::random(gradient.shape(), DType::f64, 9);
    const HostArray before = store;
    const auto shift = [&](double factor) {
      double* to = input.data_as<double>();
      const Shape& s = input.shape();
      int64_t e = 0;
      for (int64_t a = 0; a < s[0]; ++a) {
        for (int64_t b = 0; b < s[1]; ++b) {
          for (int64_t c = 0; c < s[2]; ++c) {
            for (int64_t d = 0; d < s[3]; ++d, ++e) {
              to[a * input.stride(0) + b * input.stride(1) + c * input.stride(2) + d] +=
                  factor * direction.at(e);
            }
          }
        }
      }
    };
    shift(h);
    const double up = loss();
    shift(-2 * h);
    const double down = loss();
    shift(h);
    double expected = (up - down) / (2 * h), got = 0.0, size = 0.0;
    for (int64_t e = 0; e < gradient.numel(); ++e) {
      got += gradient.at(e) * direction.at(e);
      size += gradient.at(e) * gradient.at(e);
    }
    // Truncation is h^2 times a third derivative, rounding epsilon * |loss| / h; both are small
    // against the length of the gradient.
    const double scale = std::sqrt(size) + 1e-3 * std::abs(up) + 1e-3;
    EXPECT_NEAR(got, expected, 1e-6 * scale) << name;
  };
  check("dq", x.q_store, x.q(), x.dq);
  check("dk", x.k_store, x.k(), x.dk);
  check("dv", x.v_store, x.v(), x.dv);
  if (!x.mask.bias) return;
  const Shape& s = x.bias.shape();
  const View bias = s.rank() == 2 ? x.bias.view().reshape({1, 1, s[0], s[1]}) : x.bias.view();
  check("dbias", x.bias, bias, x.dbias);
}

TEST_P(AttentionOver, EveryType_MatchesF64) {
  for (const DType dtype : kShortFloatDTypes) {
    CpuContext context;
    Inputs x(GetParam(), dtype);
    Inputs exact = x.in_f64();
    x.forward(context.stream());
    x.backward(context.stream());
    exact.forward(context.stream());
    exact.backward(context.stream());
    // Forward: probabilities and the output are each rounded once (2 epsilons); the f32 part
    // loses epsilon * sqrt(D) * |score| with scores up to 16. Backward adds roundings of the output
    // (in delta), of dscores and of the gradients.
    const double scores =
        16 * epsilon_of(DType::f32) * std::sqrt(static_cast<double>(x.c.D + x.c.Tk));
    const double forward = 2 * epsilon_of(dtype) + scores;
    EXPECT_LE(relative_l2(x.out, exact.out), forward) << to_string(dtype);
    EXPECT_LE(max_relative_error(x.lse, exact.lse, 1.0), scores) << to_string(dtype);
    // With one key, dq and dk are 0 up to the rounding of delta, and are compared with dv's size.
    const auto close = [&](const HostArray& got, const HostArray& expected, const char* name) {
      double size = 0.0, off = 0.0, reference = 0.0;
      for (int64_t i = 0; i < got.numel(); ++i) {
        off += std::pow(got.at(i) - expected.at(i), 2);
        size += std::pow(expected.at(i), 2);
      }
      for (int64_t i = 0; i < exact.dv.numel(); ++i) reference += std::pow(exact.dv.at(i), 2);
      EXPECT_LE(std::sqrt(off), 2 * forward * std::sqrt(std::max(size, reference)))
          << name << " " << to_string(dtype);
    };
    close(x.dq, exact.dq, "dq");
    close(x.dk, exact.dk, "dk");
    close(x.dv, exact.dv, "dv");
    if (x.mask.bias) close(x.dbias, exact.dbias, "dbias");
  }
}

TEST_P(AttentionOver, Bits_DoNotDependOnThreads) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    EXPECT_TRUE(same_bits_for_contexts([&](StreamRef stream) {
      Inputs x(GetParam(), dtype);
      x.forward(stream);
      x.backward(stream);
      std::vector<HostArray> results{x.out, x.lse, x.dq, x.dk, x.dv};
      if (x.mask.bias) results.push_back(x.dbias);
      return results;
    })) << to_string(dtype);
  }
}

// The shape is small enough for all of a GPU's schedules.
TEST(Attention, Bits_DoNotDependOnSchedules) {
  CpuContext context;
  EXPECT_TRUE(same_for_all_thread_counts([&] {
    Inputs x({"", 1, 40, 70, 2, 1, 12, kCausal | kLengths | kAlibi | kOneBias | kDropout},
             DType::bf16);
    x.lengths.set(0, 65);
    x.forward(context.stream());
    x.backward(context.stream());
    return std::vector<HostArray>{x.out, x.lse, x.dq, x.dk, x.dv, x.dbias};
  }));
  EXPECT_TRUE(same_for_all_thread_counts([&] {
    Inputs x({"", 2, 40, 50, 2, 1, 16, kWindow | kSoftcap | kDistanceBias}, DType::bf16);
    x.forward(context.stream());
    x.backward(context.stream());
    return std::vector<HostArray>{x.out, x.lse, x.dq, x.dk, x.dv, x.dbias};
  }));
  // The same by tensor cores.
  EXPECT_TRUE(same_for_all_thread_counts([&] {
    Inputs x({"", 1, 40, 140, 2, 1, 16, kCausal | kDocuments}, DType::bf16);
    x.make_documents_of(50);
    x.forward(context.stream());
    x.backward(context.stream());
    return std::vector<HostArray>{x.out, x.lse, x.dq, x.dk, x.dv};
  }));
}

TEST(Attention, BitsWithALayout_DoNotDependOnSchedules) {
  CpuContext context;
  for (const int64_t D : {12, 16}) {  // without tensor cores, and with them
    EXPECT_TRUE(same_for_all_thread_counts([&] {
      Inputs x({"", 1, 70, 140, 2, 1, D, kCausal | kLayout | kSharedBias}, DType::bf16);
      x.forward(context.stream());
      x.backward(context.stream());
      return std::vector<HostArray>{x.out, x.lse, x.dq, x.dk, x.dv, x.dbias};
    }));
  }
}

// Kernels that use tensor cores, and those that do not, read the counter.
TEST(Attention, CounterOnTheDevice_TakesThePlaceOfTheKeys) {
  if (!runs_on_cuda()) GTEST_SKIP() << "a counter in memory is for a GPU";
  CpuContext context;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Case c{"", 1, 20, 40, 2, 1, 16, kCausal | kDropout};
    Inputs by_key(c, dtype), by_counter(c, dtype);
    by_key.dropout.key.counter_high = 12345;
    const HostArray counter = HostArray::of({12345.0}, Shape{1}, DType::i64);
    by_counter.dropout.counter = counter;
    for (Inputs* x : {&by_key, &by_counter}) {
      x->forward(context.stream());
      x->backward(context.stream());
    }
    for (const auto array : {&Inputs::out, &Inputs::dq, &Inputs::dk, &Inputs::dv}) {
      const HostArray& expected = by_key.*array;
      for (int64_t i = 0; i < expected.numel(); ++i) {
        ASSERT_EQ((by_counter.*array).at(i), expected.at(i)) << name_of(dtype) << " " << i;
      }
    }
  }
}

// Blocks of 128 positions see themselves and the first one. Keys and values of block 2 are NaN, and
// so are the sums of its queries: a kernel that visits a block of scores that the layout lacks
// multiplies a NaN with a weight of 0, and passes it on.
TEST(Attention, BlocksThatALayoutLacks_AreNotVisited) {
  CpuContext context;
  constexpr int64_t kBlock = 128, kBlocks = 4, D = 16;
  const std::vector<uint8_t> seen{1, 0, 0, 0, 1, 1, 0, 0, 1, 0, 1, 0, 1, 0, 0, 1};
  for (const DType dtype : kFloatDTypes) {
    Inputs x({"", 1, kBlock * kBlocks, kBlock * kBlocks, 1, 1, D, 0}, dtype);
    x.set_layout(std::make_shared<const BlockLayout>(kBlock, 1, kBlocks, seen), 0);
    for (int64_t t = 2 * kBlock; t < 3 * kBlock; ++t) {
      x.k_store.set((t * 3 + 2) * D, NAN);
      x.v_store.set(t * 3 * D, NAN);
    }
    x.forward(context.stream());
    x.backward(context.stream());
    for (int64_t t = 0; t < kBlock * kBlocks; ++t) {
      const bool is_poisoned = t / kBlock == 2;
      EXPECT_EQ(std::isnan(x.out.at(t * D)), is_poisoned) << t;
      EXPECT_EQ(std::isnan(x.dq.at(t * D)), is_poisoned) << t;
      // All queries see the keys of block 0.
      EXPECT_EQ(std::isnan(x.dk.at(t * D)), is_poisoned || t < kBlock) << t;
      EXPECT_EQ(std::isnan(x.dv.at(t * D)), is_poisoned || t < kBlock) << t;
    }
  }
}

TEST(Attention, QueriesThatSeeNothing_GiveZero) {
  CpuContext context;
  for (const DType dtype : kFloatDTypes) {
    Inputs x({"", 2, 6, 6, 2, 2, 8, kLengths}, dtype);  // batch 0 has length 0
    x.forward(context.stream());
    x.backward(context.stream());
    for (int64_t i = 0; i < x.out.numel() / 2; ++i) {
      EXPECT_EQ(x.out.at(i), 0.0);
      EXPECT_EQ(x.dq.at(i), 0.0);
      EXPECT_EQ(x.dk.at(i), 0.0);
      EXPECT_EQ(x.dv.at(i), 0.0);
    }
    EXPECT_EQ(x.lse.at(0), -INFINITY);
    EXPECT_NE(x.out.at(x.out.numel() - 1), 0.0);
  }
}

TEST(Attention, BiasOfMinusInfinity_HidesKeys) {
  CpuContext context;
  for (const DType dtype : kFloatDTypes) {
    Inputs x({"", 1, 4, 5, 2, 2, 8, kBias}, dtype);
    for (int64_t i = 0; i < x.bias.numel(); ++i) {
      const int64_t row = i / 5 % 4, column = i % 5;
      if (column == 2 || row == 1) x.bias.set(i, -INFINITY);
    }
    x.forward(context.stream());
    x.backward(context.stream());
    EXPECT_EQ(x.lse.at(1), -INFINITY);
    for (int64_t d = 0; d < 16; ++d) {
      EXPECT_EQ(x.out.at(16 + d), 0.0);     // query 1
      EXPECT_EQ(x.dk.at(2 * 16 + d), 0.0);  // key 2
      EXPECT_EQ(x.dv.at(2 * 16 + d), 0.0);
      EXPECT_TRUE(std::isfinite(x.dq.at(d)));
    }
  }
}

TEST(Attention, NaN_IsNotHidden) {
  CpuContext context;
  for (const DType dtype : kFloatDTypes) {
    Inputs x({"", 1, 40, 40, 1, 1, 8, kCausal}, dtype);
    x.k_store.set((20 * 3 + 2) * 8, NAN);  // key 20; of the three arrays, k
    x.forward(context.stream());
    x.backward(context.stream());
    EXPECT_FALSE(std::isnan(x.out.at(19 * 8)));
    EXPECT_TRUE(std::isnan(x.out.at(20 * 8)));
    EXPECT_TRUE(std::isnan(x.out.at(39 * 8)));
    EXPECT_TRUE(std::isnan(x.dv.at(0)));
  }
}

// Skipping blocks of keys that a document mask hides changes no bit: the visible part of a long
// sequence gives what the document alone gives at the same positions.
TEST(Attention, DocumentsInOneRow_MatchMaskedRows) {
  CpuContext context;
  const Case c{"", 1, 640, 640, 1, 1, 8, kCausal};
  Inputs all(c, DType::f32), first(c, DType::f32);
  all.begin = HostArray({1, 640}, DType::i32);
  all.begin.set_all(0);
  for (int64_t i = 600; i < 640; ++i) all.begin.set(i, 600);
  all.mask.key_begin = all.begin;
  all.forward(context.stream());
  first.forward(context.stream());
  for (int64_t i = 0; i < 600 * 8; ++i) ASSERT_EQ(all.out.at(i), first.out.at(i));
  EXPECT_NE(all.out.at(620 * 8), first.out.at(620 * 8));
}

TEST(Attention, EmptyExtents_AreHandled) {
  CpuContext context;
  for (const DType dtype : kFloatDTypes) {
    Inputs no_keys({"", 2, 3, 0, 2, 2, 8, 0}, dtype);
    no_keys.forward(context.stream());
    no_keys.backward(context.stream());
    for (int64_t i = 0; i < no_keys.out.numel(); ++i) {
      EXPECT_EQ(no_keys.out.at(i), 0.0);
      EXPECT_EQ(no_keys.dq.at(i), 0.0);
    }
    Inputs no_queries({"", 2, 0, 3, 2, 2, 8, 0}, dtype);
    no_queries.forward(context.stream());
    no_queries.backward(context.stream());
    for (int64_t i = 0; i < no_queries.dk.numel(); ++i) EXPECT_EQ(no_queries.dk.at(i), 0.0);
    Inputs no_batch({"", 0, 3, 3, 2, 2, 8, kDistanceBias}, dtype);
    no_batch.forward(context.stream());
    no_batch.backward(context.stream());
    for (int64_t i = 0; i < no_batch.dbias.numel(); ++i) EXPECT_EQ(no_batch.dbias.at(i), 0.0);
  }
}

TEST(Attention, MetaDevice_TakesTheSameWorkspace) {
  const auto peak = [](const Device& device) {
    Context context(ContextOptions{.device = device, .num_threads = 2});
    ContextScope scope(context);
    Inputs x({"", 1, 300, 300, 2, 1, 24, kCausal}, DType::bf16);
    const auto on = [&](const View& view) {
      return View(view.data(), view.dtype(), view.shape(), view.strides(), device, Tier::device);
    };
    attention_forward(
        {.q = on(x.q()), .k = on(x.k()), .v = on(x.v()), .out = on(x.out), .lse = on(x.lse)},
        context.compute());
    attention_backward({.q = on(x.q()),
                        .k = on(x.k()),
                        .v = on(x.v()),
                        .out = on(x.out),
                        .lse = on(x.lse),
                        .dout = on(x.dout()),
                        .dq = on(x.dq),
                        .dk = on(x.dk),
                        .dv = on(x.dv)},
                       context.compute());
    return context.allocator().report().at(Tier::device, Label::workspace).peak;
  };
  EXPECT_GT(peak(kCpu), 0);
  EXPECT_EQ(peak(kCpu), peak(Device{.meta = true}));
}

TEST(Attention, WrongArguments_AreNamed) {
  CpuContext context;
  Inputs x({"", 2, 6, 6, 4, 2, 8, 0}, DType::f32);
  const auto message = [&](const std::function<void(AttentionForward&)>& change) {
    AttentionForward args{.q = x.q(), .k = x.k(), .v = x.v(), .out = x.out, .lse = x.lse};
    change(args);
    return message_of_invalid([&] { attention_forward(args, context.stream()); });
  };
  const HostArray short_v({2, 5, 2, 8}, DType::f32), three_heads({2, 6, 3, 8}, DType::f32);
  const HostArray lengths({3}, DType::i32), bias({2, 3, 6, 6}, DType::f32);
  HostArray half_lse({2, 4, 6}, DType::bf16);
  EXPECT_THAT(message([&](auto& a) { a.k = {}; }), HasSubstr("attention: k is missing"));
  EXPECT_THAT(message([&](auto& a) { a.v = short_v; }),
              HasSubstr("v must have shape [2, 6, 2, 8]"));
  EXPECT_THAT(message([&](auto& a) { a.k = three_heads; }), HasSubstr("multiple of the key heads"));
  EXPECT_THAT(message([&](auto& a) { a.lse = half_lse; }), HasSubstr("lse must be f32"));
  EXPECT_THAT(message([&](auto& a) { a.mask.key_lengths = lengths; }), HasSubstr("key_lengths"));
  EXPECT_THAT(message([&](auto& a) { a.mask.bias = bias; }),
              HasSubstr("bias must be [2 or 1, 4 or 1"));
  const std::vector<uint8_t> ones(3, 1);
  const auto layout = std::make_shared<const BlockLayout>(16, 3, 1, ones);
  EXPECT_THAT(message([&](auto& a) { a.mask.layout.blocks = layout; }),
              HasSubstr("a layout of 3 heads has none for heads 0 to 3"));
  const auto short_layout = std::make_shared<const BlockLayout>(16, 1, 1, std::span(ones).first(1));
  EXPECT_THAT(message([&](auto& a) {
                a.mask.layout.blocks = short_layout;
                a.mask.origin = {.query = 11, .key = 0};
              }),
              HasSubstr("a layout of 1 blocks of 16 has positions 0 to 15, not 0 to 16"));
  const HostArray distances({4, 12}, DType::f32);
  EXPECT_THAT(message([&](auto& a) { a.mask.bias = distances; }),
              HasSubstr("or, by distance, [4 or 1, 11], not [4, 12]"));
  EXPECT_THAT(message([&](auto& a) { a.mask.window = -1; }), HasSubstr("window must be 0"));
  EXPECT_THAT(message([&](auto& a) { a.softcap = -2.0; }), HasSubstr("softcap must be 0"));
  EXPECT_THAT(message([&](auto& a) { a.dropout.probability = 1.0f; }), HasSubstr("[0, 1)"));
  EXPECT_THAT(message_of_invalid([&] {
                attention_backward({.q = x.q(),
                                    .k = x.k(),
                                    .v = x.v(),
                                    .out = x.out,
                                    .lse = x.lse,
                                    .dout = x.out,
                                    .dq = x.dq,
                                    .dk = x.dk,
                                    .dv = x.dv,
                                    .dbias = x.dq},
                                   context.stream());
              }),
              HasSubstr("dbias needs a bias"));
}

TEST(Attention, Cost_CountsVisiblePairs) {
  Inputs x({"", 1, 4, 6, 2, 1, 8, 0}, DType::bf16);
  AttentionForward args{.q = x.q(), .k = x.k(), .v = x.v(), .out = x.out, .lse = x.lse};
  args.mask.causal = true;
  EXPECT_EQ(cost(args).flops, 2 * 2 * 2 * 8 * (3 + 4 + 5 + 6));
  args.mask.window = 2;
  EXPECT_EQ(cost(args).flops, 2 * 2 * 2 * 8 * (2 + 2 + 2 + 2));
  args.mask = {.causal = false, .window = 2};
  EXPECT_EQ(cost(args).flops, 2 * 2 * 2 * 8 * (3 + 3 + 3 + 2));
  args.mask.window = 0;
  EXPECT_EQ(cost(args).flops, 2 * 2 * 2 * 8 * 24);
  EXPECT_EQ(cost(args).bytes_read, 2 * (4 * 16 + 2 * 6 * 8));
  EXPECT_EQ(cost(args).bytes_written, 2 * 4 * 16 + 4 * 2 * 4);
}

TEST(Attention, Cost_CountsTheBlocksOfALayout) {
  const Inputs x({"", 1, 40, 40, 2, 1, 8, 0}, DType::bf16);
  AttentionForward args{.q = x.q(), .k = x.k(), .v = x.v(), .out = x.out, .lse = x.lse};
  // Of 16, 16 and 8 positions; head 1 sees itself alone.
  const std::vector<uint8_t> seen{1, 0, 1, 1, 1, 0, 1, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 1};
  args.mask = {.causal = false};
  args.mask.layout.blocks = std::make_shared<const BlockLayout>(16, 2, 3, seen);
  const int64_t diagonal = 16 * 16 + 16 * 16 + 8 * 8;
  const int64_t first_head = diagonal + 16 * 8 + 16 * 16 + 8 * 16;
  EXPECT_EQ(cost(args).flops, 2 * 2 * 8 * (first_head + diagonal));
  args.mask.causal = true;
  const int64_t half = 2 * 16 * 17 / 2 + 8 * 9 / 2;
  EXPECT_EQ(cost(args).flops, 2 * 2 * 8 * (half + 16 * 16 + 8 * 16 + half));
}

// The first queries see no key.
TEST(Attention, Cost_CountsVisiblePairsOfMoreQueriesThanKeys) {
  Inputs x({"", 1, 6, 4, 2, 1, 8, 0}, DType::bf16);
  AttentionForward args{.q = x.q(), .k = x.k(), .v = x.v(), .out = x.out, .lse = x.lse};
  args.mask.causal = true;
  EXPECT_EQ(cost(args).flops, 2 * 2 * 2 * 8 * (0 + 0 + 1 + 2 + 3 + 4));
}

}  // namespace attention_test
}  // namespace zinc::kernels
