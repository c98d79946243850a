// A run that was killed at any instant goes on with the bits of one that was not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <poll.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/crc32c.h"
#include "core/exit_codes.h"
#include "files/file_descriptor.h"
#include "files/json/parser.h"
#include "files/json/writer.h"
#include "tests/apps/command_process.h"
#include "tests/apps/training_folder.h"
#include "tests/train/event_file.h"
#include "train/trace/trace_summary.h"

namespace zinc::apps {
namespace resume_test {

using files::read_whole_file;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr int64_t kSteps = 60;

// Dropout, a schedule, fp16 with a scale that overflows at first, and evaluations on the way.
constexpr const char* kConfig = R"({"train_micro_batch_size_per_gpu": 2,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 20}},
  "fp16": {"enabled": true, "initial_scale_power": 30, "loss_scale_window": 7},
  "zero_optimization": {"stage": 2}, "gradient_clipping": 0.5, "steps_per_print": 1})";
constexpr const char* kModel = R"({"model_type": "gpt2", "vocab_size": 256, "n_positions": 16,
  "n_embd": 32, "n_layer": 2, "n_head": 2, "resid_pdrop": 0.1, "attn_pdrop": 0.1, "embd_pdrop": 0.1})";

class Resume : public testing::Test {
 protected:
  Resume() {
    folder_.write("ds.json", kConfig);
    folder_.write("model.json", kModel);
  }

  std::vector<std::string> train(const std::string& out, std::vector<std::string> more = {}) const {
    std::vector<std::string> changes{"--steps", std::to_string(kSteps), "--eval-every", "15",
                                     "--out",   folder_ / out};
    if (std::ranges::find(more, "--save-every") == more.end()) {
      changes.insert(changes.end(), {"--save-every", "5"});
    }
    changes.insert(changes.end(), more.begin(), more.end());
    return folder_.train(changes);
  }

  // A run of kSteps steps, saved every four.
  std::vector<std::string> train_with_best(std::vector<std::string> more) const {
    more.insert(more.end(), {"--steps", std::to_string(kSteps), "--save-every", "4"});
    return folder_.train(more);
  }

  // The result of a run: figures of its steps but for times, and a checksum of its weights.
  std::string result(const std::string& out) const {
    std::string text;
    const std::string lines = read_whole_file(folder_ / out + "/metrics.jsonl");
    for (size_t begin = 0, end = 0; (end = lines.find('\n', begin)) != std::string::npos;
         begin = end + 1) {
      const auto line = files::json::parse(lines.substr(begin, end - begin), "metrics.jsonl");
      for (const char* key : {"step", "loss", "lr", "grad_norm", "loss_scale", "skipped"}) {
        const auto* value = line.find(key);  // none of a step 0
        text += key + (" " + (value != nullptr ? files::json::write(*value) : "")) + ' ';
      }
      if (const auto* val = line.find("val_loss")) text += files::json::write(*val);
      text += '\n';
    }
    const std::string weights = read_whole_file(folder_ / out + "/final/model.safetensors");
    return text + "weights " + std::to_string(crc32c(std::as_bytes(std::span(weights))));
  }

  TrainingFolder folder_;
};

// The processes that this one has to wait for: its children, and their children.
std::vector<pid_t> descendants(pid_t of) {
  std::vector<pid_t> found;
  std::ifstream children("/proc/" + std::to_string(of) + "/task/" + std::to_string(of) +
                         "/children");
  for (pid_t child = 0; children >> child;) {
    found.push_back(child);
    for (const pid_t further : descendants(child)) found.push_back(further);
  }
  return found;
}

// Ranks outlive a killed mpirun by some seconds, and become this process's own.
void wait_for_orphans() {
  while (::waitpid(-1, nullptr, 0) > 0 || errno == EINTR) {
  }
}

using Start = std::function<const CommandProcess&()>;

// Kills a run again and again until one gets to its end. `until` calls start(), which begins the
// run, and returns when the run is to be killed. For a run on several ranks it kills mpirun, all
// processes at once, or one process. Returns how often it was killed.
int kill_until_done(const std::vector<std::string>& command, int ranks, int most,
                    std::mt19937& random, const std::function<void(const Start& start)>& until) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  for (int kills = 0; kills < most; ++kills) {
    std::optional<CommandProcess> process;
    until([&]() -> const CommandProcess& {
      return process.emplace(command, CommandOptions{.ranks = ranks});
    });
    const std::vector<pid_t> all = descendants(::getpid());
    const auto kind = ranks == 1 ? 0 : random() % 3;
    if (kind == 1) {
      for (const pid_t one : all) ::kill(one, SIGKILL);
    } else if (kind == 2) {
      ::kill(all[random() % all.size()], SIGKILL);
    } else {
      process->send(SIGKILL);
    }
    const Ended ended = process->finish();
    wait_for_orphans();
    if (ended.signal != SIGKILL && ended.exit_code == 0) return kills;
  }
  const Ended ended = run_zinc(command, {.ranks = ranks});
  EXPECT_EQ(ended.exit_code, 0) << to_string(ended);
  return most;
}

// Kills the command at random instants.
int kill_until_done(const std::vector<std::string>& command, int ranks, int most,
                    std::mt19937& random) {
  const int longest = ranks == 1 ? 250 : 1200;
  return kill_until_done(command, ranks, most, random, [&](const Start& start) {
    start();
    const int wait = std::uniform_int_distribution(0, longest)(random);
    std::this_thread::sleep_for(std::chrono::milliseconds(wait));
  });
}

// Waits for names that come, go and change in a folder.
class FolderWatch {
 public:
  // Watches the folder from its construction on.
  explicit FolderWatch(const std::string& folder) : fd_(::inotify_init1(IN_CLOEXEC)) {
    constexpr uint32_t kChanges = IN_CREATE | IN_MOVE | IN_DELETE | IN_MODIFY;
    EXPECT_GE(::inotify_add_watch(fd_.get(), folder.c_str(), kChanges), 0) << folder;
  }
  // Waits for the next change of a name that has `text` in it, or the end of `process`. A limit of
  // 100 seconds only ends a hang.
  void wait_for(const std::string& text, const CommandProcess& process) {
    const auto latest = std::chrono::steady_clock::now() + std::chrono::seconds(100);
    while (process.is_running() && std::chrono::steady_clock::now() < latest) {
      alignas(inotify_event) std::array<char, 8192> events{};
      pollfd ready{fd_.get(), POLLIN, 0};
      if (::poll(&ready, 1, 10) <= 0) continue;
      const ssize_t size = ::read(fd_.get(), events.data(), events.size());
      for (ssize_t at = 0; at < size;) {
        const auto* event = reinterpret_cast<const inotify_event*>(events.data() + at);
        if (event->len > 0 && std::string(event->name).find(text) != std::string::npos) return;
        at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
      }
    }
  }

 private:
  files::FileDescriptor fd_;
};

TEST_F(Resume, AfterKillsAtRandom_HasTheBitsOfARunThatWasNotKilled) {
  ASSERT_EQ(run_zinc(train("whole")).exit_code, 0);
  const std::string whole = result("whole");
  std::mt19937 random(5);
  int kills = 0;
  for (int run = 0; kills < 12; ++run) {
    const std::string out = "killed" + std::to_string(run);
    kills += kill_until_done(train(out, {"--resume", "auto"}), 1, 6, random);
    EXPECT_EQ(result(out), whole) << "run " << run;
    EXPECT_THAT(folder_.unfinished(), IsEmpty());
  }
}

// Just as a save, its commit, a prune or what comes first in a resumed run has begun.
TEST_F(Resume, AfterKillsInTheMidstOfASaveAPruneAndAResume_HasTheBits) {
  ASSERT_EQ(run_zinc(train("whole")).exit_code, 0);
  const std::string whole = result("whole");
  std::mt19937 random(8);
  const std::string run = folder_ / "killed";
  for (const auto& [folder, name] :
       std::vector<std::pair<std::string, std::string>>{{"/checkpoints", ".tmp-"},
                                                        {"/checkpoints", "step-0000"},
                                                        {"/checkpoints", ".trash-"},
                                                        {"", "metrics.jsonl"},
                                                        {"", "config.resolved.json"}}) {
    const auto command = train("killed", {"--resume", "auto"});
    int kills = 0;
    // If this machine stands still, a run may get to its end before it is killed: then once more.
    for (int attempt = 0; attempt < 20 && kills == 0; ++attempt) {
      std::filesystem::remove_all(run);
      {
        // From here on there is a checkpoint, and the watched folders stay.
        CommandProcess first(command);
        ASSERT_TRUE(first.wait_for_output(" 20/60 |"));
        first.send(SIGKILL);
        first.finish();
      }
      kills = kill_until_done(command, 1, 4, random, [&](const Start& start) {
        FolderWatch watch(run + folder);
        watch.wait_for(name, start());
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
      });
    }
    EXPECT_GT(kills, 0) << name;
    EXPECT_EQ(result("killed"), whole) << name;
    EXPECT_THAT(folder_.unfinished(), IsEmpty());
  }
}

// The count of evaluations, which decides the best model and the end of the run, continues too.
// Greater is better: the first is the best, and the run stops early.
TEST_F(Resume, AfterKillsAtRandom_HasTheSameBestModelAndStopsAtTheSameStep) {
  const std::vector<std::string> options = {"--eval-every",
                                            "3",
                                            "--eval-on-start",
                                            "--greater-is-better",
                                            "true",
                                            "--early-stopping-patience",
                                            "9",
                                            "--load-best-model-at-end"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), options.begin(), options.end());
    return train_with_best(more);
  };
  const Ended ended = run_zinc(with({"--out", folder_ / "whole"}));
  ASSERT_EQ(ended.exit_code, 0) << to_string(ended);
  EXPECT_THAT(ended.out, HasSubstr("stopped early: 9 evaluations"));
  const std::string whole = result("whole");
  const auto best = read_whole_file(folder_ / "whole/best.json");
  std::mt19937 random(9);
  int kills = 0;
  for (int run = 0; kills < 6; ++run) {
    const std::string out = "killed" + std::to_string(run);
    kills += kill_until_done(with({"--out", folder_ / out, "--resume", "auto"}), 1, 6, random);
    EXPECT_EQ(result(out), whole) << "run " << run;
    EXPECT_EQ(read_whole_file(folder_ / out + "/best.json"), best);
    // Once more, from the end: it stays.
    const Ended again = run_zinc(with({"--out", folder_ / out, "--resume", "auto"}));
    EXPECT_THAT(again.out, HasSubstr("stopped early: 9 evaluations"));
    EXPECT_EQ(result(out), whole) << "run " << run;
  }
}

TEST_F(Resume, ARunThatWasToldToStop_SaysHowItGoesOn) {
  ASSERT_EQ(run_zinc(train("whole")).exit_code, 0);
  Ended ended;
  // If this machine stands still, the run may get to its end before the signal: then once more.
  for (int attempt = 0; attempt < 20; ++attempt) {
    CommandProcess process(train("stopped", {"--save-every", "0", "--force"}));
    ASSERT_TRUE(process.wait_for_output(" 7/60 |"));
    process.send(SIGTERM);
    ended = process.finish();
    if (ended.exit_code != kDone) break;
  }
  EXPECT_EQ(ended.exit_code, kPreempted) << to_string(ended);
  const size_t at = ended.out.find("this goes on: zinc ");
  ASSERT_NE(at, std::string::npos) << ended.out;
  const std::string line =
      "'" + command_path() + "' " + ended.out.substr(at + 19, ended.out.find('\n', at) - at - 19);
  EXPECT_THAT(line, HasSubstr(" --resume auto"));
  const Ended further = CommandProcess::of_program({"sh", "-c", line}).finish();
  EXPECT_EQ(further.exit_code, 0) << line << to_string(further);
  EXPECT_THAT(further.out, HasSubstr("goes on from "));
  EXPECT_EQ(result("stopped"), result("whole"));
}

// Each start leaves the traces of earlier starts in place.
TEST_F(Resume, ARunThatGoesOn_HasATraceOfItsOwn) {
  folder_.write("ds.json", R"({"train_micro_batch_size_per_gpu": 2, "zinc": {"trace": ")" +
                               folder_.out() + R"(/trace.json"}})");
  const auto steps_in = [&](const std::string& name) {
    std::vector<int64_t> steps;
    for (const auto& step : train::summarize_trace(folder_.out() + '/' + name).steps) {
      steps.push_back(step.step);
    }
    return steps;
  };
  ASSERT_EQ(run_zinc(folder_.train({"--steps", "3", "--save-every", "2"})).exit_code, 0);
  const std::string first = read_whole_file(folder_.out() + "/trace.json");
  const std::string from = folder_.out() + "/checkpoints/step-000002";
  for (const std::string name : {"trace.from-step-000002.json", "trace.from-step-000002-2.json"}) {
    const Ended ended =
        run_zinc(folder_.train({"--steps", "4", "--save-every", "9", "--resume", from}));
    ASSERT_EQ(ended.exit_code, 0) << to_string(ended);
    EXPECT_THAT(ended.out, HasSubstr("the trace from here on is " + folder_.out() + '/' + name));
    EXPECT_THAT(steps_in(name), ElementsAre(3, 4));
  }
  EXPECT_EQ(read_whole_file(folder_.out() + "/trace.json"), first);
  EXPECT_THAT(steps_in("trace.json"), ElementsAre(1, 2, 3));
}

TEST_F(Resume, KeepsTheNewest_AndSavesByTheClock) {
  folder_.write("ds.json", R"({"train_micro_batch_size_per_gpu": 2, "zinc": {"checkpoint":
                {"every": 4, "keep": 2, "minutes": 1e-9}}})");
  ASSERT_EQ(run_zinc(folder_.train({"--steps", "9"})).exit_code, 0);
  EXPECT_THAT(files::names_in(folder_.out() + "/checkpoints"),
              ElementsAre("step-000008", "step-000009"));
}

TEST_F(Resume, RefusesWhatItCannotGoOnFrom) {
  const auto refused = [&](const std::vector<std::string>& command, ExitCode code) {
    const Ended ended = run_zinc(command);
    EXPECT_EQ(ended.exit_code, code) << to_string(ended);
    return ended.err;
  };
  EXPECT_THAT(refused(train("a", {"--resume", folder_ / "nothing"}), kBadData),
              HasSubstr("there is no checkpoint"));
  ASSERT_EQ(run_zinc(train("a", {"--steps", "25"})).exit_code, 0);
  EXPECT_THAT(refused(train("a", {"--resume", "auto", "--seed", "7"}), kConfiguration),
              HasSubstr("--seed 1234"));
  const std::string text = folder_.write("other.txt", std::string(4000, 'x'));
  EXPECT_THAT(refused(train("a", {"--resume", "auto", "--data", text}), kConfiguration),
              AllOf(HasSubstr("data"), HasSubstr("--init")));
  folder_.write("model.json", std::string(kTinyGpt2));
  EXPECT_THAT(refused(train("a", {"--resume", "auto"}), kConfiguration), HasSubstr("model"));
  folder_.write("model.json", kModel);
  // Weights that somebody may want, and nothing to go on from.
  std::filesystem::remove_all(folder_ / "a/checkpoints");
  EXPECT_THAT(refused(train("a", {"--resume", "auto"}), kBadData), HasSubstr("--force"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "a/final/model.safetensors"));
}

// An epoch of 21 records, two steps of which had batches of 4.
TEST_F(Resume, OtherBatches_GoOnAtTheNextSampleAndEndWithTheEpoch) {
  std::string records;
  for (int i = 0; i < 21; ++i) records += "{\"text\": \"abc" + std::to_string(i) + "\"}\n";
  const std::string file = folder_.write("a.jsonl", records);
  const auto run = [&](const std::string& out, const std::string& batch,
                       const std::vector<std::string>& length,
                       const std::vector<std::string>& flags) {
    std::vector<std::string> words = folder_.train({"--data", file, "--validation", file, "--batch",
                                                    batch, "--force", "--out", folder_ / out});
    std::ranges::copy(length, std::ranges::find(words, "--steps"));
    words.insert(words.end(), flags.begin(), flags.end());
    const Ended ended = run_zinc(words);
    ASSERT_EQ(ended.exit_code, 0) << to_string(ended);
  };
  const auto last_step = [&](const std::string& out) {
    const std::string lines = read_whole_file(folder_ / out + "/metrics.jsonl");
    const size_t begin = lines.rfind('\n', lines.size() - 2);
    return files::json::parse(lines.substr(begin == std::string::npos ? 0 : begin + 1), "a line")
        .at("step")
        .as_int64();
  };
  folder_.write("ds.json", R"({"train_micro_batch_size_per_gpu": "auto"})");
  run("a", "4", {"--steps", "2"}, {"--save-every", "2"});
  const std::string from = folder_ / "a/checkpoints/step-000002";
  run("b", "1", {"--epochs", "1"}, {"--resume", from});
  EXPECT_EQ(last_step("b"), 2 + 13);
  run("b", "8", {"--epochs", "1"}, {"--resume", from});
  EXPECT_EQ(last_step("b"), 2 + 2);
  run("b", "1", {"--steps", "5"}, {"--resume", from});
  EXPECT_EQ(last_step("b"), 5);
  run("b", "3", {"--steps", "5"}, {"--resume", from});
  EXPECT_EQ(last_step("b"), 5);
}

// A run continues from another run's checkpoint, in a separate folder.
TEST_F(Resume, FromAnotherRun_LeavesThatAsItWas) {
  ASSERT_EQ(run_zinc(train("whole")).exit_code, 0);
  const auto names = files::names_in(folder_ / "whole/checkpoints");
  const Ended ended =
      run_zinc(train("branch", {"--resume", folder_ / "whole/checkpoints/step-000055"}));
  ASSERT_EQ(ended.exit_code, 0) << to_string(ended);
  EXPECT_EQ(files::names_in(folder_ / "whole/checkpoints"), names);
  EXPECT_EQ(read_whole_file(folder_ / "branch/final/model.safetensors"),
            read_whole_file(folder_ / "whole/final/model.safetensors"));
}

// The first evaluation is the best of these runs, and its weights come along.
TEST_F(Resume, FromAnotherRun_TakesItsBestModel) {
  const auto run = [&](const std::string& out, std::vector<std::string> more) {
    more.insert(more.end(), {"--eval-every", "4", "--greater-is-better", "true", "--out",
                             folder_ / out, "--load-best-model-at-end"});
    const Ended ended = run_zinc(train_with_best(more));
    EXPECT_EQ(ended.exit_code, 0) << to_string(ended);
    return ended.out + ended.err;
  };
  const auto best_of = [&](const std::string& out) {
    return read_whole_file(folder_ / out + "/best.json") +
           read_whole_file(folder_ / out + "/best/model.safetensors");
  };
  run("whole", {});
  const std::string resume = folder_ / "whole/checkpoints/step-000056";
  run("branch", {"--resume", resume});
  EXPECT_EQ(best_of("branch"), best_of("whole"));
  EXPECT_EQ(read_whole_file(folder_ / "branch/final/model.safetensors"),
            read_whole_file(folder_ / "whole/final/model.safetensors"));
  // Figures of other samples are not compared, nor those of which the weights are gone.
  EXPECT_THAT(run("samples", {"--resume", resume, "--eval-batches", "1"}),
              HasSubstr("the best model is found anew: it was that of the greatest loss over"));
  EXPECT_NE(best_of("samples"), best_of("whole"));
  std::filesystem::remove_all(folder_ / "whole/best");
  EXPECT_THAT(run("anew", {"--resume", resume}), HasSubstr("the best model is found anew"));
  EXPECT_NE(read_whole_file(folder_ / "anew/best.json"),
            read_whole_file(folder_ / "whole/best.json"));
}

// A file that cannot grow is a full disk: the run goes on with what it has, unless it must not.
TEST_F(Resume, ACheckpointThatCannotBeSaved_IsANote_OrTheEnd) {
  folder_.write("ds.json", R"({"train_micro_batch_size_per_gpu": 2})");
  const CommandOptions small{.largest_file = 150'000};  // the weights fit, the states do not
  const Ended ended = run_zinc(train("a", {"--steps", "10"}), small);
  EXPECT_EQ(ended.exit_code, 0) << to_string(ended);
  EXPECT_THAT(ended.out, HasSubstr("note: no checkpoint: "));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "a/final/model.safetensors"));
  EXPECT_THAT(files::names_in(folder_ / "a/checkpoints"), IsEmpty());
  folder_.write("ds.json", R"({"train_micro_batch_size_per_gpu": 2,
                               "zinc": {"checkpoint": {"required": true}}})");
  const Ended required = run_zinc(train("b", {"--steps", "10"}), small);
  EXPECT_EQ(required.exit_code, kIo) << to_string(required);
}

TEST_F(Resume, BestWeightsThatCannotBeSaved_AreANote_OrTheEnd) {
  const auto ended = [&](const std::string& out, bool required) {
    folder_.write("ds.json", str(R"({"train_micro_batch_size_per_gpu": 2,
                                     "zinc": {"checkpoint": {"required": )",
                                 required ? "true" : "false", "}}}"));
    return run_zinc(train_with_best({"--out", folder_ / out, "--eval-every", "2"}),
                    {.largest_file = 20'000});
  };
  const Ended goes_on = ended("a", false);
  EXPECT_THAT(goes_on.out, HasSubstr("note: the best weights so far, of step 2, are not saved: "));
  EXPECT_EQ(goes_on.exit_code, kIo) << to_string(goes_on);  // for final/
  EXPECT_THAT(goes_on.err, HasSubstr("final"));
  const Ended ends = ended("b", true);
  EXPECT_EQ(ends.exit_code, kIo) << to_string(ends);
  EXPECT_THAT(ends.err, HasSubstr("best"));
}

// --- figures

using Curve = std::vector<std::pair<int64_t, float>>;  // step and value

// The curves as TensorBoard shows them: of all files, and without what a restart takes back.
std::map<std::string, Curve> tensorboard_curves(const std::string& folder) {
  std::map<double, std::vector<train::Event>> files;  // by the time at which they begin
  for (const std::string& name : files::names_in(folder)) {
    if (!name.starts_with("events.out.tfevents.")) continue;
    std::vector<train::Event> events = train::read_events(folder + '/' + name);
    files[events.at(0).wall_time] = std::move(events);
  }
  std::map<std::string, Curve> curves;
  for (const auto& [begin, events] : files) {
    for (const train::Event& event : events) {
      if (event.restarts) {
        for (auto& [tag, curve] : curves) {
          std::erase_if(curve, [&](const auto& point) { return point.first >= event.step; });
        }
      } else if (!event.tag.empty() && !event.is_text &&
                 !event.tag.ends_with("tokens_per_second")) {
        curves[event.tag].emplace_back(event.step, event.value);
      }
    }
  }
  return curves;
}

// Rows of a table without the columns that are of a process: times, and its peaks of memory.
std::string rows_of_training(const std::string& path) {
  std::istringstream lines(read_whole_file(path));
  std::string rows, line;
  std::vector<std::string> head;
  while (std::getline(lines, line)) {
    std::vector<std::string> cells;
    std::istringstream row(line);
    for (std::string cell; std::getline(row, cell, ',');) cells.push_back(cell);
    if (head.empty()) head = cells;
    for (size_t i = 0; i < cells.size(); ++i) {
      const std::string& name = head.at(i);
      const bool is_of_the_process = name.starts_with("seconds") ||
                                     name.starts_with("tokens_per") ||
                                     name.starts_with("peak_bytes");
      if (!is_of_the_process) rows += cells[i] + ',';
    }
    rows += '\n';
  }
  return rows;
}

// Tables, samples of text and TensorBoard's events are complete, as metrics.jsonl is: nothing
// twice, nothing missing.
TEST_F(Resume, AfterKills_FiguresOfEveryKindAreThoseOfTheWholeRun) {
  const auto config_of = [&](const std::string& out) {
    return folder_.write(out + ".json", R"({"train_micro_batch_size_per_gpu": 2,
        "csv_monitor": {"enabled": true, "output_path": ")" +
                                            folder_ / out + R"(", "job_name": "csv"}})");
  };
  const auto with = [&](const std::string& out, std::vector<std::string> more) {
    more.insert(more.end(), {"--config", config_of(out), "--sample-every", "12"});
    return train(out, more);
  };
  ASSERT_EQ(run_zinc(with("whole", {})).exit_code, 0);
  std::mt19937 random(12);
  const auto resumed = with("killed", {"--resume", "auto"});
  EXPECT_GT(kill_until_done(resumed, 1, 6, random), 0);
  EXPECT_EQ(result("killed"), result("whole"));
  const std::string samples = read_whole_file(folder_ / "whole/samples.txt");
  EXPECT_THAT(samples, AllOf(HasSubstr("--- step 12\n"), HasSubstr("--- step 60\n")));
  EXPECT_EQ(read_whole_file(folder_ / "killed/samples.txt"), samples);
  EXPECT_EQ(rows_of_training(folder_ / "killed/metrics.csv"),
            rows_of_training(folder_ / "whole/metrics.csv"));
  const auto curves = tensorboard_curves(folder_ / "whole");
  EXPECT_EQ(curves.at("Train/Samples/train_loss").size(), static_cast<size_t>(kSteps));
  EXPECT_EQ(tensorboard_curves(folder_ / "killed"), curves);
  for (const std::string& name : files::names_in(folder_ / "whole/csv")) {
    if (name.find("tokens_per_second") != std::string::npos) continue;
    EXPECT_EQ(read_whole_file(folder_ / "killed/csv/" + name),
              read_whole_file(folder_ / "whole/csv/" + name))
        << name;
  }
}

TEST_F(Resume, OnRanks_AfterKillsAtRandom_HasTheBits) {
  if (!have_mpirun()) GTEST_SKIP() << "built without MPI";
  ASSERT_EQ(run_zinc(train("whole"), {.ranks = 2}).exit_code, 0);
  std::mt19937 random(6);
  kill_until_done(train("killed", {"--resume", "auto"}), 2, 3, random);
  EXPECT_EQ(result("killed"), result("whole"));
}

class ResumeSlow : public Resume {};

// Two hundred kills, of one rank and of three.
TEST_F(ResumeSlow, TwoHundredKills_EndWithTheBits) {
  if (!have_mpirun()) GTEST_SKIP() << "built without MPI";
  std::mt19937 random(7);
  int kills = 0;
  for (const int ranks : {1, 3}) {
    const std::string reference = "whole" + std::to_string(ranks);
    ASSERT_EQ(run_zinc(train(reference), {.ranks = ranks}).exit_code, 0);
    const std::string whole = result(reference);
    for (int run = 0, here = 0; here < 100; ++run) {
      const std::string out = "killed" + std::to_string(ranks) + "-" + std::to_string(run);
      const int killed = kill_until_done(train(out, {"--resume", "auto"}), ranks, 6, random);
      here += killed;
      kills += killed;
      ASSERT_EQ(result(out), whole) << ranks << " ranks, run " << run;
    }
  }
  EXPECT_GE(kills, 200);
}

// --- zinc checkpoint

TEST_F(Resume, TheVerbs_ListVerifyDiffExportAndPrune) {
  folder_.write("ds.json", R"({"train_micro_batch_size_per_gpu": 2})");
  ASSERT_EQ(run_zinc(train("a", {"--steps", "15"})).exit_code, 0);
  const std::string run = folder_ / "a";
  const auto done = [](const std::vector<std::string>& words, ExitCode code = kDone) {
    const Ended ended = run_zinc(words);
    EXPECT_EQ(ended.exit_code, code) << to_string(ended);
    return ended.out;
  };
  const auto list = files::json::parse(done({"checkpoint", "list", run, "--json"}), "list");
  ASSERT_EQ(list.size(), 3U);
  EXPECT_EQ(list.at(0).at("step").as_int64(), 15);
  EXPECT_THAT(done({"checkpoint", "verify", run}), HasSubstr("every byte is as written"));
  const std::string newest = run + "/checkpoints/step-000015";
  EXPECT_THAT(done({"checkpoint", "diff", newest, newest}), HasSubstr("equal: "));
  EXPECT_THAT(done({"checkpoint", "diff", run + "/checkpoints/step-000010", newest}, kRegression),
              AllOf(HasSubstr("steps: 10 and 15"), HasSubstr("weights of transformer.wte.weight")));
  done({"checkpoint", "export", newest, folder_ / "weights"});
  EXPECT_EQ(read_whole_file(folder_ / "weights/model.safetensors"),
            read_whole_file(run + "/final/model.safetensors"));
  done({"checkpoint", "export", newest, folder_ / "wide", "--dtype", "f32"});
  done({"generate", "--model", folder_ / "wide", "--tokens", "2"});
  const auto json_of = [&](std::vector<std::string> words, ExitCode code = kDone) {
    words.insert(words.begin(), "checkpoint");
    words.emplace_back("--json");
    return files::json::parse(done(words, code), words[1]);
  };
  EXPECT_TRUE(json_of({"verify", run}).at(2).at("whole").as_bool());
  EXPECT_TRUE(json_of({"diff", newest, newest}).at("equal").as_bool());
  const auto differs = json_of({"diff", run + "/checkpoints/step-000010", newest}, kRegression);
  EXPECT_GT(differs.at("values").at(0).at("differing").as_int64(), 0);
  EXPECT_EQ(json_of({"export", newest, folder_ / "again"}).at("to").as_string(), folder_ / "again");
  EXPECT_EQ(json_of({"prune", run, "--keep", "2"}).at("deleted").at(0).as_string(),
            run + "/checkpoints/step-000005");
  done({"checkpoint", "prune", run, "--keep", "1"});
  EXPECT_THAT(files::names_in(run + "/checkpoints"), ElementsAre("step-000015"));
  const auto converted = json_of({"convert", "tests/reference/deepspeed/stage2",
                                  folder_ / "converted", "--from", "deepspeed"});
  EXPECT_EQ(converted.at("to").as_string(), folder_ / "converted/step-000003");
  EXPECT_GT(converted.at("parameters").as_int64(), 0);
  EXPECT_TRUE(json_of({"verify", folder_ / "converted"}).at(0).at("whole").as_bool());
  // Texts beside the states are looked at by who exports, too.
  const std::string resolved = newest + "/config.resolved.json";
  const std::string text = read_whole_file(resolved);
  folder_.write("a/checkpoints/step-000015/config.resolved.json", text + " ");
  EXPECT_THAT(run_zinc({"checkpoint", "export", newest, folder_ / "damaged"}).err,
              HasSubstr("config.resolved.json"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "damaged"));
  folder_.write("a/checkpoints/step-000015/config.resolved.json", text);
  const std::string path = newest + "/state-00000-of-00001.safetensors";
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  EXPECT_THAT(done({"checkpoint", "verify", run}, kBadData), HasSubstr("damaged"));
  EXPECT_THAT(done({"checkpoint", "verify", folder_ / "nothing"}, kBadData), IsEmpty());
}

}  // namespace resume_test
}  // namespace zinc::apps
