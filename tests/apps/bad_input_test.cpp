// Bad input, as the command meets it: one message that names place and cure, the documented exit
// code (docs/exit_codes.md), and nothing half-written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "core/exit_codes.h"
#include "tests/apps/command_process.h"
#include "tests/apps/training_folder.h"

namespace zinc::apps {
namespace bad_input_test {

using files::read_whole_file;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Lines that begin a message; those that follow are indented, or quote a file.
std::vector<std::string> messages(const std::string& err) {
  std::vector<std::string> found;
  std::istringstream lines(err);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("zinc: ")) found.push_back(line);
  }
  return found;
}

class BadInput : public testing::Test {
 protected:
  // Runs, and holds the command to its contract: `says` are parts of the one message.
  void expect_refused(const std::vector<std::string>& arguments, ExitCode code,
                      const std::vector<std::string>& says, const CommandOptions& options = {}) {
    const std::vector<std::string> before = folder_.tree();
    const Ended ended = run_zinc(arguments, options);
    EXPECT_EQ(ended.exit_code, code) << to_string(ended);
    EXPECT_EQ(messages(ended.err).size(), 1U) << to_string(ended);
    if (options.ranks == 1) {
      EXPECT_TRUE(ended.err.starts_with("zinc: ")) << to_string(ended);
    }
    for (const std::string& part : says) EXPECT_THAT(ended.err, HasSubstr(part));
    EXPECT_EQ(folder_.tree(), before);
  }
  void expect_config_refused(const std::string& config, const std::vector<std::string>& says) {
    folder_.write("ds.json", config);
    expect_refused(folder_.train(), kConfiguration, says);
  }
  void expect_data_refused(const std::string& name, const std::string& content,
                           const std::vector<std::string>& says) {
    const std::string path = folder_.write(name, content);
    expect_refused(folder_.train({"--data", path}), kBadData, says);
  }
  // `zinc train --init` of a folder whose model.safetensors has these bytes.
  void expect_weights_refused(const std::string& bytes, const std::vector<std::string>& says) {
    folder_.write("init/config.json", kTinyGpt2);
    folder_.write("init/model.safetensors", bytes);
    expect_refused(folder_.train({"--init", folder_ / "init"}), kBadData, says);
  }

  TrainingFolder folder_;
};

TEST_F(BadInput, TheFolderOfTheseTestsTrains) {
  const Ended ended = run_zinc(folder_.train());
  EXPECT_EQ(ended.exit_code, 0) << to_string(ended);
  EXPECT_THAT(ended.err, IsEmpty());
  EXPECT_TRUE(std::filesystem::exists(folder_.out() + "/final/model.safetensors"));
}

// --- the length, evaluations, the best model

TEST_F(BadInput, EpochsAndSteps) {
  expect_refused(folder_.train({"--epochs", "3"}), kConfiguration, {"--steps and --epochs", "one"});
  std::vector<std::string> words = folder_.train();
  const auto steps = std::find(words.begin(), words.end(), "--steps");
  words.erase(steps, steps + 2);
  expect_refused(words, kConfiguration, {"--steps or --epochs"});
}

TEST_F(BadInput, OptionsOfTheBestModelWithoutEvaluationsOnTheWay) {
  for (const std::vector<std::string>& option :
       std::vector<std::vector<std::string>>{{"--load-best-model-at-end"},
                                             {"--metric-for-best-model", "loss"},
                                             {"--greater-is-better", "true"},
                                             {"--early-stopping-patience", "2"},
                                             {"--eval-delay", "2"}}) {
    expect_refused(folder_.train(option), kConfiguration, {option.front(), "--eval-every"});
  }
  expect_refused(folder_.train({"--eval-every", "1", "--early-stopping-threshold", "0.1"}),
                 kConfiguration, {"--early-stopping-patience"});
}

TEST_F(BadInput, StrategiesThatContradictTheInterval) {
  expect_refused(folder_.train({"--eval-strategy", "steps"}), kConfiguration, {"--eval-every"});
  expect_refused(folder_.train({"--eval-strategy", "epoch", "--eval-every", "2"}), kConfiguration,
                 {"--eval-strategy epoch", "--eval-every 2"});
}

TEST_F(BadInput, MetricsThatThereAreNot) {
  expect_refused(folder_.train({"--eval-every", "1", "--metric-for-best-model", "los"}),
                 kConfiguration, {"--metric-for-best-model", "'los'", "did you mean 'loss'?"});
  expect_refused(
      folder_.train({"--eval-every", "1", "--validation", "dev=" + (folder_ / "text.txt"),
                     "--metric-for-best-model", "test/loss"}),
      kConfiguration, {"'test/loss'", "dev/loss"});
}

TEST_F(BadInput, NamesOfValidationSets) {
  const std::string text = folder_ / "text.txt";
  expect_refused(folder_.train({"--validation", "dev=" + text, "--validation", text}),
                 kConfiguration, {"NAME=", "text.txt"});
  expect_refused(folder_.train({"--validation", "d v=" + text}), kConfiguration, {"'d v'"});
  expect_refused(folder_.train({"--validation", "dev="}), kConfiguration, {"NAME=FILE"});
}

// --- the configuration

TEST_F(BadInput, UnknownKey) {
  expect_config_refused("{\n  \"train_batch_size\": 2,\n  \"gradient_cliping\": 1.0\n}\n",
                        {"ds.json:3:", "gradient_cliping", "gradient_clipping"});
}

TEST_F(BadInput, MistypedKey) {
  expect_config_refused("{\n  \"train_batch_size\": \"two\"\n}\n",
                        {"ds.json:2:", "train_batch_size", "\"two\""});
}

TEST_F(BadInput, SeveralProblemsAreOneMessage) {
  expect_config_refused("{\n  \"train_batch_size\": true,\n  \"bf17\": {},\n  \"fp16\": 3\n}\n",
                        {"ds.json:2:", "ds.json:3:", "ds.json:4:", "bf16"});
}

TEST_F(BadInput, ContradictoryBatchSizes) {
  expect_config_refused(
      R"({"train_batch_size": 7, "train_micro_batch_size_per_gpu": 2,
          "gradient_accumulation_steps": 2})",
      {"train_batch_size", "7", "2"});
}

TEST_F(BadInput, FlagThatContradictsTheFile) {
  expect_refused(folder_.train({"--batch", "3"}), kConfiguration,
                 {"--batch 3", "train_micro_batch_size_per_gpu 2", "auto"});
}

TEST_F(BadInput, ConfigurationThatIsMissing) {
  expect_refused(folder_.train({"--config", folder_ / "none.json"}), kConfiguration,
                 {"none.json", "there is no"});
}

TEST_F(BadInput, DeepJsonAsConfiguration) {
  folder_.write("deep.json", std::string(200'000, '['));
  expect_refused(folder_.train({"--config", folder_ / "deep.json"}), kConfiguration,
                 {"deep.json:1:", "deep"});
  expect_refused({"config", "check", folder_ / "deep.json"}, kConfiguration, {"deep.json:1:"});
}

TEST_F(BadInput, DeepJsonAsModel) {
  folder_.write("deep.json", std::string(200'000, '['));
  expect_refused(folder_.train({"--model", folder_ / "deep.json"}), kBadData, {"deep.json:1:"});
}

// --- data

TEST_F(BadInput, DataThatIsMissing) {
  expect_refused(folder_.train({"--data", folder_ / "none.txt"}), kBadData,
                 {"there is no file", "none.txt"});
}

TEST_F(BadInput, DataThatIsEmpty) { expect_data_refused("empty.txt", "", {"empty.txt", "empty"}); }

TEST_F(BadInput, DataThatIsNotUtf8) {
  expect_data_refused("latin1.txt", std::string(100, 'a') + "caf\xE9 noir" + std::string(900, 'b'),
                      {"latin1.txt", "UTF-8", "103"});
}

TEST_F(BadInput, DataThatIsTooShort) {
  expect_data_refused("short.txt", "In the beginning", {"short.txt", "too short", "17"});
}

TEST_F(BadInput, ShardWithABadHeader) {
  std::string header(1024, '\0');
  const auto put = [&](size_t word, uint32_t value) {
    for (size_t i = 0; i < 4; ++i)
      header[4 * word + i] = static_cast<char>((value >> (8 * i)) & 0xFF);
  };
  put(0, 20240520);
  put(1, 9);
  put(2, 100);
  expect_data_refused("version.bin", header + std::string(200, '\0'), {"version.bin", "version"});
  put(1, 1);
  expect_data_refused("count.bin", header + std::string(150, '\0'),
                      {"count.bin", "100 tokens", "150"});
  expect_data_refused("cut.bin", header.substr(0, 512), {"cut.bin"});
}

TEST_F(BadInput, TokensOutsideTheVocabulary) {
  std::string tokens;
  for (int i = 0; i < 400; ++i) tokens += {'\x05', i == 200 ? '\x7F' : '\x00'};
  const std::string path = folder_.write("tokens.bin", tokens);
  const Ended ended = run_zinc(folder_.train({"--data", path, "--steps", "40"}));
  EXPECT_EQ(ended.exit_code, kBadData) << to_string(ended);
  EXPECT_EQ(messages(ended.err).size(), 1U) << to_string(ended);
  EXPECT_THAT(ended.err, HasSubstr("tokens.bin"));
  EXPECT_THAT(ended.err, HasSubstr("32517"));
  EXPECT_THAT(folder_.unfinished(), IsEmpty());
}

// --- weights

TEST_F(BadInput, SafetensorsWithAHugeHeader) {
  std::string bytes = safetensors_bytes("{}", 0);
  bytes[7] = '\x10';
  expect_weights_refused(bytes, {"model.safetensors", "header"});
}

TEST_F(BadInput, SafetensorsWithDeepJson) {
  expect_weights_refused(safetensors_bytes(std::string(200'000, '['), 0), {"model.safetensors"});
}

TEST_F(BadInput, SafetensorsWithOverlappingRanges) {
  expect_weights_refused(
      safetensors_bytes(R"({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]},
                            "b": {"dtype": "F32", "shape": [4], "data_offsets": [8, 24]}})",
                        24),
      {"model.safetensors", "\"b\"", "inside the data before it"});
}

TEST_F(BadInput, SafetensorsWithRangesOfTheWrongSize) {
  expect_weights_refused(
      safetensors_bytes(R"({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 12]}})", 12),
      {"model.safetensors", "\"a\"", "12", "16"});
}

TEST_F(BadInput, SafetensorsOfAnotherModel) {
  expect_weights_refused(
      safetensors_bytes(
          R"({"transformer.wte.weight": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}})",
          16),
      {"transformer.wte.weight", "[256, 32]", "transformer.h.0.attn.c_attn.weight"});
}

TEST_F(BadInput, IndexThatNamesAPathOutsideItsFolder) {
  folder_.write("init/config.json", kTinyGpt2);
  folder_.write(
      "secret.safetensors",
      safetensors_bytes(R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})", 4));
  for (const char* path :
       {"../secret.safetensors", "/etc/passwd", "sub/../../secret.safetensors"}) {
    folder_.write("init/model.safetensors.index.json",
                  std::string(R"({"weight_map": {"a": ")") + path + "\"}}");
    expect_refused(folder_.train({"--init", folder_ / "init"}), kBadData,
                   {"model.safetensors.index.json", path});
  }
}

TEST_F(BadInput, InitThatIsMissing) {
  expect_refused(folder_.train({"--init", folder_ / "none"}), kBadData, {"none"});
  expect_refused(folder_.train({"--init", "tests/referenc/gpt2"}), kBadData,
                 {"--init: there is no folder", "did you mean 'tests/reference/gpt2'?"});
}

TEST_F(BadInput, PromptOutsideTheVocabulary) {
  // 67 tokens; every byte of text is one of 256.
  expect_refused({"generate", "--model", "tests/reference/gpt2", "--prompt", "hello"}, kBadData,
                 {"tests/reference/gpt2", "vocabulary of 67", "256"});
}

// --- the run

TEST_F(BadInput, MoreRanksThanData) {
  if (!have_mpirun()) GTEST_SKIP() << "built without MPI";
  const std::string path = folder_.write("few.txt", std::string(60, 'a'));  // three windows of 16
  expect_refused(folder_.train({"--data", path}), kBadData,
                 {"few.txt", "too little data", "3 sequences", "2 ranks", "use fewer ranks"},
                 {.ranks = 2});
}

TEST_F(BadInput, ConfigurationOfSeveralRanksIsOneMessage) {
  if (!have_mpirun()) GTEST_SKIP() << "built without MPI";
  expect_refused(folder_.train({"--batch", "3"}), kConfiguration, {"--batch 3"}, {.ranks = 2});
}

// The configuration and the steps fit, the weights do not.
TEST_F(BadInput, FullDiskWhileSaving) {
  const Ended ended = run_zinc(folder_.train(), {.largest_file = 20'000});
  EXPECT_EQ(ended.exit_code, kIo) << to_string(ended);
  EXPECT_EQ(messages(ended.err).size(), 1U) << to_string(ended);
  EXPECT_THAT(ended.err, HasSubstr(folder_.out()));
  EXPECT_THAT(ended.err, HasSubstr("model.safetensors"));
  EXPECT_THAT(folder_.unfinished(), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(folder_.out() + "/best"));
  EXPECT_FALSE(std::filesystem::exists(folder_.out() + "/final"));
}

// The lines of metrics.jsonl are the longest, so that this file is the first to be full; the events
// begin with the configuration.
TEST_F(BadInput, FullDiskWhileWritingFigures_LeavesWholeLines) {
  const Ended ended = run_zinc(folder_.train({"--steps", "40"}), {.largest_file = 12'000});
  EXPECT_EQ(ended.exit_code, kIo) << to_string(ended);
  EXPECT_EQ(messages(ended.err).size(), 1U) << to_string(ended);
  EXPECT_THAT(ended.err, HasSubstr("model.safetensors"));
  EXPECT_THAT(ended.out, HasSubstr("note: figures are lost: "));
  EXPECT_THAT(ended.out, HasSubstr("metrics.jsonl"));
  EXPECT_THAT(ended.out, HasSubstr("step 39/40"));
  const std::string lines = read_whole_file(folder_.out() + "/metrics.jsonl");
  EXPECT_GT(lines.size(), 10'000U);
  EXPECT_TRUE(lines.ends_with("}\n")) << lines;
  EXPECT_THAT(folder_.unfinished(), IsEmpty());
}

TEST_F(BadInput, FullDiskBeforeTheFirstStep_LeavesNoRunFolder) {
  expect_refused(folder_.train(), kIo, {"config.resolved.json"}, {.largest_file = 100});
}

TEST_F(BadInput, TraceThatCannotBeWritten) {
  const auto refuse = [&](const std::string& path) {
    folder_.write("ds.json",
                  R"({"train_micro_batch_size_per_gpu": 2, "zinc": {"trace": ")" + path + "\"}}");
    expect_refused(folder_.train(), kIo, {path});
  };
  refuse(folder_ / "no/such/folder.json");
  refuse(folder_.path());
}

// The rank that made the folder takes it away before mpirun ends the job for the other one.
TEST_F(BadInput, FailedStartOfTwoRanks_LeavesNoRunFolder) {
  if (!have_mpirun()) GTEST_SKIP() << "built without MPI";
  constexpr int kStarts = 3;  // a race
  folder_.write(
      "ds.json",
      R"({"train_micro_batch_size_per_gpu": 2, "zinc": {"trace": "no/such/trace.json"}})");
  for (int start = 0; start < kStarts; ++start) {
    const Ended ended = run_zinc(folder_.train(), {.ranks = 2});
    EXPECT_EQ(ended.exit_code, kIo) << to_string(ended);
    ASSERT_FALSE(std::filesystem::exists(folder_.out())) << "start " << start;
  }
}

// The data file is named as the trace, by mistake.
TEST_F(BadInput, TraceThatIsAnotherFile) {
  const std::string data = read_whole_file(folder_ / "text.txt");
  folder_.write("ds.json", R"({"train_micro_batch_size_per_gpu": 2, "zinc": {"trace": ")" +
                               (folder_ / "text.txt") + "\"}}");
  expect_refused(folder_.train(), kCannotCreate, {"text.txt", "not a trace"});
  EXPECT_EQ(read_whole_file(folder_ / "text.txt"), data);
}

// A real full disk: a small file system that only this process sees.
TEST_F(BadInput, FullFileSystemWhileSaving) {
  std::string words;
  for (const std::string& word : folder_.train({"--out", folder_ / "disk/run"})) {
    words += " '" + word + "'";
  }
  std::filesystem::create_directory(folder_ / "disk");
  const std::string mount = "mount -t tmpfs -o size=64k none '" + (folder_ / "disk") + "'";
  const std::vector<std::string> own_mounts = {"unshare", "--user", "--map-root-user",
                                               "--mount", "sh",     "-c"};
  const auto run_script = [&](const std::string& script) {
    std::vector<std::string> all = own_mounts;
    all.push_back(script);
    return CommandProcess::of_program(all).finish();
  };
  const Ended possible = run_script(mount);
  if (possible.exit_code != 0) GTEST_SKIP() << "no mounts here: " << to_string(possible);
  const Ended ended = run_script(mount + " && '" + command_path() + "'" + words +
                                 " >/dev/null; status=$?; find '" + (folder_ / "disk/run") +
                                 "' -mindepth 1 | sed 's|.*/||; s|events.*|events|' | sort; exit "
                                 "$status");
  EXPECT_EQ(ended.exit_code, kIo) << to_string(ended);
  EXPECT_EQ(messages(ended.err).size(), 1U) << to_string(ended);
  EXPECT_THAT(ended.err, HasSubstr("No space left on device"));
  EXPECT_EQ(ended.out, ".zinc-run\nconfig.resolved.json\nevents\nmetrics.csv\nmetrics.jsonl\n");
}

// Rank 1 sees another folder of that name: its ranges cannot reach the files that rank 0 made.
TEST_F(BadInput, RanksWithoutASharedFileSystem) {
  if (!have_mpirun()) GTEST_SKIP() << "built without MPI";
  std::filesystem::create_directory(folder_ / "disk");
  const std::string mount = "mount -t tmpfs -o size=64k none '" + (folder_ / "disk") + "'";
  if (CommandProcess::of_program({"unshare", "--user", "--map-root-user", "--mount", "true"})
          .finish()
          .exit_code != 0) {
    GTEST_SKIP() << "no mounts here";
  }
  std::string words = "'" + command_path() + "'";
  for (const std::string& word : folder_.train({"--out", folder_ / "disk/run"})) {
    words += " '" + word + "'";
  }
  folder_.write("alone.sh", mount + " && exec " + words + "\n");
  folder_.write("rank.sh",
                "if [ \"$OMPI_COMM_WORLD_RANK\" = 1 ]; then\n"
                "  exec unshare --user --map-root-user --mount sh '" +
                    (folder_ / "alone.sh") + "'\nfi\nexec " + words + "\n");
  const Ended ended =
      CommandProcess::of_program({ZINC_MPIRUN, "--oversubscribe", "--bind-to", "none",
                                  "--allow-run-as-root", "-np", "2", "sh", folder_ / "rank.sh"})
          .finish();
  EXPECT_EQ(ended.exit_code, kIo) << to_string(ended);
  EXPECT_EQ(messages(ended.err).size(), 1U) << to_string(ended);
  EXPECT_THAT(ended.err, HasSubstr("all ranks need one shared file system"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "disk/run/final"));
  EXPECT_THAT(folder_.unfinished(), IsEmpty());
}

TEST_F(BadInput, ExistingRunWithoutForce) {
  ASSERT_EQ(run_zinc(folder_.train()).exit_code, 0);
  const std::string figures = read_whole_file(folder_.out() + "/metrics.jsonl");
  expect_refused(folder_.train(), kCannotCreate, {folder_.out(), "--resume auto", "--force"});
  EXPECT_EQ(read_whole_file(folder_.out() + "/metrics.jsonl"), figures);
  EXPECT_EQ(run_zinc(folder_.train({"--force"})).exit_code, 0);
  EXPECT_THAT(folder_.unfinished(), IsEmpty());
}

// Whatever keeps the new run from its first step, the old one is as it was.
TEST_F(BadInput, ForceKeepsTheOldRun_UntilTheNewOneHasDoneAStep) {
  ASSERT_EQ(run_zinc(folder_.train({"--save-every", "1"})).exit_code, 0);
  const auto refuse = [&](const std::string& members, ExitCode code, const std::string& says) {
    folder_.write("new.json", "{\"train_micro_batch_size_per_gpu\": 2, " + members + "}");
    expect_refused(folder_.train({"--force", "--config", folder_ / "new.json"}), code, {says});
  };
  folder_.write("new.json", "{}");  // part of the tree that stays as it is
  refuse(R"("zinc": {"device_memory_limit": 100000})", kOutOfMemory, "limit");
  refuse(R"("zero_optimization": {"stage": 2, "offload_optimizer":
             {"device": "nvme", "nvme_path": "/nowhere/at/all"}})",
         kIo, "/nowhere/at/all");
  refuse(R"("optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
            "zinc": {"trace": "/nowhere/trace.json"})",
         kIo, "/nowhere/trace.json");
}

// The trace and the monitors of a run are in the new folder, under the names that were asked for.
TEST_F(BadInput, ForceBringsTraceAndMonitorsToTheNewRun) {
  folder_.write("ds.json",
                R"({"train_micro_batch_size_per_gpu": 2, "csv_monitor": {"enabled": true},
                    "zinc": {"trace": ")" +
                    folder_.out() + R"(/trace.json"}})");
  ASSERT_EQ(run_zinc(folder_.train()).exit_code, 0);
  const std::vector<std::string> first = folder_.tree();
  folder_.write("run/mine", "of the old run");
  const Ended ended = run_zinc(folder_.train({"--force"}));
  EXPECT_EQ(ended.exit_code, 0) << to_string(ended);
  std::vector<std::string> second = folder_.tree();
  const auto is_event_file = [](const std::string& name) {
    return name.find("events.out") != std::string::npos;  // named by time and process
  };
  std::vector<std::string> expected = first;
  std::erase_if(expected, is_event_file);
  EXPECT_EQ(std::erase_if(second, is_event_file), 1U);
  EXPECT_EQ(second, expected);
  EXPECT_TRUE(read_whole_file(folder_.out() + "/trace.json").ends_with("\n]\n"));
  EXPECT_THAT(expected, testing::Contains("run/trace.json"));
  EXPECT_THAT(expected, testing::Contains("run/DeepSpeedJobName/Train_Samples_train_loss.csv"));
}

TEST_F(BadInput, FolderThatIsNoRun_IsLeftAloneEvenWithForce) {
  folder_.write("run/thesis.txt", "the only copy");
  expect_refused(folder_.train({"--force"}), kCannotCreate, {folder_.out(), "not a run"});
  EXPECT_EQ(read_whole_file(folder_ / "run/thesis.txt"), "the only copy");
}

// --- the command line

TEST_F(BadInput, UnknownFlag) {
  expect_refused(folder_.train({"--stpes", "3"}), kUsage, {"--stpes", "did you mean --steps"});
}

TEST_F(BadInput, UnknownVerb) {
  expect_refused({"trian"}, kUsage, {"trian", "did you mean train"});
}

TEST_F(BadInput, FlagOutsideItsRange) {
  folder_.write("ds.json", R"({"train_micro_batch_size_per_gpu": "auto"})");
  expect_refused(folder_.train({"--batch", "0"}), kConfiguration, {"--batch must be between 1"});
  expect_refused(folder_.train({"--steps", "0"}), kUsage, {"--steps: Value 0 not in range 1 to"});
}

// Before anything is read or made.
TEST_F(BadInput, FlagsAreCheckedBeforeAnythingIsMade) {
  const auto refuse = [&](const std::string& flag, const std::string& value, ExitCode code) {
    expect_refused(folder_.train({flag, value}), code, {flag});
  };
  for (const char* flag :
       {"--eval-every", "--save-every", "--warmup-steps", "--eval-batches", "--threads", "--seq"}) {
    refuse(flag, "-1", kUsage);
    refuse(flag, "many", kUsage);
  }
  refuse("--eval-batches", "0", kUsage);
  refuse("--threads", "0", kUsage);
  refuse("--sample-prompt", "", kUsage);
  refuse("--out", "", kUsage);
}

TEST_F(BadInput, TextForAModelThatDoesNotReadBytes) {
  std::filesystem::copy("tests/reference/gpt2", folder_ / "init");
  expect_refused(folder_.train({"--model", folder_ / "init", "--init", folder_ / "init"}), kBadData,
                 {"--data", "text.txt", "read as bytes", "vocabulary of 256", "one of 67", ".bin"});
}

TEST_F(BadInput, FlagThatIsMissing) { expect_refused({"train"}, kUsage, {"--config"}); }

}  // namespace bad_input_test
}  // namespace zinc::apps
