// Elements of parameters and of files' tensors, against plain loops over whole tensors.
#include "hub/name_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <utility>

#include "core/error.h"
#include "hub/model_folder.h"
#include "hub/weight_reader.h"
#include "tests/files/scratch_folder.h"

namespace zinc::hub {
namespace name_map_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Values = std::map<std::string, std::vector<float>>;

constexpr int64_t kHeads = 3, kDim = 4, kWidth = 5;  // of the fused tensors below

struct Case {
  std::string title;
  std::vector<WeightSpec> ours;
  std::vector<NameRow> rows;
  std::vector<WeightSpec> theirs;
  // theirs[name][i] = ours: the layout, index by index.
  std::function<void(const Values& ours, Values& theirs)> oracle;
};

// Fills theirs [heads, 3, dim, width] from ours: one tensor each for q, k and v.
void interleave(const Values& ours, const std::vector<std::string>& names, int64_t width,
                std::vector<float>& theirs) {
  for (int64_t h = 0; h < kHeads; ++h) {
    for (int64_t p = 0; p < 3; ++p) {
      for (int64_t d = 0; d < kDim; ++d) {
        for (int64_t c = 0; c < width; ++c) {
          theirs[static_cast<size_t>(((h * 3 + p) * kDim + d) * width + c)] = ours.at(
              names[static_cast<size_t>(p)])[static_cast<size_t>((h * kDim + d) * width + c)];
        }
      }
    }
  }
}

// Rotary halves of the first `rotary` rows of each head become neighbours.
std::vector<float> neighbours(const std::vector<float>& ours, int64_t heads, int64_t dim,
                              int64_t rotary, int64_t width) {
  std::vector<float> theirs = ours;
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t j = 0; j < rotary / 2; ++j) {
      for (int64_t half = 0; half < 2; ++half) {
        for (int64_t c = 0; c < width; ++c) {
          theirs[static_cast<size_t>((h * dim + 2 * j + half) * width + c)] =
              ours[static_cast<size_t>((h * dim + half * rotary / 2 + j) * width + c)];
        }
      }
    }
  }
  return theirs;
}

std::vector<Case> cases() {
  constexpr int64_t kRows = kHeads * kDim;
  const std::string q = "layers.7.q.weight", k = "layers.7.k.weight", v = "layers.7.v.weight";
  const std::string fused = "h.7.qkv.weight";
  std::vector<Case> all;
  all.push_back({"a row that only renames",
                 {{"layers.7.q.weight", {3, 4}}, {"layers.12.q.weight", {3, 4}}, {"norm", {5}}},
                 {{"layers.*.q.weight", "h.*.query"}},
                 {{"h.7.query", {3, 4}}, {"h.12.query", {3, 4}}, {"norm", {5}}},
                 [](const Values& ours, Values& theirs) {
                   theirs["h.7.query"] = ours.at("layers.7.q.weight");
                   theirs["h.12.query"] = ours.at("layers.12.q.weight");
                   theirs["norm"] = ours.at("norm");
                 }});
  all.push_back({"transposed",
                 {{"w", {6, 7}}, {"row", {1, 3}}},
                 {{"w", "t", transposed()}, {"row", "column", transposed()}},
                 {{"t", {7, 6}}, {"column", {3, 1}}},
                 [](const Values& ours, Values& theirs) {
                   for (size_t r = 0; r < 6; ++r) {
                     for (size_t c = 0; c < 7; ++c)
                       theirs["t"][c * 6 + r] = ours.at("w")[r * 7 + c];
                   }
                   theirs["column"] = ours.at("row");
                 }});
  all.push_back({"q, k and v with fewer heads behind each other; gate and up",
                 {{q, {8, 5}}, {k, {2, 5}}, {v, {2, 5}}, {"gate", {3}}, {"up", {3}}},
                 {{"layers.*.q.weight", "h.*.qkv.weight", part_of_theirs(0, 8, 12)},
                  {"layers.*.k.weight", "h.*.qkv.weight", part_of_theirs(8, 2, 12)},
                  {"layers.*.v.weight", "h.*.qkv.weight", part_of_theirs(10, 2, 12)},
                  {"gate", "gate_up", part_of_theirs(0, 3, 6)},
                  {"up", "gate_up", part_of_theirs(3, 3, 6)}},
                 {{fused, {12, 5}}, {"gate_up", {6}}},
                 [=](const Values& ours, Values& theirs) {
                   const auto append = [&](const std::string& to, const std::string& from) {
                     auto& target = theirs[to];
                     target.insert(target.end(), ours.at(from).begin(), ours.at(from).end());
                   };
                   theirs.clear();
                   for (const std::string& name : {q, k, v}) append(fused, name);
                   for (const std::string name : {"gate", "up"}) append("gate_up", name);
                 }});
  all.push_back({"q, k and v of each head side by side, from three parameters",
                 {{q, {kRows, kWidth}}, {k, {kRows, kWidth}}, {v, {kRows, kWidth}}},
                 {{"layers.*.q.weight", "h.*.qkv.weight", head_part(0, 3, kHeads, kDim)},
                  {"layers.*.k.weight", "h.*.qkv.weight", head_part(1, 3, kHeads, kDim)},
                  {"layers.*.v.weight", "h.*.qkv.weight", head_part(2, 3, kHeads, kDim)}},
                 {{fused, {3 * kRows, kWidth}}},
                 [=](const Values& ours, Values& theirs) {
                   interleave(ours, {q, k, v}, kWidth, theirs[fused]);
                 }});
  // Ours is one parameter [3, heads, dim, width]; its bias has a width of one.
  for (const int64_t width : {kWidth, int64_t{1}}) {
    const Shape shape = width == 1 ? Shape{3 * kRows} : Shape{3 * kRows, width};
    all.push_back({str("q, k and v of each head side by side, from one of width ", width),
                   {{"layers.7.c_attn", shape}},
                   {{"layers.*.c_attn", "h.*.qkv.weight", heads_outermost(3, kHeads, kDim)}},
                   {{fused, shape}},
                   [=](const Values& ours, Values& theirs) {
                     const std::vector<float>& packed = ours.at("layers.7.c_attn");
                     Values parts;
                     for (const int64_t p : {0, 1, 2}) {
                       const auto begin = packed.begin() + p * kRows * width;
                       parts[str(p)] = std::vector<float>(begin, begin + kRows * width);
                     }
                     interleave(parts, {"0", "1", "2"}, width, theirs[fused]);
                   }});
    for (const int64_t rotary : {int64_t{0}, int64_t{4}}) {
      const Shape heads = width == 1 ? Shape{12} : Shape{12, width};
      all.push_back({str("rotary ", rotary, " of width ", width),
                     {{"layers.7.k", heads}},
                     {{"layers.*.k", "layers.*.k", rotary_pairs(2, 6, rotary)}},
                     {{"layers.7.k", heads}},
                     [=](const Values& ours, Values& theirs) {
                       theirs["layers.7.k"] =
                           neighbours(ours.at("layers.7.k"), 2, 6, rotary == 0 ? 6 : rotary, width);
                     }});
    }
  }
  all.push_back({"one of ours in three tensors",
                 {{"layers.7.c_attn", {9, 5}}},
                 {{"layers.*.c_attn", "h.*.q", part_of_ours(0, 3)},
                  {"layers.*.c_attn", "h.*.k", part_of_ours(3, 4)},
                  {"layers.*.c_attn", "h.*.v", part_of_ours(7, 2)}},
                 {{"h.7.q", {3, 5}}, {"h.7.k", {4, 5}}, {"h.7.v", {2, 5}}},
                 [](const Values& ours, Values& theirs) {
                   const std::vector<float>& packed = ours.at("layers.7.c_attn");
                   theirs["h.7.q"].assign(packed.begin(), packed.begin() + 15);
                   theirs["h.7.k"].assign(packed.begin() + 15, packed.begin() + 35);
                   theirs["h.7.v"].assign(packed.begin() + 35, packed.end());
                 }});
  all.push_back(
      {"groups of two query heads, a key and a value",
       {{q, {8, 5}}, {k, {4, 5}}, {v, {4, 5}}},
       {{"layers.*.q.weight", "h.*.qkv.weight", grouped_part(2, 0, 4, 8)},
        {"layers.*.k.weight", "h.*.qkv.weight", grouped_part(2, 4, 2, 8)},
        {"layers.*.v.weight", "h.*.qkv.weight", grouped_part(2, 6, 2, 8)}},
       {{fused, {16, 5}}},
       [=](const Values& ours, Values& theirs) {
         for (size_t group = 0; group < 2; ++group) {
           size_t at = group * 40;
           for (const auto& [name, count] :
                {std::pair(q, size_t{20}), std::pair(k, size_t{10}), std::pair(v, size_t{10})}) {
             for (size_t i = 0; i < count; ++i) {
               theirs[fused][at++] = ours.at(name)[group * count + i];
             }
           }
         }
       }});
  return all;
}

class NameMaps : public testing::Test {
 protected:
  // Small integers, which bf16 holds.
  Values random_values(const std::vector<WeightSpec>& specs) {
    Values values;
    std::uniform_int_distribution<int> number(-128, 127);
    for (const WeightSpec& spec : specs) {
      auto& numbers = values[spec.name];
      numbers.resize(static_cast<size_t>(spec.shape.numel()));
      for (float& value : numbers) value = static_cast<float>(number(random_));
    }
    return values;
  }

  // [0, count) in random pieces, in random order.
  std::vector<std::pair<int64_t, int64_t>> pieces(int64_t count) {
    std::vector<std::pair<int64_t, int64_t>> all;
    for (int64_t begin = 0; begin < count;) {
      const int64_t end = std::min(count, begin + 1 + static_cast<int64_t>(random_() % 17));
      all.emplace_back(begin, end);
      begin = end;
    }
    std::ranges::shuffle(all, random_);
    return all;
  }

  static Values expected(const Case& c, const Values& ours) {
    Values theirs;
    for (const WeightSpec& spec : c.theirs) {
      theirs[spec.name].resize(static_cast<size_t>(spec.shape.numel()));
    }
    c.oracle(ours, theirs);
    return theirs;
  }

  std::mt19937 random_{17};
};

TEST_F(NameMaps, WrittenInPieces_AreTheWholeTensorsOfTheOracle) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.title);
    const files::ScratchFolder folder;
    const Values ours = random_values(c.ours);
    std::vector<files::TensorSpec> specs;
    for (const WeightSpec& spec : c.ours) specs.push_back({spec.name, DType::bf16, spec.shape});
    ModelFolderWriter writer(folder / "m", "{}", specs, {.names = {.rows = c.rows}});
    for (const WeightSpec& spec : c.ours) {
      for (const auto& [begin, end] : pieces(spec.shape.numel())) {
        writer.write(spec.name, begin,
                     ConstView(ours.at(spec.name).data() + begin, DType::f32, Shape{end - begin}));
      }
    }
    EXPECT_EQ(writer.num_written(), writer.num_elements());
    writer.commit();
    const WeightFolder written = WeightFolder::open(folder / "m");
    ASSERT_EQ(written.tensors().size(), c.theirs.size());
    const Values theirs = expected(c, ours);
    for (const WeightSpec& spec : c.theirs) {
      const WeightFolder::Location* found = written.find(spec.name);
      ASSERT_NE(found, nullptr) << spec.name;
      ASSERT_EQ(found->tensor().shape, spec.shape) << spec.name;
      std::vector<float> values(theirs.at(spec.name).size());
      found->read(0, View(values.data(), DType::f32, Shape{spec.shape.numel()}));
      EXPECT_EQ(values, theirs.at(spec.name)) << spec.name;
    }
  }
}

TEST_F(NameMaps, ReadInRanges_AreThoseOfTheOracle) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.title);
    const files::ScratchFolder folder;
    const Values ours = random_values(c.ours);
    const Values theirs = expected(c, ours);
    std::vector<files::TensorSpec> specs;
    for (const WeightSpec& spec : c.theirs) specs.push_back({spec.name, DType::bf16, spec.shape});
    files::SafetensorsFolderWriter writer(folder.path(), specs);
    for (const WeightSpec& spec : c.theirs) {
      writer.write(spec.name, 0,
                   ConstView(theirs.at(spec.name).data(), DType::f32, Shape{spec.shape.numel()}));
    }
    writer.commit();
    const WeightReader reader(WeightFolder::open(folder.path()), {.rows = c.rows});
    EXPECT_TRUE(reader.match(c.ours).complete());
    for (const WeightSpec& spec : c.ours) {
      EXPECT_EQ(reader.shape_of(spec.name, spec.shape), spec.shape);
      const auto count = static_cast<size_t>(spec.shape.numel());
      for (int i = 0; i < 40; ++i) {
        const size_t begin = random_() % count, end = begin + 1 + random_() % (count - begin);
        std::vector<float> values(end - begin, -1000.0F);
        reader.read(spec.name, spec.shape, static_cast<int64_t>(begin),
                    View(values.data(), DType::f32, Shape{static_cast<int64_t>(end - begin)}));
        const auto from = ours.at(spec.name).begin();
        ASSERT_EQ(values, std::vector<float>(from + static_cast<int64_t>(begin),
                                             from + static_cast<int64_t>(end)))
            << spec.name << " [" << begin << ", " << end << ")";
      }
    }
  }
}

// A whole matrix is one run, a fused one as many as it must be.
TEST_F(NameMaps, RunsAreAsLongAsTheyCanBe) {
  const auto num_runs = [](const RowLayout& rows, const Shape& shape, int64_t begin, int64_t end) {
    int64_t count = 0;
    const NameMap map{.rows = {{"w", "w", rows}}};
    for (const TensorPart& part : tensor_parts(map, "w", shape)) {
      part.for_each_run(begin, end, [&](const ElementRun&) { ++count; });
    }
    return count;
  };
  EXPECT_EQ(num_runs({}, Shape{100, 10}, 3, 997), 1);
  EXPECT_EQ(num_runs(part_of_theirs(5, 100, 300), Shape{100, 10}, 3, 997), 1);
  EXPECT_EQ(num_runs(head_part(1, 3, 10, 10), Shape{100, 10}, 0, 1000), 10);
  EXPECT_EQ(num_runs(head_part(1, 3, 10, 10), Shape{100, 10}, 95, 205), 3);
  EXPECT_EQ(num_runs(transposed(), Shape{100, 10}, 0, 1000), 10);  // columns of 100
  EXPECT_EQ(num_runs(transposed(), Shape{100, 10}, 15, 95), 5 + 10 + 5);
  EXPECT_EQ(num_runs(rotary_pairs(10, 10), Shape{100, 10}, 0, 1000), 100);
}

TEST_F(NameMaps, Match_SaysBothNames) {
  const files::ScratchFolder folder;
  files::SafetensorsFolderWriter writer(
      folder.path(), std::vector<files::TensorSpec>{{"bert.h.0.qkv", DType::f32, Shape{9, 2}},
                                                    {"extra", DType::f32, Shape{1}}});
  const std::vector<float> values(18);
  writer.write("bert.h.0.qkv", 0, ConstView(values.data(), DType::f32, Shape{18}));
  writer.write("extra", 0, ConstView(values.data(), DType::f32, Shape{1}));
  writer.commit();
  const WeightReader reader(
      WeightFolder::open(folder.path()),
      {.prefixes = {"bert."},
       .rows = {{"l.*.q", "h.*.qkv", part_of_theirs(0, 4, 12)}, {"l.*.o", "h.*.out"}}});
  const std::vector<WeightSpec> wanted = {{"l.0.q", {4, 2}}, {"l.0.o", {2, 2}}, {"n", {2}}};
  const WeightMatch match = reader.match(wanted);
  EXPECT_THAT(match.missing, ElementsAre("l.0.o (h.0.out in the files)", "n"));
  EXPECT_THAT(match.unexpected, ElementsAre("extra"));
  EXPECT_THAT(match.mismatched, ElementsAre("l.0.q (h.0.qkv in the files): [9, 2] in the file, "
                                            "[12, 2] in the model"));
  EXPECT_EQ(reader.shape_of("l.0.q", Shape{4, 2}), (Shape{9, 2}));
  EXPECT_FALSE(reader.shape_of("l.0.o", Shape{2, 2}).has_value());
  std::vector<float> out(1);
  const View view(out.data(), DType::f32, Shape{1});
  EXPECT_THAT(files::message_of<DataError>([&] {
                reader.read("l.0.q", Shape{4, 2}, 0, view);
              }),
              HasSubstr("bert.h.0.qkv has shape [9, 2], the model's l.0.q needs [12, 2]"));
  EXPECT_THAT(files::message_of<DataError>([&] {
                reader.read("l.0.o", Shape{2, 2}, 0, view);
              }),
              HasSubstr("there is no tensor for l.0.o (h.0.out in the files)"));
}

TEST_F(NameMaps, RowsThatLeaveSomethingOut_AreRefused) {
  const auto error = [](const std::vector<NameRow>& rows, const std::vector<WeightSpec>& ours) {
    return files::message_of<InvalidArgument>([&] { stored_tensors({.rows = rows}, ours); });
  };
  EXPECT_THAT(error({{"q", "qkv", part_of_theirs(0, 4, 12)}}, {{"q", {4, 2}}}),
              HasSubstr("the parameters have 8 elements of qkv [12, 2]"));
  EXPECT_THAT(error({{"w", "a", part_of_ours(0, 4)}}, {{"w", {5}}}),
              HasSubstr("the rows of w [5] cover 4 of its 5 elements"));
  EXPECT_THAT(error({{"w", "a", part_of_ours(3, 4)}}, {{"w", {5}}}), HasSubstr("cannot be rows"));
  EXPECT_THAT(error({{"w", "a", transposed()}}, {{"w", {5}}}), HasSubstr("cannot be transposed"));
  EXPECT_THAT(error({{"a", "x", part_of_theirs(0, 1, 2)}, {"b", "x", part_of_theirs(1, 1, 3)}},
                    {{"a", {1}}, {"b", {1}}}),
              HasSubstr("b takes x for [3], another parameter for [2]"));
  EXPECT_THAT(files::message_of<InvalidArgument>([] { rotary_pairs(2, 6, 3); }),
              HasSubstr("rotary"));
}

}  // namespace name_map_test
}  // namespace zinc::hub
