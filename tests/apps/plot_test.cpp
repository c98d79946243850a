// zinc plot: runs of the command as a page, which a browser opens in ./run soak.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "core/exit_codes.h"
#include "tests/apps/browser.h"
#include "tests/apps/command_process.h"
#include "tests/apps/training_folder.h"
#include "tests/core/await.h"

namespace zinc::apps {
namespace plot_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string metrics(int64_t from, int64_t to) {
  std::string lines;
  for (int64_t i = from; i <= to; ++i) {
    lines += "{\"step\":" + std::to_string(i) + ",\"loss\":" + std::to_string(5.0 / double(i)) +
             ",\"lr\":0.001,\"grad_norm\":1.5,\"loss_scale\":1,\"tokens\":64,\"seconds\":0.5," +
             "\"tokens_per_second\":128,\"peak_bytes\":{\"device\":{\"parameters\":4096}}" +
             (i % 10 == 0 ? ",\"val_loss\":2.5}\n" : "}\n");
  }
  return lines;
}

TEST(Plot, OfTrainedRuns_IsAPage) {
  const TrainingFolder folder;
  ASSERT_EQ(run_zinc(folder.train()).exit_code, kDone);
  ASSERT_EQ(run_zinc(folder.train({"--out", folder / "other"})).exit_code, kDone);
  const Ended ended =
      run_zinc({"plot", folder.out(), folder / "other", "--html", folder / "page.html"});
  ASSERT_EQ(ended.exit_code, kDone) << to_string(ended);
  EXPECT_THAT(ended.out, HasSubstr("page.html: 2 runs"));
  const std::string page = files::read_whole_file(folder / "page.html");
  EXPECT_THAT(
      page, AllOf(HasSubstr("\"val_loss\":[[2,"), HasSubstr("memory/device/parameters"),
                  HasSubstr("\"reload_seconds\":0"), HasSubstr("train_micro_batch_size_per_gpu")));
}

TEST(Plot, Follow_WritesThePageAnewUntilASignal) {
  const files::ScratchFolder folder;
  const std::string path = folder.write("metrics.jsonl", metrics(1, 3));
  CommandProcess process(
      {"plot", folder.path(), "--html", folder / "page.html", "--follow", "--every", "1"});
  ASSERT_TRUE(process.wait_for_output("writing it anew every 1 s"));
  const auto page = [&] { return files::read_whole_file(folder / "page.html"); };
  EXPECT_THAT(page(), AllOf(HasSubstr("\"reload_seconds\":1"), HasSubstr("\"steps\":3,")));
  folder.write("metrics.jsonl", metrics(1, 7));
  await([&] { return page().find("\"steps\":7,") != std::string::npos; });
  process.send(SIGTERM);
  const Ended ended = process.finish();
  EXPECT_EQ(ended.exit_code, kDone) << to_string(ended);
  EXPECT_THAT(page(), HasSubstr("\"reload_seconds\":0"));
}

TEST(Plot, WhatIsNoRun_IsNamed) {
  const files::ScratchFolder folder;
  const Ended ended = run_zinc({"plot", folder.path(), "--html", folder / "page.html"});
  EXPECT_EQ(ended.exit_code, kBadData) << to_string(ended);
  EXPECT_THAT(ended.err, HasSubstr("is no folder of a run with a metrics.jsonl"));
  EXPECT_FALSE(std::filesystem::exists(folder / "page.html"));
}

// --- in a browser: ./run soak

class PlotSlow : public testing::Test {
 protected:
  void SetUp() override {
    if (browser().empty()) GTEST_SKIP() << "left out: this machine has no Chromium";
  }
  std::string page_of(const std::vector<std::string>& runs) {
    std::vector<std::string> words{"plot"};
    words.insert(words.end(), runs.begin(), runs.end());
    words.insert(words.end(), {"--html", folder_ / "page.html"});
    const Ended ended = run_zinc(words);
    EXPECT_EQ(ended.exit_code, kDone) << to_string(ended);
    return "file://" + (folder_ / "page.html");
  }
  files::ScratchFolder folder_;
};

TEST_F(PlotSlow, ABrowserDraws_AndSwitchesAxes) {
  const std::string a = folder_.write("a.jsonl", metrics(1, 100));
  const std::string b = folder_.write("b.jsonl", metrics(1, 50));
  const std::string page = page_of({a, b});
  const std::string steps = document_of(folder_, page, 2000);
  EXPECT_THAT(steps, HasSubstr("data-drawn=\"7\"")) << steps.substr(0, 2000);
  // Two runs: loss with val_loss, evaluation, and five charts of one curve.
  EXPECT_EQ(count(steps, "class=\"curve\""), 2 * (2 + 1 + 5));
  EXPECT_THAT(steps, AllOf(HasSubstr(">100</text>"), Not(HasSubstr("NaN"))));
  const std::string tokens = document_of(folder_, page + "#x=tokens&log=1", 2000);
  EXPECT_EQ(count(tokens, "class=\"curve\""), 2 * (2 + 1 + 5));
  EXPECT_THAT(tokens, AllOf(HasSubstr(">6000</text>"), Not(HasSubstr("NaN"))));
  const std::string seconds = document_of(folder_, page + "#x=seconds", 2000);
  EXPECT_THAT(seconds, HasSubstr(">40 s</text>"));
}

// Three runs with four labels each: eight curves in eight colours, and a button for the others.
TEST_F(PlotSlow, AChartDrawsEightCurvesAndOffersTheOthers) {
  std::vector<std::string> runs;
  for (const char* name : {"a.jsonl", "b.jsonl", "c.jsonl"}) {
    runs.push_back(
        folder_.write(name,
                      "{\"step\":1,\"peak_bytes\":{\"device\":{\"parameters\":8,\"gradients\":4,"
                      "\"optimizer\":2,\"total\":14}}}\n"));
  }
  const std::string document = document_of(folder_, page_of(runs), 2000);
  EXPECT_EQ(count(document, "class=\"curve\""), 8) << document.substr(0, 2000);
  EXPECT_EQ(count(document, ">4 more</button>"), 1);
  std::set<std::string> colours;
  for (size_t at = 0; (at = document.find("stroke=\"#", at)) != std::string::npos; ++at) {
    colours.insert(document.substr(at, 16));
  }
  EXPECT_EQ(colours.size(), 8u);
}

// The labels of the vertical axis end before the axis, and begin inside of the chart.
TEST_F(PlotSlow, LongLabelsAreNotCut) {
  std::string lines;
  for (int step = 1; step <= 3; ++step) {
    lines +=
        "{\"step\":" + std::to_string(step) + ",\"val_a\":-0.00123" + std::to_string(step) + "}\n";
  }
  const std::string document =
      document_of(folder_, page_of({folder_.write("a.jsonl", lines)}), 2000);
  // A letter has six and a half units at most.
  const std::regex label("<text x=\"([0-9.]+)\"[^>]*text-anchor=\"end\"[^>]*>([^<]+)<");
  int labels = 0;
  for (std::sregex_iterator it(document.begin(), document.end(), label), end; it != end; ++it) {
    const double letters = static_cast<double>((*it)[2].length());
    EXPECT_GE(std::stod((*it)[1]), 6.5 * letters) << (*it)[2];
    ++labels;
  }
  EXPECT_GT(labels, 2) << document.substr(0, 2000);
}

TEST_F(PlotSlow, ABrowserRunsNothingThatStandsInFiles) {
  folder_.write("metrics.jsonl", metrics(1, 5));
  folder_.write("config.resolved.json", "</pre><script>document.title='run'</script>");
  folder_.write("samples.txt", "</script><img src=x onerror=\"document.title='run'\">");
  const std::string document = document_of(folder_, page_of({folder_.path()}), 2000);
  EXPECT_THAT(document, AllOf(HasSubstr("<title>zinc plot</title>"), HasSubstr("&lt;img src=x"),
                              Not(HasSubstr("<img"))));
}

// The page stays as the killed command left it, and still reads its file.
TEST_F(PlotSlow, AnOpenPageReadsItsFileAgain) {
  folder_.write("metrics.jsonl", metrics(1, 10));
  CommandProcess process(
      {"plot", folder_.path(), "--html", folder_ / "page.html", "--follow", "--every", "1"});
  ASSERT_TRUE(process.wait_for_output("writing it anew every 1 s"));
  process.send(SIGKILL);
  process.finish();
  const std::string document =
      document_of(folder_, "file://" + (folder_ / "page.html") + "#x=tokens", 4000);
  EXPECT_THAT(document, testing::ContainsRegex("<span class=\"key\">read at [0-9]"));
  EXPECT_THAT(document, HasSubstr("data-drawn=\"7\""));
}

TEST_F(PlotSlow, AMillionSteps_AreThinned) {
  const std::string run = folder_.write("long.jsonl", metrics(1, 1'000'000));
  const std::string page = page_of({run});
  EXPECT_LT(std::filesystem::file_size(folder_ / "page.html"), 2'000'000U);
  const std::string document = document_of(folder_, page, 5000);
  EXPECT_THAT(document, HasSubstr("data-drawn=\"7\""));
}

}  // namespace plot_test
}  // namespace zinc::apps
