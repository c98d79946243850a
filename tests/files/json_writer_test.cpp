#include "files/json/writer.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "core/error.h"
#include "files/json/parser.h"

namespace zinc::files::json {
namespace json_writer_test {

TEST(JsonWriter, Compact_WritesOneLineInTheOrderOfTheCalls) {
  Writer writer;
  writer.begin_object().member("step", 3).member("loss", 2.5).member("skipped", false);
  writer.key("peak").begin_object().member("device", int64_t{1} << 40).end_object();
  writer.key("tags").begin_array().value("a").value(nullptr).end_array().end_object();
  EXPECT_EQ(writer.take(),
            R"({"step":3,"loss":2.5,"skipped":false,"peak":{"device":1099511627776},)"
            R"("tags":["a",null]})");
}

TEST(JsonWriter, Indented_WritesScalarArraysOnOneLine) {
  const Value v = parse(R"({"a":[1,2],"b":{},"c":[],"d":[{"e":1}]})", "t");
  EXPECT_EQ(write(v, 2),
            "{\n  \"a\": [1, 2],\n  \"b\": {},\n  \"c\": [],\n  \"d\": [\n    {\n      \"e\": 1\n"
            "    }\n  ]\n}\n");
  EXPECT_EQ(write(v), R"({"a":[1,2],"b":{},"c":[],"d":[{"e":1}]})");
}

TEST(JsonWriter, Strings_AreEscapedAndReadBack) {
  const std::string text("q\" b\\ n\n t\t r\r c\x01 nul\0 e\xC3\xA9 \xF0\x9F\x98\x80/", 31);
  EXPECT_EQ(parse(write(Value(text)), "t").as_string(), text);
  EXPECT_EQ(write(Value("a\x01\x1f\"")), R"("a\u0001\u001f\"")");
  EXPECT_EQ(write(Value("x\xFFy\xC3")), "\"x\xEF\xBF\xBDy\xEF\xBF\xBD\"");
}

TEST(JsonWriter, Doubles_ReadBackToTheSameBits) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 200'000; ++i) {
    const double x = std::bit_cast<double>(random());
    if (!std::isfinite(x)) continue;
    const Value read = parse(write(Value(x)), "t");
    ASSERT_EQ(std::bit_cast<uint64_t>(read.as_double()), std::bit_cast<uint64_t>(x)) << x;
    ASSERT_EQ(read, Value(x)) << x;
  }
  for (const double x : {0.0, -0.0, 5e-324, 1e22, 1e23, -1e19, 9007199254740993.0, 0x1p63, -0x1p63,
                         0x1p64, std::numeric_limits<double>::max()}) {
    const Value read = parse(write(Value(x)), "t");
    EXPECT_EQ(std::bit_cast<uint64_t>(read.as_double()), std::bit_cast<uint64_t>(x)) << x;
    EXPECT_EQ(read, Value(x)) << x;
  }
}

TEST(JsonWriter, Floats_AreShortAndReadBackToTheSameBits) {
  const auto text_of = [](float x) { return Writer().value(x).take(); };
  EXPECT_EQ(text_of(0.1F), "0.1");
  EXPECT_EQ(text_of(3e-4F), "3e-04");
  std::mt19937 random(7);
  for (int i = 0; i < 200'000; ++i) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (!std::isfinite(x)) continue;
    const auto read = static_cast<float>(parse(text_of(x), "t").as_double());
    ASSERT_EQ(std::bit_cast<uint32_t>(read), std::bit_cast<uint32_t>(x)) << x;
  }
}

// Programs that tell integers from other numbers find what was written.
TEST(JsonWriter, WholeNumbersOfADouble_KeepAPoint) {
  Writer writer(0);
  writer.begin_array().value(1.0).value(-3.0f).value(0.0).value(int64_t{7});
  EXPECT_EQ(writer.end_array().take(), "[1.0,-3.0,0.0,7]");
  const Value copied = parse(R"([10000.0, 1e6, 25, -0.0])", "test");
  EXPECT_EQ(write(copied, 0), "[10000.0,1000000.0,25,-0.0]");
  EXPECT_EQ(copied.at(0).as_number(), Number(int64_t{10000}));
}

TEST(JsonWriter, Integers_KeepEveryDigit) {
  for (const int64_t x : {std::numeric_limits<int64_t>::min(), int64_t{-1}, int64_t{0},
                          (int64_t{1} << 53) + 1, std::numeric_limits<int64_t>::max()}) {
    EXPECT_EQ(parse(write(Value(x)), "t").as_int64(), x);
  }
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(parse(write(Value(kMax)), "t").as_uint64(), kMax);
}

TEST(JsonWriter, NonFiniteNumbers_BecomeNull) {
  Writer writer;
  writer.begin_array();
  writer.value(std::numeric_limits<double>::quiet_NaN());
  writer.value(-std::numeric_limits<float>::infinity());
  writer.value(Value(std::numeric_limits<double>::infinity())).end_array();
  EXPECT_EQ(writer.take(), "[null,null,null]");
}

TEST(JsonWriter, Misuse_IsABug) {
  EXPECT_THROW(Writer().begin_object().value(1), InternalError);
  EXPECT_THROW(Writer().begin_array().key("a"), InternalError);
  EXPECT_THROW(Writer().begin_array().end_object(), InternalError);
  EXPECT_THROW(Writer().value(1).value(2), InternalError);
  EXPECT_THROW(Writer().begin_array().take(), InternalError);
  EXPECT_THROW(Writer().take(), InternalError);
  EXPECT_THROW(Writer().begin_object().key("a").end_object(), InternalError);
}

TEST(JsonValue, Set_ReplacesOrAppends) {
  Object object;
  for (int i = 0; i < 20; ++i) object.set(str("k", i), i);
  object.set("k3", "three");
  EXPECT_EQ(object.size(), 20U);
  EXPECT_EQ(object.find("k3")->as_string(), "three");
  EXPECT_EQ(object.find("k19")->as_int64(), 19);
  EXPECT_EQ(object.find("k20"), nullptr);
  EXPECT_EQ(Value(object), Value(object));
  Object other = object;
  other.set("k3", 3);
  EXPECT_FALSE(Value(other) == Value(object));
}

}  // namespace json_writer_test
}  // namespace zinc::files::json
