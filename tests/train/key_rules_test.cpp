#include "train/config/key_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <string_view>

#include "core/error.h"
#include "train/config/key.h"

namespace zinc::train {
namespace key_rules_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

std::string problems_of(const std::string& members) {
  try {
    parse_config(str("{\n", members, ",\n\"train_micro_batch_size_per_gpu\": 4}"), "ds.json", 8);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(KeyRules, EachRow_IsBrokenByAFile_AndKeptByItsSibling) {
  struct Files {
    const char* broken;
    const char* sibling;
    const char* says;
  };
  const std::map<std::string_view, Files> files{
      {"zinc.mesh.tensor",
       {R"("tensor_parallel": {"autotp_size": 2}, "zinc": {"mesh": {"tensor": 4}})",
        R"("tensor_parallel": {"autotp_size": 2}, "zinc": {"mesh": {"tensor": 2}})",
        "zinc.mesh.tensor 4 contradicts tensor_parallel.autotp_size 2: "}},
      {"zinc.mesh.sequence",
       {R"("sequence_parallel_size": 4, "zinc": {"mesh": {"sequence": 2}})",
        R"("sequence_parallel_size": 1, "zinc": {"mesh": {"sequence": 2}})",
        "zinc.mesh.sequence 2 contradicts sequence_parallel_size 4: "}},
      {"zinc.mesh.pipe",
       {R"("pipeline": {"stages": 4}, "zinc": {"mesh": {"pipe": 2}})",
        R"("pipeline": {"stages": 2}, "zinc": {"mesh": {"pipe": 2}})",
        "zinc.mesh.pipe 2 contradicts pipeline.stages 4: "}},
      {"zinc.recompute_every_blocks",
       {R"("pipeline": {"activation_checkpoint_interval": 3},
           "zinc": {"recompute_every_blocks": 2})",
        R"("pipeline": {"activation_checkpoint_interval": 2},
           "zinc": {"recompute_every_blocks": 2})",
        "zinc.recompute_every_blocks 2 contradicts pipeline.activation_checkpoint_interval 3: "}},
      {"fp16.enabled",
       {R"("fp16": {"enabled": true}, "bf16": {"enabled": true})",
        R"("fp16": {"enabled": true}, "bf16": {"enabled": false})",
        "fp16 and bf16 are both enabled: "}},
      {"optimizer.params.nesterov",
       {R"("optimizer": {"type": "SGD", "params": {"nesterov": true}})",
        R"("optimizer": {"type": "SGD", "params": {"nesterov": true, "momentum": 0.9}})",
        "optimizer.params.nesterov needs a momentum and no dampening: "}},
  };
  for (const KeyRule& rule : key_rules()) {
    SCOPED_TRACE(rule.keys[0]);
    const auto found = files.find(rule.keys[0]);
    if (found == files.end()) {
      ADD_FAILURE() << "no file of this test breaks the row";
      continue;
    }
    EXPECT_EQ(problems_of(found->second.sibling), "");
    EXPECT_THAT(problems_of(found->second.broken),
                AllOf(StartsWith("ds.json:"), HasSubstr(str(": ", found->second.says)),
                      HasSubstr(str("; ", rule.cure))));
  }
  EXPECT_EQ(key_rules().size(), files.size());
}

TEST(KeyRules, RowsNameKeysThatThereAre) {
  const auto expect_known = [](std::string_view key) {
    if (key.empty() || key.starts_with("EngineOptions::")) return;
    EXPECT_NE(find_key(key), nullptr) << key;
  };
  for (const KeyRule& rule : key_rules()) {
    for (const std::string_view key : rule.keys) expect_known(key);
  }
  for (const zero::ConfigRule& rule : zero::config_rules()) {
    for (const std::string_view key : rule.keys) expect_known(key);
  }
}

TEST(KeyRules, SettingsThatExcludeEachOther_AreReportedTogether_AtTheirKeys) {
  const std::string problems = problems_of(
      "\"zinc\": {\"cuda_graph\": true, \"schedule\": \"vertical\",\n"
      "  \"fp8\": true},\n"
      "\"zero_optimization\": {\"stage\": 2,\n"
      "  \"offload_param\": {\"device\": \"cpu\"}},\n"
      "\"optimizer\": {\"type\": \"SGD\", \"params\": {\"dampening\": 0.5}}");
  EXPECT_THAT(problems, StartsWith("5 problems\n"));
  EXPECT_THAT(problems, HasSubstr("ds.json:2:24: \"cuda_graph\": true does not work with "
                                  "\"schedule\": \"vertical\": "));
  EXPECT_THAT(problems, HasSubstr("ds.json:2:24: \"cuda_graph\": true does not work with "
                                  "offload_param: "));
  EXPECT_THAT(problems, HasSubstr("ds.json:3:10: zinc.fp8 needs bf16: "));
  EXPECT_THAT(problems, HasSubstr("ds.json:5:31: offload_param needs ZeRO stage 3: "));
  EXPECT_THAT(problems, HasSubstr("SGD: dampening must lie in [0, 1) and needs a momentum"));
}

}  // namespace key_rules_test
}  // namespace zinc::train
