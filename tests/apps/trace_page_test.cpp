// zinc trace summary --html: the lanes of a run as a page, which a browser opens in ./run soak.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/exit_codes.h"
#include "tests/apps/browser.h"
#include "tests/apps/command_process.h"
#include "tests/apps/training_folder.h"

namespace zinc::apps {
namespace trace_page_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A trained run with a trace of two steps.
class TracePage : public testing::Test {
 protected:
  void SetUp() override {
    folder_.write("ds.json", R"({"train_micro_batch_size_per_gpu": 2,
        "zero_optimization": {"stage": 3}, "zinc": {"trace": ")" +
                                 (folder_ / "trace.json") + "\"}}");
    ASSERT_EQ(run_zinc(folder_.train()).exit_code, kDone);
  }
  Ended draw(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words{"trace", "summary", folder_ / "trace.json", "--html",
                                   folder_ / "page.html"};
    words.insert(words.end(), more.begin(), more.end());
    return run_zinc(words);
  }

  TrainingFolder folder_;
};

TEST_F(TracePage, HasTheStepsOfTheRun) {
  const Ended ended = draw();
  ASSERT_EQ(ended.exit_code, kDone) << to_string(ended);
  EXPECT_THAT(ended.out, HasSubstr("page.html: steps 1 to 2, "));
  const std::string page = files::read_whole_file(folder_ / "page.html");
  EXPECT_THAT(page, AllOf(HasSubstr("\"gemm"), HasSubstr("\"forward\""), Not(HasSubstr("://"))));
  EXPECT_THAT(page, Not(HasSubstr("src=")));
  EXPECT_THAT(draw({"--steps", "2"}).out, HasSubstr("steps 2 to 2, "));
  EXPECT_THAT(draw({"--steps", ":1"}).out, HasSubstr("steps 1 to 1, "));
}

TEST_F(TracePage, WhatIsWrongIsSaid) {
  const Ended ended = draw({"--steps", "7:"});
  EXPECT_EQ(ended.exit_code, kBadData) << to_string(ended);
  EXPECT_THAT(ended.err, HasSubstr("the trace has no step 7 to its end"));
  EXPECT_EQ(draw({"--steps", "x"}).exit_code, kConfiguration);
  EXPECT_EQ(draw({"--json"}).exit_code, kUsage);
  EXPECT_EQ(run_zinc({"trace", "summary", folder_ / "trace.json", "--steps", "1"}).exit_code,
            kUsage);
}

// --- in a browser: ./run soak

class TracePageSlow : public TracePage {
 protected:
  void SetUp() override {
    if (browser().empty()) GTEST_SKIP() << "left out: this machine has no Chromium";
    TracePage::SetUp();
  }
};

TEST_F(TracePageSlow, ABrowserDrawsTheLanes_AndFinds) {
  ASSERT_EQ(draw().exit_code, kDone);
  const std::string page = "file://" + (folder_ / "page.html");
  const std::string all = document_of(folder_, page, 2000);
  EXPECT_THAT(all, AllOf(HasSubstr("data-state=\"drawn\""), HasSubstr("<td>2</td>")));
  EXPECT_THAT(all,
              HasSubstr("aria-label=\"Lanes: host of rank 0, compute of rank 0, gather of rank 0, "
                        "reduce of rank 0"));
  const auto drawn = [](const std::string& document) {
    const size_t at = document.find("data-slices=\"");
    return at == std::string::npos ? 0 : std::stoi(document.substr(at + 13));
  };
  EXPECT_GT(drawn(all), 10) << all.substr(0, 2000);
  const std::string near = document_of(folder_, page + "#from=0&to=1&find=forward", 2000);
  EXPECT_LT(drawn(near), drawn(all));
  EXPECT_THAT(near, AllOf(HasSubstr(" found, "), HasSubstr("data-state=\"drawn\"")));
}

}  // namespace trace_page_test
}  // namespace zinc::apps
