// --help and docs/options.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "tests/apps/command_process.h"
#include "tests/files/scratch_folder.h"

namespace zinc::apps {
namespace help_test {

using testing::HasSubstr;
using testing::Not;

TEST(Help, OfTraining_HasTheOptionsThatMostRunsNeedFirst) {
  const Ended ended = run_zinc({"train", "--help"});
  ASSERT_EQ(ended.exit_code, 0) << to_string(ended);
  const size_t first = ended.out.find("Options that most runs need:");
  const size_t model = ended.out.find("\nModel:");
  ASSERT_LT(first, model) << ended.out;
  for (const char* name : {"--config", "--model", "--init", "--data", "--out", "--steps", "--seq",
                           "--batch", "--lr", "--lora"}) {
    const size_t at = ended.out.find(std::string("\n  ") + name);
    EXPECT_TRUE(first < at && at < model) << name;
  }
  size_t place = model;
  for (const char* group :
       {"\nData:", "\nLength,", "\nMemory", "\nRanks", "\nFigures", "\nFiles:"}) {
    const size_t next = ended.out.find(group);
    EXPECT_TRUE(next != std::string::npos && next > place) << group;
    place = next;
  }
  EXPECT_THAT(ended.out, Not(HasSubstr("\nOptions:"))) << "an option is in no group";
}

TEST(Help, OfPlansAndOfText_IsInGroupsToo) {
  for (const char* verb : {"plan", "generate", "evaluate"}) {
    const Ended ended = run_zinc({verb, "--help"});
    EXPECT_THAT(ended.out, HasSubstr("\nOptions that most runs need:")) << verb;
    EXPECT_THAT(ended.out, Not(HasSubstr("\nOptions:"))) << verb << ": an option is in no group";
    EXPECT_THAT(ended.out, HasSubstr("\nFor example: zinc ")) << verb;
  }
}

TEST(Help, HasNoLineBeyond100ColumnsAndNoRange) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"train", "--help"}, {"plan", "--help"}, {"launch", "--help"}}) {
    const Ended ended = run_zinc(words);
    std::istringstream lines(ended.out);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_TRUE(line.size() <= 100 || !line.starts_with("  ")) << line;
    }
    EXPECT_THAT(ended.out, Not(HasSubstr("9007199254740992")));
  }
}

TEST(Help, ThePageOfAllOptions_IsWhatTheCommandPrints) {
  const Ended ended = run_zinc({"options"});
  ASSERT_EQ(ended.exit_code, 0) << to_string(ended);
  EXPECT_TRUE(files::read_whole_file("docs/options.md") == ended.out)
      << "docs/options.md is old: build/ci/zinc options >docs/options.md";
}

}  // namespace help_test
}  // namespace zinc::apps
