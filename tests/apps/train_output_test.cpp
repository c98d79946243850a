// The printed output and the files of `zinc train`, beside the weights.
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "apps/console.h"
#include "core/cuda_backend.h"
#include "core/error.h"
#include "files/json/parser.h"
#include "kernels/attention_library.h"
#include "tests/apps/command_process.h"
#include "tests/apps/training_folder.h"
#include "tests/train/event_file.h"

namespace zinc::apps {
namespace train_output_test {

struct Output {
  std::vector<std::string> times;  // lines of stdout
  std::vector<files::json::Value> metrics;
};

Output train(const std::string& members) {
  const TrainingFolder folder;
  folder.write("ds.json",
               "{\"train_micro_batch_size_per_gpu\": 2, \"steps_per_print\": 2" + members + "}");
  const Ended ended = run_zinc(folder.train({"--steps", "5"}));
  EXPECT_EQ(ended.exit_code, 0) << to_string(ended);
  Output output;
  std::istringstream text(ended.out);
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("time (ms) | ")) output.times.push_back(line);
  }
  std::istringstream figures(files::read_whole_file(folder.out() + "/metrics.jsonl"));
  for (std::string line; std::getline(figures, line);) {
    output.metrics.push_back(files::json::parse(line, "metrics.jsonl"));
  }
  return output;
}

TEST(Monitors, TheWandbBlock_LeavesAnOfflineRun) {
  const TrainingFolder folder;
  folder.write("ds.json", R"({"train_micro_batch_size_per_gpu": 2,
                              "wandb": {"enabled": true, "project": "words", "team": "us"}})");
  const Ended ended = run_zinc(folder.train());
  ASSERT_EQ(ended.exit_code, 0) << to_string(ended);
  EXPECT_EQ(ended.out.find("wandb"), std::string::npos) << "it warns of a key that works";
  std::string file;
  for (const std::string& path : folder.tree()) {
    if (path.ends_with(".wandb")) file = path;
  }
  EXPECT_TRUE(file.starts_with("run/wandb/offline-run-")) << file;
  const std::string bytes = files::read_whole_file(folder / file);
  EXPECT_TRUE(bytes.starts_with(":W&B"));
  for (const char* part : {"words", "us", "Train/Samples/train_loss", "Validation/Samples/val_loss",
                           "train_micro_batch_size_per_gpu"}) {
    EXPECT_NE(bytes.find(part), std::string::npos) << part;
  }
}

TEST(Sample, IsKeptInTheRunsFolder) {
  const TrainingFolder folder;
  const Ended ended = run_zinc(folder.train({"--sample-prompt", "In the"}));
  ASSERT_EQ(ended.exit_code, 0) << to_string(ended);
  const std::string sample = files::read_whole_file(folder.out() + "/samples.txt");
  EXPECT_TRUE(sample.starts_with("--- step 2\nIn the")) << sample;
  EXPECT_GT(sample.size(), 17U);
}

TEST(Sample, ComesEverySoManySteps_OfEachPrompt_AndStaysWhereARunGoesOn) {
  const TrainingFolder folder;
  const std::vector<std::string> options = {"--steps",         "5",   "--save-every",    "1",
                                            "--sample-every",  "2",   "--sample-prompt", "And",
                                            "--sample-prompt", "the", "--resume",        "auto"};
  const auto samples = [&] {
    std::vector<std::string> begins;
    std::istringstream text(files::read_whole_file(folder.out() + "/samples.txt"));
    for (std::string line, next; std::getline(text, line);) {
      if (!line.starts_with("--- step ")) continue;
      std::getline(text, next);
      begins.push_back(line + ": " + next.substr(0, 3));
    }
    return begins;
  };
  ASSERT_EQ(run_zinc(folder.train(options)).exit_code, 0);
  const std::vector<std::string> all = {"--- step 2: And", "--- step 2: the", "--- step 4: And",
                                        "--- step 4: the", "--- step 5: And", "--- step 5: the"};
  EXPECT_EQ(samples(), all);
  const std::string whole = files::read_whole_file(folder.out() + "/samples.txt");
  // Continues from step 3.
  for (const char* later : {"/checkpoints/step-000004", "/checkpoints/step-000005"}) {
    std::filesystem::remove_all(folder.out() + later);
  }
  ASSERT_EQ(run_zinc(folder.train(options)).exit_code, 0);
  EXPECT_EQ(files::read_whole_file(folder.out() + "/samples.txt"), whole);
  // Continues from its end, and from a step whose sample a signal has ended.
  ASSERT_EQ(run_zinc(folder.train(options)).exit_code, 0);
  EXPECT_EQ(files::read_whole_file(folder.out() + "/samples.txt"), whole);
  std::filesystem::remove_all(folder.out() + "/checkpoints/step-000005");
  folder.write("run/samples.txt", whole.substr(0, whole.find("--- step 4")));
  ASSERT_EQ(run_zinc(folder.train(options)).exit_code, 0);
  EXPECT_EQ(files::read_whole_file(folder.out() + "/samples.txt"), whole);
}

TEST(TensorBoard, HasSamplesAndHistogramsOfTheWeights) {
  const TrainingFolder folder;
  ASSERT_EQ(run_zinc(folder.train(
                         {"--steps", "3", "--histogram-every", "2", "--sample-prompt", "In the"}))
                .exit_code,
            0);
  std::vector<std::string> histograms, samples;
  for (const std::string& name : files::names_in(folder.out())) {
    if (!name.starts_with("events.out.")) continue;
    for (const train::Event& event : train::read_events(folder.out() + '/' + name)) {
      if (event.count > 0.0) histograms.push_back(str(event.tag, " ", event.step));
      if (event.tag.starts_with("samples/")) samples.push_back(event.text);
    }
  }
  EXPECT_EQ(histograms.size(), 16U);                                // a parameter each, once
  EXPECT_EQ(histograms.at(0), "weights/transformer.wte.weight 4");  // two samples a step
  ASSERT_EQ(samples.size(), 1U);
  EXPECT_TRUE(samples[0].starts_with("    In the")) << samples[0];
}

TEST(WallClockBreakdown, IsPrintedEverySoManyStepsAndWrittenForEach) {
  const Output output = train(", \"wall_clock_breakdown\": true");
  EXPECT_EQ(output.times.size(), 2U);  // steps 2 and 4
  for (const std::string& line : output.times) {
    for (const char* name : {" fwd: ", " bwd: ", " bwd_allreduce: ", " step: "}) {
      EXPECT_NE(line.find(name), std::string::npos) << line;
    }
  }
  ASSERT_EQ(output.metrics.size(), 5U);
  for (const auto& step : output.metrics) {
    const auto& breakdown = step.at("breakdown");
    const double phases = breakdown.at("forward").as_double() +
                          breakdown.at("backward").as_double() + breakdown.at("step").as_double();
    EXPECT_GT(breakdown.at("forward").as_double(), 0.0);
    EXPECT_GT(breakdown.at("gradient_reduction").as_double(), 0.0);
    EXPECT_LE(phases, step.at("seconds").as_double());
  }
}

TEST(WallClockBreakdown, IsOffByDefault) {
  const Output output = train("");
  EXPECT_TRUE(output.times.empty());
  ASSERT_EQ(output.metrics.size(), 5U);
  for (const auto& step : output.metrics) EXPECT_EQ(step.find("breakdown"), nullptr);
}

TEST(AttentionLine, TheHeadOfARunOnAGpuSaysWhoseKernelsItTakes) {
  if (!why_no_cuda_device().empty()) GTEST_SKIP() << "needs a GPU";
  const TrainingFolder folder;
  CommandProcess process(folder.train({"--device", "cuda", "--dtype", "bf16"}));
  const bool empty = kernels::attention_table().empty();
  EXPECT_TRUE(process.wait_for_output(
      empty ? "\nattention: zinc's own kernels: no line of the library's table is about bf16"
            : "\nattention: "));
}

TEST(AttentionLine, ARunOnCpusHasNone) {
  const TrainingFolder folder;
  const Ended ended = run_zinc(folder.train({"--steps", "1"}));
  EXPECT_EQ(ended.out.find("attention: "), std::string::npos) << to_string(ended);
}

// 40 steps of 2 windows: a tenth of the steps are 8 of the data's windows.
TEST(EvaluationSize, IsBoundedByTheSteps_AndSaid) {
  const TrainingFolder folder;
  std::string text;
  while (text.size() < 10'000) text += "And the evening and the morning were the first day.\n";
  text.resize(10'000);
  const auto head = [&](const std::vector<std::string>& changes) {
    std::vector<std::string> words = {"--validation", folder.write("long.txt", text), "--force"};
    words.insert(words.end(), changes.begin(), changes.end());
    const Ended ended = run_zinc(folder.train(words));
    EXPECT_EQ(ended.exit_code, 0) << to_string(ended);
    const size_t at = ended.out.find("  evaluation ");
    return ended.out.substr(at, ended.out.find('\n', at) - at);
  };
  EXPECT_EQ(head({"--steps", "3"}),
            "  evaluation  at the end, on 2 of 625 windows of 16 tokens (--eval-batches)");
  EXPECT_EQ(head({"--steps", "40", "--eval-every", "20"}),
            "  evaluation  every 20 steps and at the end, on 8 of 625 windows of 16 tokens "
            "(--eval-batches)");
  EXPECT_EQ(head({"--steps", "2", "--eval-batches", "5"}),
            "  evaluation  at the end, on 10 of 625 windows of 16 tokens (--eval-batches)");
  EXPECT_EQ(head({"--steps", "2", "--eval-batches", "5000000000000"}),
            "  evaluation  at the end, on 625 of 625 windows of 16 tokens (--eval-batches)");
}

TEST(ThreadsOfARank, AreThoseOfTheFlag) {
  const TrainingFolder folder;
  for (const char* threads : {"1", "3"}) {
    const Ended ended = run_zinc(folder.train({"--threads", threads, "--force"}));
    EXPECT_EQ(ended.exit_code, 0) << to_string(ended);
    EXPECT_NE(ended.out.find(std::string(", ") + threads + " threads each"), std::string::npos)
        << ended.out;
  }
}

TEST(ConsoleEvaluation, IsALineEveryFiveSeconds) {
  testing::internal::CaptureStdout();
  {
    Console console(true, 1);
    for (const double seconds : {0.0, 1.0, 4.9, 5.5, 9.0, 10.6}) {
      console.on_evaluating({.batches = static_cast<int64_t>(10 * seconds),
                             .total_batches = 212,
                             .seconds = seconds});
    }
    console.on_evaluating({.batches = 0, .total_batches = 20});
    console.on_evaluating({.batches = 10, .total_batches = 20, .seconds = 6.0});
  }
  EXPECT_EQ(testing::internal::GetCapturedStdout(),
            "evaluation 55/212 batches | 6 s | ETA 16 s\n"
            "evaluation 106/212 batches | 11 s | ETA 11 s\n"
            "evaluation 10/20 batches | 6 s | ETA 6 s\n");
}

// Notes that are known at the head of the run are printed there.
TEST(ConsoleNotes, AreShownOnce_AfterTheStepInWhichTheyCome) {
  std::vector<std::string> notes{"known"};
  testing::internal::CaptureStdout();
  {
    Console console(true, 1);
    console.show_new([&] { return notes; });
    for (int64_t step = 1; step <= 3; ++step) {
      if (step == 2) notes.push_back("the library is wrong");
      console.line(str("before ", step));
      console.on_step({.step = step}, {});
    }
  }
  std::string said;
  std::istringstream text(testing::internal::GetCapturedStdout());
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("before") || line.starts_with("note")) said += line + "\n";
  }
  EXPECT_EQ(said, "before 1\nbefore 2\nnote: the library is wrong\nbefore 3\n");
}

// The tiny GPT-2 of these tests has 16 positions.
TEST(UntrainedPositions, AreNamed_AndGenerateStaysBelowThemOnRequest) {
  const TrainingFolder folder;
  const std::string note = "positions 8 to 15 of the model are never trained";
  const Ended shorter = run_zinc(folder.train({"--seq", "8"}));
  EXPECT_EQ(shorter.exit_code, 0) << to_string(shorter);
  EXPECT_NE(shorter.out.find(note), std::string::npos) << to_string(shorter);

  const std::string model = folder.out() + "/final";
  const auto text = [&](const std::string& prompt, const std::vector<std::string>& more) {
    std::vector<std::string> words = {"generate", "--model",   model, "--prompt",
                                      prompt,     "--tokens",  "8",   "--temperature",
                                      "0.9",      "--threads", "1"};
    words.insert(words.end(), more.begin(), more.end());
    const Ended ended = run_zinc(words);
    EXPECT_EQ(ended.exit_code, 0) << to_string(ended);
    return ended.out.substr(prompt.size());
  };
  const std::string prompt = "And the evening and ";
  const std::string seen = prompt.substr(prompt.size() - 8);
  EXPECT_EQ(text(prompt, {"--context", "8"}), text(seen, {"--context", "8"}));
  const Ended longer = run_zinc({"generate", "--model", model, "--context", "17"});
  EXPECT_EQ(longer.exit_code, 78) << to_string(longer);
  EXPECT_NE(longer.err.find("--context 17"), std::string::npos) << to_string(longer);
}

TEST(Head, OfARunFromAFolder_NamesTheFolder) {
  const TrainingFolder folder;
  ASSERT_EQ(run_zinc(folder.train()).exit_code, 0);
  const std::string weights = folder.out() + "/final";
  const Ended ended =
      run_zinc({"train", "--config", folder / "ds.json", "--init", weights, "--data",
                folder / "text.txt", "--steps", "1", "--out", folder / "more"});
  EXPECT_EQ(ended.exit_code, 0) << to_string(ended);
  EXPECT_NE(ended.out.find("gpt2 " + weights + ", "), std::string::npos) << ended.out;
}

TEST(UntrainedPositions, AreNotNamedWhereAllAreTrainedOrWeightsAreGiven) {
  const TrainingFolder folder;
  const Ended whole = run_zinc(folder.train({"--seq", "16"}));
  EXPECT_EQ(whole.exit_code, 0) << to_string(whole);
  EXPECT_EQ(whole.out.find("never trained"), std::string::npos) << whole.out;
  const Ended further = run_zinc(folder.train(
      {"--seq", "8", "--init", folder.out() + "/final", "--out", folder.out() + "-2"}));
  EXPECT_EQ(further.exit_code, 0) << to_string(further);
  EXPECT_EQ(further.out.find("never trained"), std::string::npos) << further.out;
}

}  // namespace train_output_test
}  // namespace zinc::apps
