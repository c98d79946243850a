// zinc generate with many prompts, beams and ranks; zinc chat through a pipe.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/cuda_backend.h"
#include "core/exit_codes.h"
#include "files/json/parser.h"
#include "files/json/writer.h"
#include "tests/apps/command_process.h"
#include "tests/apps/training_folder.h"

namespace zinc::apps {
namespace generate_test {

using testing::HasSubstr;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// The texts that tests/reference/make_generated.py stored.
const files::json::Value& stored() {
  static const files::json::Value value = files::json::parse_file("tests/reference/generated.json");
  return value;
}

// Prompts of the model, group after group, as records; all groups have 20.
std::string prompts_of(const std::string& model, const std::string& vocabulary, size_t first,
                       size_t count) {
  std::string lines;
  const files::json::Value& groups = stored().at("models").at(model).at("groups");
  for (size_t i = first; i < first + count; ++i) {
    const auto group = static_cast<size_t>(groups.at(i / 20).as_int64());
    lines += R"({"input_ids":)" +
             files::json::write(stored().at("prompts").at(vocabulary).at(group).at(i % 20)) + "}\n";
  }
  return lines;
}

std::vector<int64_t> tokens_of(const files::json::Value& list) {
  std::vector<int64_t> tokens;
  for (const files::json::Value& token : list.as_array()) tokens.push_back(token.as_int64());
  return tokens;
}

class Generate : public testing::Test {
 protected:
  Ended run(std::vector<std::string> words, const CommandOptions& options = {}) {
    words.insert(words.end(), {"--threads", "1"});
    return run_zinc(words, options);
  }

  std::vector<files::json::Value> texts(const std::string& path) {
    std::vector<files::json::Value> values;
    for (const std::string& line : lines_of(files::read_whole_file(folder_ / path))) {
      values.push_back(files::json::parse(line, path));
    }
    return values;
  }

  TrainingFolder folder_;
};

// The encoder reads the prompts; the answers end with T5's </s>, which is token 1.
TEST_F(Generate, T5AnswersManyPrompts_OnRanksToo) {
  const std::string prompts = folder_.write("prompts.jsonl", prompts_of("t5", "43", 10, 45));
  const auto answers = [&](const std::string& out, std::vector<std::string> more, int ranks) {
    std::vector<std::string> words{"generate",
                                   "--model",
                                   "tests/reference/t5",
                                   "--prompts",
                                   prompts,
                                   "--out",
                                   folder_ / out,
                                   "--tokens",
                                   "12",
                                   "--temperature",
                                   "0",
                                   "--batch-size",
                                   "8"};
    words.insert(words.end(), more.begin(), more.end());
    const Ended ended = run(words, {.ranks = ranks});
    EXPECT_EQ(ended.exit_code, kDone) << to_string(ended);
    return files::read_whole_file(folder_ / out);
  };
  const std::string alone = answers("alone.jsonl", {}, 1);
  const auto lines = texts("alone.jsonl");
  ASSERT_EQ(lines.size(), 45U);
  const files::json::Value& greedy = stored().at("models").at("t5").at("greedy");
  for (size_t i = 0; i < lines.size(); ++i) {
    std::vector<int64_t> expected = tokens_of(greedy.at(10 + i));
    const auto end = std::ranges::find(expected, 1);
    const bool stops = end != expected.end();
    expected.erase(end, expected.end());
    EXPECT_EQ(tokens_of(lines[i].at("tokens")), expected) << i;
    EXPECT_EQ(lines[i].at("finish").as_string(), stops ? "stop" : "length") << i;
  }
  if (!have_mpirun()) GTEST_SKIP() << "built without MPI";
  EXPECT_EQ(answers("ranks.jsonl", {}, 3), alone);
  EXPECT_EQ(answers("sharded.jsonl", {"--sharded"}, 2), alone);
}

TEST_F(Generate, Beams_AreTheLinesOfAPrompt) {
  const std::string prompts = folder_.write("prompts.jsonl", prompts_of("gpt2", "67", 20, 20));
  const files::json::Value& model = stored().at("models").at("gpt2");
  std::vector<std::string> words{
      "generate",    "--model", "tests/reference/gpt2",   "--prompts", prompts, "--tokens", "12",
      "--num-beams", "4",       "--num-return-sequences", "3"};
  for (const int64_t token : tokens_of(model.at("stop"))) {
    words.insert(words.end(), {"--stop-token", std::to_string(token)});
  }
  const Ended ended = run(words);
  ASSERT_EQ(ended.exit_code, kDone) << to_string(ended);
  const std::vector<std::string> lines = lines_of(ended.out);
  ASSERT_EQ(lines.size(), 60U);
  for (size_t i = 0; i < lines.size(); ++i) {
    const files::json::Value line = files::json::parse(lines[i], "stdout");
    EXPECT_EQ(line.at("sequence").as_int64(), static_cast<int64_t>(i % 3));
    EXPECT_LT(line.at("score").as_double(), 0.0);
    EXPECT_EQ(tokens_of(line.at("tokens")), tokens_of(model.at("beams").at(20 + i / 3).at(i % 3)))
        << "line " << i;
  }
}

TEST_F(Generate, GenerationConfig_SaysWhatNoOptionDoes) {
  const std::string prompts = folder_.write("prompts.jsonl", prompts_of("gpt2", "67", 0, 20));
  const files::json::Value& model = stored().at("models").at("gpt2");
  const std::string folder = folder_ / "model";
  std::filesystem::copy("tests/reference/gpt2", folder);
  const auto answers = [&](const std::string& config, std::vector<std::string> more) {
    folder_.write("model/generation_config.json", config);
    more.insert(more.begin(), {"generate", "--model", folder, "--prompts", prompts});
    return run(more);
  };
  const std::string stop = std::to_string(model.at("stop").at(0).as_int64());
  const std::string config =
      R"({"do_sample": false, "max_new_tokens": 12, "repetition_penalty": 1.5,
          "no_repeat_ngram_size": 2, "num_beams": 1, "top_k": 3, "temperature": null,
          "suppress_tokens": [1], "min_length": 0, "eos_token_id": )" +
      stop + "}";
  const Ended ended = answers(config, {});
  ASSERT_EQ(ended.exit_code, kDone) << to_string(ended);
  EXPECT_THAT(ended.err,
              HasSubstr("model/generation_config.json: max_new_tokens 12, repetition_penalty 1.5, "
                        "no_repeat_ngram_size 2, do_sample false: the most likely token each time, "
                        "suppress_tokens is not followed\n"));
  const std::vector<std::string> lines = lines_of(ended.out);
  ASSERT_EQ(lines.size(), 20U);
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(tokens_of(files::json::parse(lines[i], "stdout").at("tokens")),
              tokens_of(model.at("penalized").at(i)))
        << i;
  }
  const auto tokens_in = [](const Ended& texts) {
    EXPECT_EQ(texts.exit_code, kDone) << to_string(texts);
    return tokens_of(files::json::parse(lines_of(texts.out).at(0), "stdout").at("tokens"));
  };
  EXPECT_EQ(tokens_in(answers(config, {"--tokens", "3", "--stop-token", "66"})).size(), 3U);
  // Drawn as the file says: of the most likely alone.
  const std::vector<int64_t> greedy =
      tokens_in(answers(R"({"do_sample": false, "max_new_tokens": 5})", {}));
  EXPECT_EQ(tokens_in(answers(R"({"do_sample": true, "top_k": 1, "max_new_tokens": 5})", {})),
            greedy);
  // A beam search draws nothing, whatever the file says.
  EXPECT_EQ(answers(R"({"do_sample": true, "top_k": 1})", {"--num-beams", "2"}).exit_code, kDone);
  const Ended damaged = answers(R"({"early_stopping": "soon"})", {});
  EXPECT_EQ(damaged.exit_code, kBadData);
  EXPECT_THAT(damaged.err, HasSubstr("early_stopping: must be true, false or \"never\""));
}

TEST_F(Generate, WhatCannotBeDone_IsSaidBefore) {
  const auto expect = [&](std::vector<std::string> words, int code, const std::string& said) {
    words.insert(words.begin(), "generate");
    const Ended ended = run(words);
    EXPECT_EQ(ended.exit_code, code) << to_string(ended);
    EXPECT_THAT(ended.err, HasSubstr(said));
  };
  const std::string one = folder_.write("one.jsonl", "{\"input_ids\": [3, 4]}\n");
  std::string many = "{\"input_ids\": [3";
  for (int i = 0; i < 32; ++i) many += ", 3";
  const std::string too_long =
      folder_.write("long.jsonl", "{\"input_ids\": [3]}\n" + many + "]}\n");
  expect({"--model", "tests/reference/bert", "--prompts", one}, kConfiguration,
         "is a bert model: an encoder, which reads text and writes none");
  expect({"--model", "tests/reference/gpt2", "--prompts", too_long}, kBadData,
         "prompt 2 has 33 tokens, the model 32 positions");
  expect({"--model", "tests/reference/gpt2", "--prompts", one, "--num-beams", "900000000"},
         kConfiguration, "fewer beams");
  if (why_no_cuda_device().empty()) {
    expect({"--model", "tests/reference/gpt2", "--prompts", one, "--num-beams", "900000000",
            "--device", "cuda"},
           kConfiguration, "fewer beams");
  }
  expect({"--model", "tests/reference/gpt2", "--prompts", one, "--num-beams", "2", "--top-k", "5"},
         kConfiguration, "a beam search (num_beams > 1) draws nothing");
  expect({"--model", "tests/reference/gpt2", "--prompts", one, "--early-stopping", "maybe"},
         kConfiguration, "--early-stopping is true, false or never, not 'maybe'");
  expect({"--model", "tests/reference/gpt2", "--prompts", one, "--typical-p", "2"}, kConfiguration,
         "typical_p must lie in (0, 1]");
  expect({"--model", "tests/reference/gpt2", "--out", folder_ / "x"}, kConfiguration,
         "--out is for the texts of --prompts");
  const std::string outside = folder_.write("outside.jsonl", "{\"input_ids\": [3, 67]}\n");
  expect({"--model", "tests/reference/gpt2", "--prompts", outside}, kBadData,
         "outside.jsonl:1: token 67 at position 1");
  const std::string other = folder_.write("other.jsonl", "{\"question\": \"x\"}\n");
  expect({"--model", "tests/reference/gpt2", "--prompts", other}, kBadData, "no field \"prompt\"");
  expect({"--model", "tests/reference/gpt2", "--prompts", one, "--tokens", "9223372036854775807"},
         kUsage, "--tokens");
  expect({"--model", "tests/reference/gpt2", "--prompts", one, "--stop-token", "67"}, kBadData,
         "--stop-token: token 67");
  const Ended damaged = run({"generate", "--model", "tests/reference/gpt2", "--prompts", other});
  EXPECT_THAT(damaged.err, testing::Not(HasSubstr("--skip-bad")));
}

// Ranks that were started with other words would write other texts.
TEST_F(Generate, RanksOfOtherOptionsOrWeights_AreRefused) {
  const std::string one = folder_.write("one.jsonl", "{\"input_ids\": [3, 4]}\n");
  const std::string other = folder_ / "other";
  std::filesystem::copy("tests/reference/gpt2", other);
  std::fstream weights(other + "/model.safetensors",
                       std::ios::in | std::ios::out | std::ios::binary);
  uint64_t header = 0;
  weights.read(reinterpret_cast<char*>(&header), sizeof header);
  weights.seekp(static_cast<std::streamoff>(sizeof header + header));
  weights.write("\x01\x02", 2);
  weights.close();
  const auto differ = [&](const std::string& model, const std::string& more) {
    const auto start = [&](const std::string& folder, const std::string& words) {
      return "'" + command_path() + "' generate --prompts " + one + " --model " + folder +
             " --tokens 4 --threads 1 " + words;
    };
    const std::string script = folder_.write(
        "start.sh", "case $OMPI_COMM_WORLD_RANK in 0) exec " + start("tests/reference/gpt2", "") +
                        ";; *) exec " + start(model, more) + ";; esac\n");
    return CommandProcess::of_program({"sh", script}, {.ranks = 2}).finish();
  };
  EXPECT_EQ(differ("tests/reference/gpt2", "").exit_code, kDone);
  for (const auto& [model, more] :
       {std::pair<std::string, std::string>{"tests/reference/gpt2", "--temperature 0.5"},
        {"tests/reference/gpt2", "--stop-token 5"},
        {other, ""}}) {
    const Ended ended = differ(model, more);
    EXPECT_EQ(ended.exit_code, kConfiguration) << model << more << to_string(ended);
    EXPECT_THAT(ended.err, HasSubstr("model, prompts and settings of the generation"));
  }
}

// A model of bytes with 64 positions.
class Talk : public Generate {
 protected:
  Talk() {
    std::string model(kTinyGpt2);
    model.replace(model.find("16"), 2, "64");
    folder_.write("model.json", model);
    const Ended ended = run_zinc(folder_.train());
    EXPECT_EQ(ended.exit_code, kDone) << to_string(ended);
    model_ = folder_.out() + "/final";
  }

  std::string model_;
};

TEST_F(Talk, StopStrings_EndTheTextAndAreNotShown) {
  const std::vector<std::string> words{"generate", "--model", model_,    "--prompt", "ab",
                                       "--tokens", "40",      "--top-k", "40"};
  const std::string whole = run(words).out;
  ASSERT_EQ(whole.substr(0, 2), "ab");
  const auto at =
      std::find_if(whole.begin() + 8, whole.end(), [](char c) { return c > ' ' && c < '\x7f'; });
  ASSERT_NE(at, whole.end());
  const std::string stop(1, *at);
  std::vector<std::string> stopped = words;
  stopped.insert(stopped.end(), {"--stop-strings", stop});
  EXPECT_EQ(run(stopped).out, whole.substr(0, whole.find(stop, 2)) + "\n");
}

TEST_F(Talk, Chat_AnswersEachLine_AndForgetsWhatItIsTold) {
  const std::string talk = folder_.write("talk.txt", "ab\ncd\n/reset\nab\n/exit\nab\n");
  const std::string command = "'" + command_path() + "' chat --model " + model_ +
                              " --chat plain --temperature 0 --tokens 6 --stop-strings '\n'"
                              " --threads 1 < " +
                              talk;
  CommandProcess process = CommandProcess::of_program({"sh", "-c", command});
  const Ended ended = process.finish();
  ASSERT_EQ(ended.exit_code, kDone) << to_string(ended);
  const std::vector<std::string> lines = lines_of(ended.out);
  ASSERT_EQ(lines.size(), 3U) << ended.out;
  EXPECT_EQ(lines[0], lines[2]);
  const Ended first = run({"generate", "--model", model_, "--prompt", "ab\n", "--temperature", "0",
                           "--tokens", "6", "--stop-strings", "\n"});
  EXPECT_EQ("ab\n" + lines[0] + "\n", first.out);
  // The second question stands behind the first one and its answer.
  const std::string before = "ab\n" + lines[0] + "\ncd\n";
  const Ended second = run({"generate", "--model", model_, "--prompt", before, "--temperature", "0",
                            "--tokens", "6", "--stop-strings", "\n"});
  EXPECT_EQ(before + lines[1] + "\n", second.out);
}

TEST_F(Talk, Chat_ForgetsWhatTheModelDoesNotSee) {
  const auto chat = [&](const std::string& lines, const std::string& more) {
    const std::string talk = folder_.write("talk.txt", lines);
    const std::string command = "'" + command_path() + "' chat --model " + model_ +
                                " --chat plain --temperature 0 --tokens 4 --threads 1 " + more +
                                " < " + talk;
    return CommandProcess::of_program({"sh", "-c", command}).finish();
  };
  const Ended kept = chat("ab\ncd\n", "");
  EXPECT_THAT(kept.err, testing::Not(HasSubstr("forgotten")));
  const Ended forgotten = chat("ab\ncd\n", "--context 10");
  EXPECT_EQ(forgotten.exit_code, kDone) << to_string(forgotten);
  EXPECT_THAT(forgotten.err, HasSubstr("than the 10 tokens that the model sees"));
  const std::string message(70, 'a');
  const Ended too_long = chat(message + "\n", "");
  EXPECT_EQ(too_long.exit_code, kBadData) << to_string(too_long);
  EXPECT_THAT(too_long.err, HasSubstr("by --context 64"));
  EXPECT_EQ(chat(message + "\n", "--context 64").exit_code, kDone);
  EXPECT_THAT(chat("ab\n", "--system " + message).err, HasSubstr("behind the text of --system"));
  const Ended beams = chat("ab\n", "--num-beams 900000000");
  EXPECT_EQ(beams.exit_code, kConfiguration) << to_string(beams);
  EXPECT_THAT(beams.err, HasSubstr("fewer beams"));
}

TEST_F(Talk, ChatWithoutAFormat_AsksForIt) {
  const Ended ended = run({"chat", "--model", model_});
  EXPECT_EQ(ended.exit_code, kConfiguration) << to_string(ended);
  EXPECT_THAT(ended.err, HasSubstr("name the one that the model was trained on by --chat"));
}

}  // namespace generate_test
}  // namespace zinc::apps
