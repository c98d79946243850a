#include "apps/launch/launch_grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/files/scratch_folder.h"

namespace zinc::apps {
namespace launch_grammar_test {

using testing::HasSubstr;

const std::vector<HostSlots> kHosts = {
    {"one", {0, 1, 2, 3}}, {"two", {0, 1, 2, 3}}, {"three", {0}}};

std::string problem_of(const std::string& hostfile) {
  return files::message_of<ConfigError>([&] { parse_hostfile(hostfile, "hosts"); });
}

std::string problem_of(const HostSelection& selection) {
  return files::message_of<ConfigError>([&] { select_slots(kHosts, selection); });
}

TEST(Hostfile, NamesHostsInOrder) {
  EXPECT_EQ(
      parse_hostfile("# all\n\none slots=4\n  two\tslots=4 # fast\r\nthree   slots=1", "hosts"),
      kHosts);
}

// Files of Windows editors, and mpirun's own.
TEST(Hostfile, ByteOrderMarkAndMaxSlots_DoNotCount) {
  EXPECT_EQ(parse_hostfile("\xef\xbb\xbfone slots=2 max_slots=4\ntwo slots=1 max_slots=1", "hosts"),
            (std::vector<HostSlots>{{"one", {0, 1}}, {"two", {0}}}));
  EXPECT_THAT(problem_of("one slots=4 max_slots=2"), HasSubstr("a number from 4"));
  EXPECT_THAT(problem_of("one slots=4 max_slots=x"), HasSubstr("max_slots must be a number"));
}

TEST(Hostfile, EveryBadLineIsNamed) {
  EXPECT_EQ(problem_of("one slots=4\ntwo 4\n"), "hosts:2: 'two 4' is not of the form NAME slots=K");
  EXPECT_THAT(problem_of("one"), HasSubstr("hosts:1: 'one' is not of the form"));
  EXPECT_THAT(problem_of("slots=4"), HasSubstr("hosts:1: 'slots=4' is not of the form"));
  EXPECT_THAT(problem_of("one slots=4 slots=5"), HasSubstr("is not of the form"));
  EXPECT_THAT(problem_of("one slots=0"), HasSubstr("must be in [1, 4096]"));
  EXPECT_THAT(problem_of("one slots=-1"), HasSubstr("must be in [1, 4096]"));
  EXPECT_THAT(problem_of("one slots=4x"), HasSubstr("must be in [1, 4096]"));
  EXPECT_THAT(problem_of("one slots=99999999999999999999"), HasSubstr("must be in [1, 4096]"));
  EXPECT_THAT(problem_of("one,two slots=4"), HasSubstr("hosts:1"));
  EXPECT_THAT(problem_of("--host slots=4"), HasSubstr("hosts:1"));
  EXPECT_EQ(problem_of("one slots=4\n\none slots=2"), "hosts:3: host 'one' is there already");
  EXPECT_EQ(problem_of("# nobody\n\n"), "hosts: no host is named");
}

TEST(Selection, IncludeTakesWhatItNamesInTheHostfilesOrder) {
  EXPECT_EQ(select_slots(kHosts, {}), kHosts);
  const std::vector<HostSlots> expected = {{"one", {1, 3}}, {"three", {0}}};
  EXPECT_EQ(select_slots(kHosts, {.include = "three@one:3,1"}), expected);
}

TEST(Selection, ExcludeTakesTheRest) {
  const std::vector<HostSlots> expected = {{"one", {0, 2}}, {"three", {0}}};
  EXPECT_EQ(select_slots(kHosts, {.exclude = "one:1,3@two"}), expected);
  const std::vector<HostSlots> two = {{"one", {0, 1, 2, 3}}, {"two", {0, 1, 2, 3}}};
  EXPECT_EQ(select_slots(kHosts, {.exclude = "three:0"}), two);
}

TEST(Selection, CountsTakeTheFirst) {
  const std::vector<HostSlots> expected = {{"one", {0, 1}}, {"two", {0, 1}}};
  EXPECT_EQ(select_slots(kHosts, {.num_nodes = 2, .num_gpus = 2}), expected);
}

TEST(Selection, EveryMisuseIsNamed) {
  EXPECT_THAT(problem_of(HostSelection{.include = "one", .exclude = "two"}),
              HasSubstr("--include and --exclude cannot be used together"));
  EXPECT_THAT(problem_of(HostSelection{.include = "one", .num_gpus = 1}),
              HasSubstr("cannot be used together with --include"));
  EXPECT_THAT(problem_of(HostSelection{.exclude = "one", .num_nodes = 1}),
              HasSubstr("cannot be used together with --include or --exclude"));
  EXPECT_THAT(problem_of(HostSelection{.include = "thre"}),
              HasSubstr("--include: there is no host 'thre'; did you mean 'three'?"));
  EXPECT_THAT(problem_of(HostSelection{.exclude = "localhost"}),
              HasSubstr("--exclude: there is no host 'localhost'"));
  EXPECT_THAT(problem_of(HostSelection{.include = "one:4"}),
              HasSubstr("host 'one' has slots 0 to 3, not 4"));
  EXPECT_THAT(problem_of(HostSelection{.include = "one:x"}), HasSubstr("'x' is no slot number"));
  EXPECT_THAT(problem_of(HostSelection{.include = "one:"}), HasSubstr("'' is no slot number"));
  EXPECT_THAT(problem_of(HostSelection{.include = "one:-1"}), HasSubstr("'-1' is no slot number"));
  EXPECT_THAT(problem_of(HostSelection{.include = "one:1,1"}), HasSubstr("slot 1 of 'one'"));
  EXPECT_THAT(problem_of(HostSelection{.include = "one:1@one:2"}), HasSubstr("named twice"));
  EXPECT_THAT(problem_of(HostSelection{.include = "one@"}), HasSubstr("is not of the form"));
  EXPECT_THAT(problem_of(HostSelection{.exclude = "one@two@three"}), HasSubstr("no slot is left"));
  EXPECT_THAT(problem_of(HostSelection{.num_nodes = 4}), HasSubstr("there are 3 hosts"));
  EXPECT_THAT(problem_of(HostSelection{.num_nodes = 0}), HasSubstr("--num_nodes 0"));
  EXPECT_THAT(problem_of(HostSelection{.num_gpus = 2}),
              HasSubstr("--num_gpus 2: host 'three' has 1 slots"));
}

TEST(Selection, WithoutAHostfileThereIsThisMachine) {
  const auto local = [](std::vector<int> slots) {
    return std::vector<HostSlots>{{"localhost", std::move(slots)}};
  };
  EXPECT_EQ(local_slots({}, 2), local({0, 1}));
  EXPECT_EQ(local_slots({.num_gpus = 4}, 2), local({0, 1, 2, 3}));
  EXPECT_EQ(local_slots({.include = "localhost:0,5"}, 2), local({0, 5}));
  EXPECT_EQ(local_slots({.exclude = "localhost:0"}, 3), local({1, 2}));
  const auto problem = [](const HostSelection& selection) {
    return files::message_of<ConfigError>([&] { local_slots(selection, 2); });
  };
  EXPECT_THAT(problem({.num_nodes = 2}), HasSubstr("needs a hostfile"));
  EXPECT_THAT(problem({.include = "worker:0"}), HasSubstr("there is no host 'worker'"));
  EXPECT_THAT(problem({.num_gpus = 5000}), HasSubstr("at most 4096 slots"));
}

TEST(Mpirun, StartsEveryHostsSlots) {
  MpirunOptions options;
  options.master_port = 1234;
  options.heartbeat_directory = "/shared/hb";
  options.program = {"zinc", "train", "--out", "a b"};
  const std::vector<std::string> words = mpirun_words({{"one", {1, 3}}, {"two", {0}}}, options);
  const std::vector<std::string> expected = {"mpirun",
                                             "--bind-to",
                                             "none",
                                             "-np",
                                             "2",
                                             "--host",
                                             "one:2",
                                             "-x",
                                             "CUDA_VISIBLE_DEVICES=1,3",
                                             "-x",
                                             "MASTER_ADDR=one",
                                             "-x",
                                             "MASTER_PORT=1234",
                                             "-x",
                                             "ZINC_HEARTBEATS=/shared/hb",
                                             "zinc",
                                             "train",
                                             "--out",
                                             "a b",
                                             ":",
                                             "-np",
                                             "1",
                                             "--host",
                                             "two:1",
                                             "-x",
                                             "CUDA_VISIBLE_DEVICES=0",
                                             "-x",
                                             "MASTER_ADDR=one",
                                             "-x",
                                             "MASTER_PORT=1234",
                                             "-x",
                                             "ZINC_HEARTBEATS=/shared/hb",
                                             "zinc",
                                             "train",
                                             "--out",
                                             "a b"};
  EXPECT_EQ(words, expected);
}

TEST(Mpirun, IsToldThatRootStartsIt) {
  MpirunOptions options{.as_root = true, .program = {"zinc"}};
  EXPECT_THAT(mpirun_words({{"one", {0}}}, options), testing::Contains("--allow-run-as-root"));
  options.as_root = false;
  EXPECT_THAT(mpirun_words({{"one", {0}}}, options),
              testing::Not(testing::Contains("--allow-run-as-root")));
}

TEST(Mpirun, ShellTextQuotesWhatAShellWouldRead) {
  EXPECT_EQ(shell_text({"a-b", "x=1,2", "", "a b", "it's", "$(rm)"}),
            "a-b x=1,2 '' 'a b' 'it'\\''s' '$(rm)'");
}

TEST(Mpirun, NeedsAProgram) { EXPECT_THROW(mpirun_words({{"one", {0}}}, {}), InvalidArgument); }

}  // namespace launch_grammar_test
}  // namespace zinc::apps
