#include "files/json/parser.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>

#include "core/error.h"

namespace zinc::files::json {
namespace json_parser_test {

Value relaxed(std::string text) { return parse(std::move(text), "t.json", ParseOptions::config()); }
Value strict(std::string text) { return parse(std::move(text), "t.json"); }

std::string error_of(auto&& body) {
  try {
    body();
  } catch (const DataError& error) {
    return error.what();
  }
  return "(no error)";
}
std::string strict_error(std::string text) {
  return error_of([&] { strict(std::move(text)); });
}
std::string relaxed_error(std::string text) {
  return error_of([&] { relaxed(std::move(text)); });
}

TEST(JsonParser, ReadsEveryKind) {
  const Value v =
      strict(R"({"a": null, "b": true, "c": -7, "d": 0.5, "e": "x\u00e9\n", "f": [1, []],
                             "g": {}})");
  EXPECT_TRUE(v.at("a").is_null());
  EXPECT_TRUE(v.at("b").as_bool());
  EXPECT_EQ(v.at("c").as_int64(), -7);
  EXPECT_EQ(v.at("d").as_double(), 0.5);
  EXPECT_EQ(v.at("e").as_string(), "x\xC3\xA9\n");
  EXPECT_EQ(v.at("f").at(0).as_int64(), 1);
  EXPECT_EQ(v.at("f").at(1).size(), 0U);
  EXPECT_TRUE(v.at("g").as_object().empty());
  EXPECT_EQ(v.find("h"), nullptr);
}

TEST(JsonParser, Object_KeepsTheOrderOfTheText) {
  std::string text = "{";
  for (int i = 99; i >= 0; --i) text += str(i < 99 ? "," : "", "\"k", i, "\":", i);
  const Value v = strict(text + "}");
  int expected = 99;
  for (const Member& member : v.as_object()) {
    EXPECT_EQ(member.key, str("k", expected));
    EXPECT_EQ(v.at(member.key).as_int64(), expected);
    --expected;
  }
  EXPECT_EQ(expected, -1);
}

struct NumberCase {
  const char* text;
  double value;
  bool integer;
  int64_t as_int;
};

class JsonNumber : public ::testing::TestWithParam<NumberCase> {};

TEST_P(JsonNumber, IsExact) {
  const NumberCase& c = GetParam();
  const Value v = strict(c.text);
  EXPECT_EQ(v.as_double(), c.value) << c.text;
  EXPECT_EQ(std::signbit(v.as_double()), std::signbit(c.value)) << c.text;
  EXPECT_EQ(v.is_integer(), c.integer) << c.text;
  if (c.integer) {
    EXPECT_EQ(v.as_int64(), c.as_int) << c.text;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Texts, JsonNumber,
    ::testing::Values(
        NumberCase{"0", 0.0, true, 0}, NumberCase{"-0", -0.0, true, 0},
        NumberCase{"1e9", 1e9, true, 1'000'000'000}, NumberCase{"0.94e6", 940000.0, true, 940'000},
        NumberCase{"5E+8", 5e8, true, 500'000'000}, NumberCase{"2.50e1", 25.0, true, 25},
        NumberCase{"1000e-3", 1.0, true, 1}, NumberCase{"1.5", 1.5, false, 0},
        NumberCase{"1e-7", 1e-7, false, 0}, NumberCase{"0e300", 0.0, true, 0},
        NumberCase{"9007199254740993", 9007199254740992.0, true, 9007199254740993},
        NumberCase{"9223372036854775807", 9223372036854775807.0, true,
                   std::numeric_limits<int64_t>::max()},
        NumberCase{"-9223372036854775808", -9223372036854775808.0, true,
                   std::numeric_limits<int64_t>::min()},
        NumberCase{"-9223372036854775809", -9223372036854775808.0, false, 0},
        NumberCase{"18446744073709551616", 18446744073709551616.0, false, 0},
        NumberCase{"1e-400", 0.0, true, 0}, NumberCase{"4.9e-324", 4.9e-324, false, 0},
        NumberCase{"1.7976931348623157e308", 1.7976931348623157e308, false, 0},
        NumberCase{"0.1", 0.1, false, 0}, NumberCase{"1.00000000000000000000001", 1.0, true, 1},
        NumberCase{"1e-99999999999999999999", 0.0, true, 0}),
    [](const auto& info) { return str("Case", info.index); });

TEST(JsonParser, Uint64_HasItsWholeRange) {
  EXPECT_EQ(strict("18446744073709551615").as_uint64(), std::numeric_limits<uint64_t>::max());
  EXPECT_THROW(strict("18446744073709551615").as_int64(), DataError);
  EXPECT_THROW(strict("-1").as_uint64(), DataError);
}

TEST(JsonParser, Relaxed_TakesCommentsTrailingCommasAndByteOrderMark) {
  const Value v = relaxed(
      "\xEF\xBB\xBF# head\n{ // a { brace\n\"a\": 1, /* \" */ \"#b\": \"// no # comment /* \", # "
      "tail\n"
      "\"c\\\"#\": [1, 2,],\n}\n# end without a newline");
  EXPECT_EQ(v.at("a").as_int64(), 1);
  EXPECT_EQ(v.at("#b").as_string(), "// no # comment /* ");
  EXPECT_EQ(v.at("c\"#").size(), 2U);
  EXPECT_THROW(relaxed("[1,,2]"), DataError);
  EXPECT_THROW(relaxed("[,]"), DataError);
}

TEST(JsonParser, Strict_RefusesWhatRelaxedTakes) {
  for (const char* text :
       {"{} // c", "{} # c", "/* c */ {}", "[1,]", "{\"a\":1,}", "\xEF\xBB\xBF{}"}) {
    EXPECT_THROW(strict(text), DataError) << text;
    EXPECT_NO_THROW(relaxed(text)) << text;
  }
}

TEST(JsonParser, Places_PointAtTheToken) {
  const Value v =
      relaxed("{\n  \"a\" : // one\n  /* two */ [ true,\n\t\"x y\" , 12.5 ],\n\"b\":{}}");
  const auto place = [&](const Value& value) {
    const Position p = value.source()->position(value.span().begin);
    return str(p.line, ":", p.column, "+", value.span().end - value.span().begin);
  };
  EXPECT_EQ(place(v), "1:1+1");
  EXPECT_EQ(place(v.at("a")), "3:13+1");
  EXPECT_EQ(place(v.at("a").at(0)), "3:15+4");
  EXPECT_EQ(place(v.at("a").at(1)), "4:2+5");
  EXPECT_EQ(place(v.at("a").at(2)), "4:10+4");
  EXPECT_EQ(place(v.at("b")), "5:5+1");
  const Span key = v.as_object().find_member("b")->key_span;
  EXPECT_EQ(v.source()->text().substr(key.begin, key.end - key.begin), "\"b\"");
}

TEST(JsonParser, Paths_NameTheWayFromTheRoot) {
  const Value v = relaxed(R"({"a": {"b": [0, {"h.0.w": [1, 2]}]}, // "x": {
                              "c": 3})");
  EXPECT_EQ(v.path(), "");
  EXPECT_EQ(v.at("a").path(), "a");
  EXPECT_EQ(v.at("a").at("b").at(0).path(), "a.b[0]");
  EXPECT_EQ(v.at("a").at("b").at(1).at("h.0.w").at(1).path(), "a.b[1].\"h.0.w\"[1]");
  EXPECT_EQ(v.at("c").path(), "c");
}

TEST(JsonParser, AccessErrors_NamePlacePathAndBothKinds) {
  const Value v = strict("{\n \"model\": {\"vocab_size\": \"50257\", \"layers\": 0}\n}");
  EXPECT_EQ(error_of([&] { v.at("model").at("vocab_size").as_int64(); }),
            "t.json:2:26: model.vocab_size: expected an integer, got \"50257\"\n"
            "    2 |  \"model\": {\"vocab_size\": \"50257\", \"layers\": 0}\n"
            "      |                          ^~~~~~~");
  EXPECT_EQ(error_of([&] { v.at("model").at("layers").as_int64(1); }),
            "t.json:2:45: model.layers: expected an integer of at least 1, got 0\n"
            "    2 |  \"model\": {\"vocab_size\": \"50257\", \"layers\": 0}\n"
            "      |                                             ^");
  EXPECT_EQ(error_of([&] { v.at("model").at("heads"); }),
            "t.json:2:11: model: key \"heads\" is missing\n"
            "    2 |  \"model\": {\"vocab_size\": \"50257\", \"layers\": 0}\n"
            "      |           ^");
  EXPECT_EQ(error_of([&] { Value("x").as_bool(); }), "expected true or false, got \"x\"");
}

struct BadCase {
  const char* name;
  std::string text;
  std::string message;
};

class JsonBad : public ::testing::TestWithParam<BadCase> {};

TEST_P(JsonBad, HasOneClearMessage) {
  EXPECT_EQ(relaxed_error(GetParam().text), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Texts, JsonBad,
    ::testing::Values(
        BadCase{"Empty", "", "t.json:1:1: there is no value here\n    1 | \n      | ^"},
        BadCase{"MissingComma", "{\"a\": 1\n \"b\": 2}",
                "t.json:2:2: a comma or a closing } must stand here\n"
                "    2 |  \"b\": 2}\n      |  ^"},
        BadCase{"Trailing", "{} {}",
                "t.json:1:4: something follows the value, which has ended\n"
                "    1 | {} {}\n      |    ^"},
        BadCase{"Duplicate", "{\"a\": 1,\n\t\"b\": {\"c\": 1, \"c\": 2},\n\"a\": 3}",
                "t.json:2:16: duplicate key \"c\": it stands in line 2 already\n"
                "    2 | \t\"b\": {\"c\": 1, \"c\": 2},\n      | \t              ^~~\n"
                "t.json:3:1: duplicate key \"a\": it stands in line 1 already\n"
                "    3 | \"a\": 3}\n      | ^~~"},
        BadCase{"Placeholder", "{\"params\": { ... }}",
                "t.json:1:14: \"...\" is a placeholder: write the values in its place\n"
                "    1 | {\"params\": { ... }}\n      |              ^"},
        BadCase{"OpenComment", "{}\n/* never",
                "t.json:2:1: this comment does not end\n    2 | /* never\n      | ^"},
        BadCase{"HugeNumber", "[1, 1e400]",
                "t.json:1:5: this number is too large\n    1 | [1, 1e400]\n      |     ^"},
        BadCase{"Nul", std::string("[1]\0[2]", 7),
                "t.json:1:4: a NUL byte: this is no text\n    1 | [1] [2]\n      |    ^"},
        BadCase{"NotUtf8", "[\"\xC3\x28\"]",
                "t.json:1:3: this byte is not part of UTF-8 text\n"
                "    1 | [\"\xC3(\"]\n      |   ^"}),
    [](const auto& info) { return info.param.name; });

// Python writes a float without end so.
TEST(JsonParser, Infinity_IsBeyondEveryCount_WhereTheTextIsRelaxed) {
  EXPECT_EQ(relaxed("Infinity").as_int64(), 1'000'000'000'000'000);
  EXPECT_EQ(relaxed("{\"a\": \"Infinity\", \"b\": [Infinity]}").at("a").as_string(), "Infinity");
  EXPECT_NE(strict_error("Infinity"), "(no error)");
}

TEST(JsonParser, Refuses_TextsThatAreNoJson) {
  for (const char* text : {"01",
                           "1.",
                           ".5",
                           "1e",
                           "+1",
                           "-",
                           "NaN",
                           "tru",
                           "'a'",
                           "\"\\x\"",
                           "\"\\ud800\"",
                           "\"\\udc00\"",
                           "\"a\nb\"",
                           "\"abc",
                           "[1 2]",
                           "{1: 2}",
                           "{\"a\" 1}",
                           "{\"a\"}",
                           "[",
                           "{",
                           "]",
                           "1 2",
                           "\xED\xA0\x80",
                           "\"\xF5\x80\x80\x80\"",
                           "\"\xC0\xAF\"",
                           "nul",
                           "{\"a\":}"}) {
    EXPECT_NE(strict_error(text), "(no error)") << text;
    EXPECT_NE(relaxed_error(text), "(no error)") << text;
  }
}

TEST(JsonParser, DeepNesting_IsACleanError) {
  const std::string deep(200'000, '[');
  EXPECT_EQ(strict_error(deep).substr(0, 48), "t.json:1:129: nested deeper than 128 levels\n    ");
  std::string objects;
  for (int i = 0; i < 50'000; ++i) objects += "{\"a\":";
  EXPECT_NE(strict_error(objects).find("nested deeper than 128 levels"), std::string::npos);
  EXPECT_NO_THROW(strict(std::string(128, '[') + std::string(128, ']')));
  EXPECT_THROW(strict(std::string(129, '[') + std::string(129, ']')), DataError);
}

TEST(JsonParser, Limits_Hold) {
  EXPECT_NE(error_of([] { parse("[1, 2, 3]", "t", {.max_values = 3}); }).find("more than 3 values"),
            std::string::npos);
  EXPECT_NO_THROW(parse("[1, 2, 3]", "t", {.max_values = 4}));
  EXPECT_EQ(error_of([] { parse("[1, 2]", "t", {.max_bytes = 5}); }),
            "t: 6 bytes of JSON are more than the limit of 5");
}

TEST(JsonParser, LongLines_AreCutAroundThePlace) {
  std::string text = "[\"";
  for (int i = 0; i < 5000; ++i) text += "\xC3\xA9";
  text += "\", tru]";
  const std::string message = strict_error(text);
  EXPECT_LT(message.size(), 400U);
  EXPECT_EQ(message.substr(0, 13), "t.json:1:5006");
  const size_t line = message.find(" | ") + 3;
  const size_t caret = message.rfind(" | ") + 3;
  // The caret stands under the place, counted in code points.
  const std::string shown = message.substr(line, message.find('\n', line) - line);
  size_t column = 0;
  size_t at = 0;
  for (; shown.compare(at, 3, "tru") != 0; ++at) {
    if ((static_cast<unsigned char>(shown[at]) & 0xC0) != 0x80) ++column;
  }
  EXPECT_EQ(message.substr(caret).find('^'), column);
}

TEST(JsonParser, File_ErrorsNameThePath) {
  EXPECT_THROW(parse_file("/nonexistent/x.json"), IoError);
  EXPECT_THROW(parse_file("/"), IoError);
  const std::string path = ::testing::TempDir() + "zinc_json_parser_test.json";
  std::ofstream(path) << "{\"a\": [1, 2}";
  EXPECT_EQ(error_of([&] { parse_file(path); }).substr(0, path.size() + 6), path + ":1:12:");
  EXPECT_NE(error_of([&] { parse_file(path, {.max_bytes = 4}); }).find("limit of 4"),
            std::string::npos);
  std::remove(path.c_str());
}

TEST(JsonValue, Copies_OutliveTheDocument) {
  Value inner;
  {
    const Value v = strict("{\"a\": {\"b\": 1}}");
    inner = v.at("a");
  }
  EXPECT_EQ(inner.at("b").path(), "a.b");
  EXPECT_NE(
      error_of([&] { inner.at("b").as_string(); }).find("t.json:1:13: a.b: expected a string"),
      std::string::npos);
}

}  // namespace json_parser_test
}  // namespace zinc::files::json
