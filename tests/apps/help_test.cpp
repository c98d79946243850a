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

TEST(Help, OfOtherVerbs_IsInGroupsToo) {
  const std::vector<std::vector<std::string>> verbs = {{"plan"},
                                                       {"generate"},
                                                       {"evaluate"},
                                                       {"chat"},
                                                       {"bench", "train"},
                                                       {"bench", "fit"},
                                                       {"bench", "kernels"},
                                                       {"bench", "ceilings"},
                                                       {"bench", "comm"},
                                                       {"bench", "io"},
                                                       {"bench", "swap"},
                                                       {"bench", "checkpoint"},
                                                       {"bench", "generate"}};
  for (std::vector<std::string> words : verbs) {
    words.emplace_back("--help");
    const Ended ended = run_zinc(words);
    EXPECT_THAT(ended.out, HasSubstr("\nOptions that most runs need:")) << to_string(ended);
    EXPECT_THAT(ended.out, Not(HasSubstr("\nOptions:"))) << "an option is in no group";
    EXPECT_THAT(ended.out, HasSubstr("\nFor example: zinc " + words.front())) << to_string(ended);
    EXPECT_THAT(ended.out, HasSubstr("\nPage: docs/")) << to_string(ended);
  }
}

TEST(Help, OfBench_HasItsVerbsInGroups) {
  const Ended ended = run_zinc({"bench", "--help"});
  for (const char* group : {"\nKernels:", "\nThis machine:", "\nRuns:"}) {
    EXPECT_THAT(ended.out, HasSubstr(group));
  }
  EXPECT_THAT(ended.out, Not(HasSubstr("\nSubcommands:"))) << "a verb is in no group";
}

TEST(Help, AVerbThatIsMissing_IsSaidWithThoseThatThereAre) {
  const Ended trace = run_zinc({"trace", "trace.json", "--html", "trace.html"});
  EXPECT_EQ(trace.exit_code, 64);
  EXPECT_EQ(trace.err,
            "zinc: 'zinc trace' needs a verb: summary\n  'trace.json' is not known\n"
            "  'zinc trace --help' lists what there is\n");
  const Ended bench = run_zinc({"bench", "kernls", "--json", "k.json"});
  EXPECT_THAT(bench.err, HasSubstr("'zinc bench' needs a verb: kernels, comm, "));
  EXPECT_THAT(bench.err, HasSubstr("'kernls' is not known: did you mean kernels?\n  'zinc bench"));
  const Ended option = run_zinc({"bench", "kernels", "--filtr", "gelu"});
  EXPECT_THAT(option.err, HasSubstr("'--filtr' is not known: did you mean --filter?"));
  EXPECT_THAT(option.err, HasSubstr("'zinc bench kernels --help' lists what there is"));
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
