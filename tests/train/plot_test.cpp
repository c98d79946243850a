// Runs as curves of bounded size, and curves as a page.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/error.h"
#include "files/json/parser.h"
#include "tests/files/scratch_folder.h"
#include "train/plot/page.h"
#include "train/plot/run_series.h"

namespace zinc::train {
namespace plot_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::string metrics_line(int64_t step, const std::string& loss, const std::string& more = "") {
  return "{\"step\":" + std::to_string(step) + ",\"loss\":" + loss +
         ",\"lr\":0.5,\"tokens\":10,\"seconds\":0.25" + more + "}\n";
}

std::vector<double> values(const Curve& curve) {
  std::vector<double> all;
  for (const CurvePoint& point : curve.points()) all.push_back(point.value);
  return all;
}

TEST(Curve, OfAShortRun_HasEveryPoint) {
  Curve curve;
  for (int64_t i = 1; i <= 1000; ++i) curve.add({.step = i, .value = static_cast<double>(i % 7)});
  EXPECT_EQ(curve.points().size(), 1000U);
  EXPECT_EQ(curve.points()[99].step, 100);
}

TEST(Curve, OfAMillionSteps_IsThinAndKeepsItsPeaks) {
  Curve curve;
  constexpr int64_t kSteps = 1'000'000;
  for (int64_t i = 1; i <= kSteps; ++i) {
    double value = std::sin(static_cast<double>(i) / 1000.0);
    if (i == 123'457) value = 50.0;
    if (i == 765'432) value = -50.0;
    curve.add(
        {.step = i, .tokens = 2 * i, .seconds = 0.5 * static_cast<double>(i), .value = value});
  }
  const std::vector<CurvePoint> points = curve.points();
  EXPECT_LE(points.size(), 2 * Curve::kMaxBuckets + 1);
  EXPECT_GE(points.size(), Curve::kMaxBuckets / 2);
  const auto [low, high] = std::ranges::minmax(points, {}, &CurvePoint::value);
  EXPECT_EQ(low.step, 765'432);
  EXPECT_EQ(high.step, 123'457);
  EXPECT_EQ(high.tokens, 246'914);
  EXPECT_TRUE(std::ranges::is_sorted(points, {}, &CurvePoint::step));
  EXPECT_EQ(points.back().step, kSteps);
}

TEST(Curve, CutForgetsWhatIsDoneAgain) {
  Curve curve;
  for (int64_t i = 1; i <= 5; ++i) curve.add({.step = i, .value = 1.0});
  curve.cut(3);
  curve.add({.step = 3, .value = 2.0});
  EXPECT_THAT(values(curve), ElementsAre(1.0, 1.0, 2.0));
}

TEST(RunReader, ReadsWhatALineHas) {
  const files::ScratchFolder folder;
  folder.write("metrics.jsonl",
               metrics_line(1, "4.0",
                            ",\"loss_scale\":8,\"peak_bytes\":{\"device\":{\"parameters\":64,"
                            "\"workspace\":0,\"total\":64},\"nvme\":{\"total\":0}},"
                            "\"breakdown\":{\"forward\":0.125}") +
                   metrics_line(2, "null", ",\"skipped\":true,\"overflow\":\"w\"") +
                   metrics_line(3, "3.0", ",\"val_loss\":3.5,\"val_rouge1\":0.25"));
  folder.write("config.resolved.json", "{\"seed\": 1}\n");
  folder.write("samples.txt", "In the beginning");
  RunReader reader(folder.path() + "/");
  EXPECT_TRUE(reader.read_more());
  const RunSeries& run = reader.series();
  EXPECT_EQ(run.name, folder.path());
  EXPECT_EQ(run.steps, 3);
  EXPECT_EQ(run.skipped, 1);
  EXPECT_EQ(run.not_finite, 1);
  EXPECT_EQ(run.tokens, 30);
  EXPECT_EQ(run.seconds, 0.75);
  EXPECT_EQ(run.configuration, "{\"seed\": 1}\n");
  EXPECT_EQ(run.samples, "In the beginning");
  std::vector<std::string> names;
  for (const auto& [name, curve] : run.curves) names.push_back(name);
  EXPECT_THAT(names, ElementsAre("breakdown/forward", "loss", "loss_scale", "lr",
                                 "memory/device/parameters", "memory/device/total", "val_loss",
                                 "val_rouge1"));
  EXPECT_THAT(values(run.curves.at("loss")), ElementsAre(4.0, 3.0));
  EXPECT_EQ(run.curves.at("loss").last().tokens, 30);
  EXPECT_FALSE(reader.read_more());
}

TEST(RunReader, FollowsAFileThatGrows) {
  const files::ScratchFolder folder;
  const std::string path = folder.write("m.jsonl", metrics_line(1, "4.0") + "{\"step\":2,\"lo");
  RunReader reader(path);
  EXPECT_TRUE(reader.read_more());
  EXPECT_EQ(reader.series().steps, 1);
  folder.write("m.jsonl", metrics_line(1, "4.0") + metrics_line(2, "3.0"));
  EXPECT_TRUE(reader.read_more());
  EXPECT_THAT(values(reader.series().curves.at("loss")), ElementsAre(4.0, 3.0));
  folder.write("m.jsonl", metrics_line(1, "7.0"));  // another run
  EXPECT_TRUE(reader.read_more());
  EXPECT_THAT(values(reader.series().curves.at("loss")), ElementsAre(7.0));
}

TEST(RunReader, StepsThatAreDoneAgain_TakeTheOldOnesPlace) {
  const files::ScratchFolder folder;
  const std::string path =
      folder.write("m.jsonl", metrics_line(1, "5.0") + metrics_line(2, "4.0") +
                                  metrics_line(3, "3.0") + metrics_line(2, "4.5"));
  RunReader reader(path);
  reader.read_more();
  EXPECT_EQ(reader.series().steps, 2);
  EXPECT_THAT(values(reader.series().curves.at("loss")), ElementsAre(5.0, 4.5));
}

TEST(RunReader, BadFiles_AreNamed) {
  const files::ScratchFolder folder;
  EXPECT_THAT(files::message_of<DataError>([&] { RunReader(folder / "none"); }),
              HasSubstr("is no folder of a run with a metrics.jsonl, and no file"));
  const std::string path = folder.write("m.jsonl", metrics_line(1, "4.0") + "{\"step\":}\n");
  EXPECT_THAT(files::message_of<DataError>([&] { RunReader(path).read_more(); }),
              HasSubstr("m.jsonl:2:"));
}

// --- the page

TEST(PlotPage, WhatComesFromFiles_IsNoMarkup) {
  RunSeries run{.name = "</script><script>alert(1)</script>"};
  run.configuration = "<img src=x onerror=alert(2)> & <!--";
  run.samples = "</SCRIPT\t>";
  run.curves["val_<b>"].add({.step = 1, .value = 1.0});
  const std::string page = plot_page({&run});
  EXPECT_THAT(page, AllOf(Not(HasSubstr("alert(1)</script>")), Not(HasSubstr("<img")),
                          Not(HasSubstr("</SCRIPT")), Not(HasSubstr("<b>")),
                          HasSubstr("\\u003c/script\\u003e")));
  const std::string data = plot_data({&run});
  EXPECT_EQ(data.find_first_of("<>&"), std::string::npos);
  const files::json::Value read = files::json::parse(data, "data");
  EXPECT_EQ(read.at("runs").at(size_t{0}).at("name").as_string(), run.name);
  EXPECT_EQ(read.at("runs").at(size_t{0}).at("configuration").as_string(), run.configuration);
}

TEST(PlotPage, NeedsNoOtherFile) {
  const RunSeries run{.name = "a"};
  const std::string page = plot_page({&run});
  EXPECT_THAT(page, AllOf(Not(HasSubstr("src=\"")), Not(HasSubstr("<link")),
                          HasSubstr("default-src 'none'")));
  // The one address is the name of SVG.
  size_t addresses = 0;
  for (size_t at = 0; (at = page.find("http://", at)) != page.npos; ++at) ++addresses;
  EXPECT_EQ(addresses, 1U);
  EXPECT_EQ(page.find("https://"), page.npos);
}

TEST(PlotPage, HasThePointsOfEachRun) {
  RunSeries first{.name = "a"}, second{.name = "b"};
  first.curves["loss"].add({.step = 1, .tokens = 10, .seconds = 0.5, .value = 0.1});
  second.curves["loss"].add({.step = 2, .tokens = 20, .seconds = 1.5, .value = 2.0});
  const files::json::Value data =
      files::json::parse(plot_data({&first, &second}, {.reload_seconds = 3}), "d");
  EXPECT_EQ(data.at("reload_seconds").as_int64(), 3);
  ASSERT_EQ(data.at("runs").size(), 2U);
  const files::json::Value& point =
      data.at("runs").at(size_t{0}).at("curves").at("loss").at(size_t{0});
  EXPECT_EQ(point.at(size_t{0}).as_int64(), 1);
  EXPECT_EQ(point.at(size_t{1}).as_int64(), 10);
  EXPECT_EQ(static_cast<float>(point.at(size_t{3}).as_double()), 0.1f);
}

}  // namespace plot_test
}  // namespace zinc::train
