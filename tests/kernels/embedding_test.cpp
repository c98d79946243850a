#include "kernels/embedding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/executor.h"
#include "kernels/reduce.h"
#include "tests/kernels/gradient_check.h"
#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace embedding_test {

using test::HostArray;
using testing::HasSubstr;

HostArray random_ids(int64_t n, int64_t rows, DType dtype, uint64_t seed) {
  return HostArray::random(Shape{n}, dtype, seed, 0.0, static_cast<double>(rows));
}

HostArray workspace_for(int64_t n) {
  return HostArray(Shape{embedding_backward_workspace_bytes(n)}, DType::u8);
}

// Sums of kRowsOfASum repeats in the order of the tokens, added in order, each in the accumulator's
// dtype, rounded at the end.
HostArray expected_gradient(const HostArray& ids, const HostArray& dy, const HostArray* before,
                            const Shape& shape, DType out, int64_t ignored) {
  const int64_t cols = shape[1];
  HostArray wide = HostArray::full(shape, dy.dtype() == DType::f64 ? DType::f64 : DType::f32, 0.0);
  HostArray part = wide;
  std::vector<int64_t> repeats(static_cast<size_t>(shape[0]), 0);
  // The sum of two f32 values in f64, rounded to f32, is their f32 sum.
  const auto end_part = [&](int64_t row) {
    for (int64_t e = row * cols; e < (row + 1) * cols; ++e) {
      wide.set(e, wide.at(e) + part.at(e));
      part.set(e, 0.0);
    }
  };
  for (int64_t i = 0; i < ids.numel(); ++i) {
    const auto row = static_cast<int64_t>(ids.at(i));
    if (row == ignored) continue;
    for (int64_t j = 0; j < cols; ++j) {
      part.set(row * cols + j, part.at(row * cols + j) + dy.at(i * cols + j));
    }
    if (++repeats[static_cast<size_t>(row)] % kRowsOfASum == 0) end_part(row);
  }
  for (int64_t row = 0; row < shape[0]; ++row) end_part(row);
  HostArray result(shape, out);
  for (int64_t i = 0; i < result.numel(); ++i) {
    if (before == nullptr) {
      result.set(i, wide.at(i));
    } else if (repeats[static_cast<size_t>(i / cols)] > 0) {
      const double sum = before->at(i) + wide.at(i);
      result.set(i, out == DType::f64 ? sum : static_cast<double>(static_cast<float>(sum)));
    } else {
      result.set(i, before->at(i));
    }
  }
  return result;
}

TEST(Embedding, EveryDType_CopiesRowsAndAddsPositions) {
  for (const DType dtype : test::kFloatDTypes) {
    const test::DeviceScope scope(test::device_for(dtype));
    for (const DType id_dtype : {DType::i32, DType::i64}) {
      for (const int64_t cols : {1, 3, 17, 130}) {
        const HostArray table = HostArray::random(Shape{50, cols}, dtype, 1);
        const HostArray positions = HostArray::random(Shape{9, cols}, dtype, 2);
        const HostArray ids = random_ids(14, 50, id_dtype, 3);
        HostArray y(Shape{2, 7, cols}, dtype);
        embedding_forward({.ids = ids, .table = table, .y = y}, test::test_stream());
        for (int64_t i = 0; i < y.numel(); ++i) {
          ASSERT_EQ(y.at(i), table.at(static_cast<int64_t>(ids.at(i / cols)) * cols + i % cols));
        }
        const HostArray given = random_ids(14, 9, id_dtype, 4);
        for (const bool explicit_positions : {false, true}) {
          HostArray sum(Shape{2, 7, cols}, dtype);
          embedding_forward({.ids = ids,
                             .table = table,
                             .position_table = positions,
                             .positions = explicit_positions ? ConstView(given) : ConstView(),
                             .start = 2,
                             .sequence_length = 7,
                             .y = sum},
                            test::test_stream());
          for (int64_t i = 0; i < y.numel(); ++i) {
            const int64_t token = i / cols;
            const int64_t position =
                explicit_positions ? static_cast<int64_t>(given.at(token)) : 2 + token % 7;
            double expected = y.at(i) + positions.at(position * cols + i % cols);
            if (dtype != DType::f64) expected = static_cast<double>(static_cast<float>(expected));
            ASSERT_EQ(sum.at(i), HostArray::of({expected}, Shape{}, dtype).at(0));
          }
        }
      }
    }
  }
}

// Few rows have runs of one sum, of exactly one, and of more than a block of a GPU has warps for.
TEST(EmbeddingBackward, EveryDType_SumsInTheOrderOfTokensBitForBit) {
  for (const DType dtype : test::kFloatDTypes) {
    const test::DeviceScope scope(test::device_for(dtype));
    for (const DType out : {dtype, DType::f32}) {
      if (dtype == DType::f64 && out != dtype) continue;
      for (const auto& [tokens, rows, cols] : {std::tuple<int64_t, int64_t, int64_t>{0, 5, 3},
                                               {1, 1, 1},
                                               {300, 7, 17},
                                               {64, 1, 3},
                                               {65, 1, 9},
                                               {400, 3, 300},
                                               {2500, 2, 3},
                                               {64, 5000, 3},
                                               {500, 3000, 130}}) {
        const HostArray ids = random_ids(tokens, rows, tokens % 2 ? DType::i64 : DType::i32, 5);
        const HostArray dy = HostArray::random(Shape{tokens, cols}, dtype, 6);
        const HostArray workspace = workspace_for(tokens);
        for (const bool accumulate : {false, true}) {
          for (const int64_t ignored : {int64_t{-1}, rows / 2}) {
            HostArray dtable = HostArray::random(Shape{rows, cols}, out, 7);
            const HostArray expected = expected_gradient(ids, dy, accumulate ? &dtable : nullptr,
                                                         dtable.shape(), out, ignored);
            embedding_backward({.ids = ids,
                                .dy = dy,
                                .dtable = dtable,
                                .accumulate = accumulate,
                                .ignored_id = ignored,
                                .workspace = workspace},
                               test::test_stream());
            ASSERT_TRUE(test::same_bits(dtable, expected))
                << name_of(dtype) << " tokens " << tokens << " rows " << rows;
          }
        }
      }
    }
  }
}

// The numbers of rows are a power of two and numbers for which an id of a larger table could be
// taken.
TEST(EmbeddingBackward, EveryDType_RowsThatAreAbsentAreZeroAndAddNothing) {
  for (const DType dtype : test::kFloatDTypes) {
    const test::DeviceScope scope(test::device_for(dtype));
    for (const int64_t rows : {1, 5, 2048}) {
      const int64_t tokens = 300, cols = 9;
      HostArray ids = random_ids(tokens, rows, DType::i32, 12);
      for (int64_t i = 0; i < tokens; i += 3) ids.set(i, static_cast<double>(kAbsentRow));
      const HostArray table = HostArray::random(Shape{rows, cols}, dtype, 13);
      HostArray y = HostArray::full(Shape{tokens, cols}, dtype, 7.0);
      embedding_forward({.ids = ids, .allows_absent = true, .table = table, .y = y},
                        test::test_stream());
      for (int64_t i = 0; i < y.numel(); ++i) {
        const auto row = static_cast<int64_t>(ids.at(i / cols));
        ASSERT_EQ(y.at(i), row == kAbsentRow ? 0.0 : table.at(row * cols + i % cols));
      }
      const HostArray dy = HostArray::random(Shape{tokens, cols}, dtype, 14);
      HostArray dtable = HostArray::random(Shape{rows, cols}, dtype, 15);
      const HostArray expected =
          expected_gradient(ids, dy, &dtable, dtable.shape(), dtype, kAbsentRow);
      embedding_backward({.ids = ids,
                          .allows_absent = true,
                          .dy = dy,
                          .dtable = dtable,
                          .accumulate = true,
                          .workspace = workspace_for(tokens)},
                         test::test_stream());
      ASSERT_TRUE(test::same_bits(dtable, expected)) << name_of(dtype) << " rows " << rows;
    }
  }
}

TEST(EmbeddingBackward, F64_MatchesCentralDifferences) {
  const test::DeviceScope scope(kCpu);
  const HostArray table = HostArray::random(Shape{6, 5}, DType::f64, 8);
  const HostArray ids = random_ids(11, 6, DType::i64, 9);
  const HostArray dy = HostArray::random(Shape{11, 5}, DType::f64, 10);
  const HostArray numeric = test::numeric_gradient(table, dy, [&](const HostArray& at) {
    HostArray y(Shape{11, 5}, DType::f64);
    embedding_forward({.ids = ids, .table = at, .y = y}, test::test_stream());
    return y;
  });
  HostArray dtable(table.shape(), DType::f64);
  embedding_backward({.ids = ids, .dy = dy, .dtable = dtable, .workspace = workspace_for(11)},
                     test::test_stream());
  EXPECT_LE(test::relative_l2(dtable, numeric), test::kGradientTolerance);
}

TEST(EmbeddingBackward, PositionTable_IsASumOverTheBatch) {
  // The route that the header names for tables without explicit positions.
  const int64_t batch = 5, length = 4, cols = 6;
  const HostArray dy = HostArray::random(Shape{batch * length, cols}, DType::f32, 11);
  HostArray by_reduce(Shape{length * cols}, DType::f32);
  reduce({.op = ReduceOp::sum,
          .over = ReduceOver::leading,
          .x = dy.view().reshape(Shape{batch, length * cols}),
          .y = by_reduce},
         test::test_stream());
  HostArray positions(Shape{batch * length}, DType::i32);
  for (int64_t i = 0; i < positions.numel(); ++i) positions.set(i, double(i % length));
  HostArray by_ids(Shape{length, cols}, DType::f32);
  embedding_backward(
      {.ids = positions, .dy = dy, .dtable = by_ids, .workspace = workspace_for(batch * length)},
      test::test_stream());
  EXPECT_EQ(by_reduce.values(), by_ids.values());
}

TEST(EmbeddingBackward, SkewedIds_SameBitsForAllThreadCounts) {
  HostArray ids = random_ids(3000, 256, DType::i32, 12);
  for (int64_t i = 0; i < ids.numel(); i += 2) ids.set(i, 32.0);
  const HostArray dy = HostArray::random(Shape{3000, 200}, DType::bf16, 13);
  const HostArray workspace = workspace_for(3000);
  EXPECT_TRUE(test::same_for_all_thread_counts([&] {
    HostArray dtable(Shape{2500, 200}, DType::bf16);
    embedding_backward({.ids = ids, .dy = dy, .dtable = dtable, .workspace = workspace},
                       test::test_stream());
    HostArray y(Shape{3000, 200}, DType::bf16);
    embedding_forward({.ids = ids, .table = dtable, .y = y}, test::test_stream());
    return std::vector<HostArray>{dtable, y};
  }));
}

TEST(Embedding, IdOutsideTheTable_IsNamed) {
  const HostArray table = HostArray::full(Shape{5, 3}, DType::f32, 1.0);
  HostArray y(Shape{3, 3}, DType::f32);
  for (const double bad : {-1.0, 5.0}) {
    const HostArray ids = HostArray::of({1, bad, bad}, Shape{3}, DType::i64);
    if (test::runs_on_cuda()) {  // Note [Indices outside their range on a GPU]
      embedding_forward({.ids = ids, .table = table, .y = y}, test::test_stream());
      for (int64_t i = 0; i < y.numel(); ++i) EXPECT_EQ(std::isnan(y.at(i)), i >= 3);
      HostArray dtable(Shape{5, 3}, DType::f32);
      const HostArray dy = HostArray::full(Shape{3, 3}, DType::f32, 2.0);
      embedding_backward({.ids = ids, .dy = dy, .dtable = dtable, .workspace = workspace_for(3)},
                         test::test_stream());
      for (int64_t i = 0; i < 15; ++i) EXPECT_EQ(dtable.at(i), i / 3 == 1 ? 2.0 : 0.0);
      continue;
    }
    const std::string expected =
        "ids[1] is " + std::to_string(static_cast<int>(bad)) + ", outside [0, 5)";
    EXPECT_THAT(test::message_of_invalid([&] {
                  embedding_forward({.ids = ids, .table = table, .y = y}, test::test_stream());
                }),
                HasSubstr(expected));
    HostArray dtable(Shape{5, 3}, DType::f32);
    EXPECT_THAT(test::message_of_invalid([&] {
                  embedding_backward(
                      {.ids = ids, .dy = y, .dtable = dtable, .workspace = workspace_for(3)},
                      test::test_stream());
                }),
                HasSubstr(expected));
    // On a worker stream the error comes with the synchronisation.
    const std::unique_ptr<Stream> worker = make_worker_stream("worker", 1, nullptr, 1);
    embedding_forward({.ids = ids, .table = table, .y = y}, *worker);
    EXPECT_THAT(test::message_of_invalid([&] { worker->synchronize(); }), HasSubstr(expected));
  }
}

TEST(Embedding, BadArguments_NameWhatIsWrong) {
  HostArray ids(Shape{4}, DType::i32);
  HostArray table(Shape{5, 3}, DType::f32);
  HostArray y(Shape{4, 3}, DType::f32);
  HostArray floats(Shape{4}, DType::f32);
  const auto message = [&](const EmbeddingForward& args) {
    return test::message_of_invalid([&] { embedding_forward(args, test::test_stream()); });
  };
  EXPECT_THAT(message({.ids = floats, .table = table, .y = y}),
              HasSubstr("ids must be i32 or i64"));
  EXPECT_THAT(message({.ids = ids, .table = table, .y = y.view().narrow(0, 0, 3)}),
              HasSubstr("a row of 3 for each of 4 ids"));
  EXPECT_THAT(message({.ids = ids, .table = table, .position_table = table, .y = y}),
              HasSubstr("sequence_length must be given"));
  EXPECT_THAT(message({.ids = ids,
                       .table = table,
                       .position_table = table,
                       .start = 2,
                       .sequence_length = 4,
                       .y = y}),
              HasSubstr("positions 2 to 5 are outside the position table of 5"));
  EXPECT_THAT(test::message_of_invalid([&] {
                embedding_backward({.ids = ids, .dy = y, .dtable = table, .workspace = floats},
                                   test::test_stream());
              }),
              HasSubstr("workspace must be u8"));
}

TEST(Embedding, CostAndMetaDevice) {
  HostArray ids(Shape{4}, DType::i32);
  HostArray table(Shape{5, 3}, DType::bf16);
  HostArray y(Shape{4, 3}, DType::bf16);
  EXPECT_EQ(cost(EmbeddingForward{.ids = ids, .table = table, .y = y}).bytes(), 16 + 24 + 24);
  EXPECT_EQ(cost(EmbeddingBackward{.ids = ids, .dy = y, .dtable = table, .workspace = ids}).bytes(),
            16 + 24 + 30);
  embedding_forward({.ids = test::meta_view(Shape{4}, DType::i32),
                     .table = test::meta_view(Shape{5, 3}, DType::f32, 2),
                     .y = test::meta_view(Shape{4, 3}, DType::f32, 3)},
                    test::test_stream());
}

}  // namespace embedding_test
}  // namespace zinc::kernels
