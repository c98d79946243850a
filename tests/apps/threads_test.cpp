// OMP_NUM_THREADS is respected by every command that computes, and said.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/apps/command_process.h"
#include "tests/apps/training_folder.h"

namespace zinc::apps {
namespace threads_test {

using testing::HasSubstr;
using testing::Not;

// `cache`: where the command keeps what it has said before.
Ended with_three_threads(const std::vector<std::string>& arguments,
                         const std::string& cache = "/dev/null") {
  std::vector<std::string> words{"env", "OMP_NUM_THREADS=3", "XDG_CACHE_HOME=" + cache,
                                 command_path()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return CommandProcess::of_program(words).finish();
}

constexpr const char* kThreadsNote = "note: OMP_NUM_THREADS=3 says how many threads a rank has";

TEST(OmpNumThreads, AreThoseOfTraining_AndSaid) {
  const TrainingFolder folder;
  const Ended ended = with_three_threads(folder.train());
  EXPECT_EQ(ended.exit_code, 0) << to_string(ended);
  EXPECT_THAT(ended.out, HasSubstr("3 threads each (OMP_NUM_THREADS)"));
  EXPECT_THAT(run_zinc(folder.train({"--force"})).out, Not(HasSubstr("OMP_NUM_THREADS")));
  folder.write("ds.json", R"({"train_micro_batch_size_per_gpu": 2, "zinc": {"num_threads": 2}})");
  const Ended other = with_three_threads(folder.train({"--force"}));
  EXPECT_THAT(other.out, HasSubstr("2 threads each"));
  EXPECT_THAT(other.out, Not(HasSubstr("OMP_NUM_THREADS")));
}

TEST(OmpNumThreads, AreThoseOfAPlanAndOfGeneration_AndSaid) {
  const TrainingFolder folder;
  ASSERT_EQ(run_zinc(folder.train()).exit_code, 0);
  const Ended plan = with_three_threads({"plan", "--config", folder / "ds.json", "--model",
                                         folder / "model.json", "--world", "1", "--json"});
  EXPECT_EQ(plan.exit_code, 0) << to_string(plan);
  EXPECT_THAT(plan.out, HasSubstr("\"threads\": 3"));
  EXPECT_THAT(plan.err, HasSubstr(kThreadsNote));
  const Ended text = with_three_threads(
      {"generate", "--model", folder.out() + "/final", "--prompt", "x", "--tokens", "1"});
  EXPECT_EQ(text.exit_code, 0) << to_string(text);
  EXPECT_THAT(text.err, HasSubstr(kThreadsNote));
}

TEST(OmpNumThreads, AreSaidOncePerMachine) {
  const TrainingFolder folder;
  const std::vector<std::string> plan{"plan", "--config", folder / "ds.json", "--model",
                                      folder / "model.json"};
  const std::string cache = folder / "cache";
  EXPECT_THAT(with_three_threads(plan, cache).err, HasSubstr(kThreadsNote));
  EXPECT_THAT(with_three_threads(plan, cache).err, Not(HasSubstr("OMP_NUM_THREADS")));
  folder.write("cache/zinc/said-threads", "note: OMP_NUM_THREADS=2 ...");
  EXPECT_THAT(with_three_threads(plan, cache).err, HasSubstr(kThreadsNote));
}

// Sizes that are "auto" follow the model's hidden size, 32: DeepSpeed's rule.
TEST(AutomaticSizes, FollowTheModel) {
  const TrainingFolder folder;
  folder.write("ds.json", R"({"train_micro_batch_size_per_gpu": 2, "dump_state": true,
      "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto",
                            "stage3_prefetch_bucket_size": "auto",
                            "stage3_param_persistence_threshold": "auto"}})");
  const Ended ended = run_zinc(folder.train());
  EXPECT_EQ(ended.exit_code, 0) << to_string(ended);
  EXPECT_THAT(ended.out, HasSubstr("\"reduce_bucket_size\": 1024"));
  EXPECT_THAT(ended.out, HasSubstr("\"stage3_prefetch_bucket_size\": 921"));
  EXPECT_THAT(ended.out, HasSubstr("\"stage3_param_persistence_threshold\": 320"));
}

// Ranks that warm up differently are told so: the resolved configuration is their fingerprint.
TEST(WarmUpOfAConstantRate, IsPartOfTheFingerprint) {
  const TrainingFolder folder;
  folder.write("ds.json", R"({"train_micro_batch_size_per_gpu": 2, "dump_state": true})");
  EXPECT_THAT(run_zinc(folder.train({"--warmup-steps", "7"})).out,
              HasSubstr("\"warmup_steps\": 7"));
}

}  // namespace threads_test
}  // namespace zinc::apps
