// Runs that train a part of a model: adapters, what is frozen, and how they go on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/exit_codes.h"
#include "tests/apps/command_process.h"
#include "tests/apps/training_folder.h"

namespace zinc::apps {
namespace tuned_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

Ended run(const std::vector<std::string>& arguments) {
  CommandProcess process(arguments);
  return process.finish();
}

class Tuned : public testing::Test {
 protected:
  Tuned() {
    const Ended base = run(folder_.train({"--out", base_ = folder_ / "base"}));
    EXPECT_EQ(base.exit_code, kDone) << to_string(base);
    base_ += "/final";
  }
  // Tunes the base, into `out`.
  Ended tune(const std::string& out, std::vector<std::string> more) {
    std::vector<std::string> arguments{"--model", base_, "--init", base_, "--out", folder_ / out};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(folder_.train(arguments));
  }
  std::string file(const std::string& name) { return files::read_whole_file(folder_ / name); }

  TrainingFolder folder_;
  std::string base_;
  const std::string lora_ = "r=2,alpha=4,dropout=0.1,targets=c_attn,mlp.c_proj";
};

TEST_F(Tuned, RunThatIsTakenUpAgain_HasTheBitsOfOneThatWasNot) {
  const Ended whole = tune("whole", {"--lora", lora_, "--steps", "4"});
  ASSERT_EQ(whole.exit_code, kDone) << to_string(whole);
  EXPECT_THAT(whole.out, HasSubstr("trainable params: "));
  ASSERT_EQ(tune("parts", {"--lora", lora_, "--steps", "2", "--save-every", "2"}).exit_code, kDone);
  // The base's weights are not in the checkpoint.
  const std::string state = "parts/checkpoints/step-000002/state-00000-of-00001.safetensors";
  EXPECT_THAT(file(state), AllOf(HasSubstr("lora_A"), testing::Not(HasSubstr("wte"))));

  const Ended other = tune("parts", {"--lora", "r=2,alpha=8,targets=c_attn,mlp.c_proj", "--steps",
                                     "4", "--resume", "auto"});
  EXPECT_EQ(other.exit_code, kConfiguration) << to_string(other);
  EXPECT_THAT(other.err, HasSubstr("the tuning of this run is not that of the checkpoint"));
  EXPECT_EQ(tune("parts", {"--steps", "4", "--resume", "auto"}).exit_code, kConfiguration);

  const Ended rest =
      tune("parts", {"--lora", lora_, "--steps", "4", "--save-every", "2", "--resume", "auto"});
  ASSERT_EQ(rest.exit_code, kDone) << to_string(rest);
  EXPECT_EQ(file("parts/final/adapter_model.safetensors"),
            file("whole/final/adapter_model.safetensors"));

  // The files that the run saves of the same weights; or the model with them added, as `zinc
  // adapter merge` writes it.
  const auto exported = [&](const std::string& to, std::vector<std::string> more) {
    std::vector<std::string> arguments{"checkpoint", "export", folder_ / "parts", folder_ / to};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  };
  ASSERT_EQ(exported("adapter", {}).exit_code, kDone);
  for (const char* name : {"adapter_model.safetensors", "adapter_config.json"}) {
    EXPECT_TRUE(file(str("adapter/", name)) == file(str("parts/final/", name))) << name;
  }
  ASSERT_EQ(exported("merged", {"--merge-lora"}).exit_code, kDone);
  const Ended merged = run({"adapter", "merge", "--model", base_, "--adapter",
                            folder_ / "parts/final", "--out", folder_ / "merged2"});
  ASSERT_EQ(merged.exit_code, kDone) << to_string(merged);
  EXPECT_TRUE(file("merged/model.safetensors") == file("merged2/model.safetensors"));
  EXPECT_EQ(file("merged/config.json"), file("merged2/config.json"));
  EXPECT_TRUE(file("merged/model.safetensors") != file("base/final/model.safetensors"));
  const Ended text = run({"generate", "--model", folder_ / "merged", "--tokens", "4"});
  EXPECT_EQ(text.exit_code, kDone) << to_string(text);

  // The base has moved; another one is none.
  const std::string moved = folder_ / "moved";
  std::filesystem::rename(base_, moved);
  EXPECT_THAT(exported("merged3", {"--merge-lora"}).err,
              AllOf(HasSubstr(base_), HasSubstr("which is not there"), HasSubstr("--base")));
  EXPECT_THAT(exported("merged3", {"--merge-lora", "--base", folder_ / "merged"}).err,
              HasSubstr(folder_ / "merged"));
  ASSERT_EQ(exported("merged3", {"--merge-lora", "--base", moved}).exit_code, kDone);
  EXPECT_TRUE(file("merged3/model.safetensors") == file("merged/model.safetensors"));
  std::filesystem::rename(moved, base_);

  EXPECT_THAT(exported("other", {"--dtype", "bf16"}).err, HasSubstr("goes with --merge-lora"));
  EXPECT_THAT(exported("other", {"--format", "llmc"}).err, HasSubstr("no place for adapters"));
  const Ended plain = tune("plain", {"--save-every", "2", "--steps", "2"});
  ASSERT_EQ(plain.exit_code, kDone) << to_string(plain);
  const Ended none =
      run({"checkpoint", "export", folder_ / "plain", folder_ / "other", "--merge-lora"});
  EXPECT_EQ(none.exit_code, kConfiguration);
  EXPECT_THAT(none.err, HasSubstr("a run without adapters"));
}

// Greater is better: the first of four.
TEST_F(Tuned, TheBestAdapterIsLoadedAtTheEnd) {
  const Ended ended =
      tune("best", {"--lora", lora_, "--steps", "4", "--eval-every", "1", "--greater-is-better",
                    "true", "--export-every", "3", "--load-best-model-at-end"});
  ASSERT_EQ(ended.exit_code, kDone) << to_string(ended);
  EXPECT_THAT(ended.out, HasSubstr("/final: the best, of step "));
  EXPECT_EQ(file("best/final/adapter_model.safetensors"),
            file("best/best/adapter_model.safetensors"));
  EXPECT_NE(file("best/final/adapter_model.safetensors"),
            file("best/step-000003/adapter_model.safetensors"));
}

TEST_F(Tuned, AdapterIsGoneOnFrom_AlsoInItsOwnPlace) {
  ASSERT_EQ(tune("tuned", {"--lora", lora_}).exit_code, kDone);
  const std::string before = file("tuned/final/adapter_model.safetensors");
  const Ended again = tune("tuned", {"--adapter", folder_ / "tuned/final", "--force"});
  ASSERT_EQ(again.exit_code, kDone) << to_string(again);
  EXPECT_NE(file("tuned/final/adapter_model.safetensors"), before);
  EXPECT_THAT(file("tuned/final/adapter_config.json"), HasSubstr("\"lora_alpha\": 4"));
  EXPECT_THAT(file("tuned/final/adapter_config.json"), HasSubstr(base_));

  const std::vector<std::string> text{"generate", "--model", base_, "--tokens", "8", "--seed", "3"};
  std::vector<std::string> adapted = text;
  adapted.insert(adapted.end(), {"--adapter", folder_ / "tuned/final"});
  const Ended plain = run(text), tuned = run(adapted);
  EXPECT_EQ(plain.exit_code, kDone) << to_string(plain);
  EXPECT_EQ(tuned.exit_code, kDone) << to_string(tuned);
}

TEST_F(Tuned, DecomposedAdapterIsMergedAndWrittenWith) {
  const std::string dora = "r=2,dora=true,dropout=0.1,targets=all-linear";
  // Evaluated in between: without dropout the same weights are used in the same order.
  const Ended tuned = tune("dora", {"--lora", dora, "--save-every", "2", "--steps", "4"});
  ASSERT_EQ(tuned.exit_code, kDone) << to_string(tuned);
  EXPECT_THAT(file("dora/final/adapter_model.safetensors"), HasSubstr("lora_magnitude_vector"));
  const Ended merged =
      run({"checkpoint", "export", folder_ / "dora", folder_ / "merged", "--merge-lora"});
  ASSERT_EQ(merged.exit_code, kDone) << to_string(merged);
  const std::vector<std::string> text{"--tokens", "12", "--temperature", "0"};
  std::vector<std::string> by_merged{"generate", "--model", folder_ / "merged"};
  std::vector<std::string> by_adapter{"generate", "--model", base_, "--adapter",
                                      folder_ / "dora/final"};
  by_merged.insert(by_merged.end(), text.begin(), text.end());
  by_adapter.insert(by_adapter.end(), text.begin(), text.end());
  const Ended first = run(by_merged), second = run(by_adapter);
  ASSERT_EQ(first.exit_code, kDone) << to_string(first);
  ASSERT_EQ(second.exit_code, kDone) << to_string(second);
  EXPECT_EQ(first.out, second.out);
}

TEST_F(Tuned, QuantizedBase_GoesOnWithTheSameBitsAndGivesAPlainAdapter) {
  const std::vector<std::string> quantized{"--lora", lora_, "--quantize", "nf4"};
  const auto tune_quantized = [&](const std::string& out, std::vector<std::string> more) {
    more.insert(more.begin(), quantized.begin(), quantized.end());
    return tune(out, more);
  };
  const Ended whole = tune_quantized("whole", {"--steps", "4"});
  ASSERT_EQ(whole.exit_code, kDone) << to_string(whole);
  const Ended first = tune_quantized("parts", {"--steps", "2", "--save-every", "2"});
  ASSERT_EQ(first.exit_code, kDone) << to_string(first);
  const std::string state = "parts/checkpoints/step-000002/state-00000-of-00001.safetensors";
  EXPECT_THAT(file(state), AllOf(HasSubstr("lora_A"), testing::Not(HasSubstr("c_attn.weight"))));

  const Ended other = tune("parts", {"--lora", lora_, "--steps", "4", "--resume", "auto"});
  EXPECT_EQ(other.exit_code, kConfiguration);
  EXPECT_THAT(other.err, HasSubstr("the tuning of this run is not that of the checkpoint"));
  const Ended rest =
      tune_quantized("parts", {"--steps", "4", "--save-every", "2", "--resume", "auto"});
  ASSERT_EQ(rest.exit_code, kDone) << to_string(rest);
  EXPECT_EQ(file("parts/final/adapter_model.safetensors"),
            file("whole/final/adapter_model.safetensors"));

  // Nothing of an adapter's folder tells of it, and it is added to the base as that lies in its
  // file.
  ASSERT_EQ(tune("plain", {"--lora", lora_, "--steps", "4"}).exit_code, kDone);
  EXPECT_EQ(file("whole/final/adapter_config.json"), file("plain/final/adapter_config.json"));
  EXPECT_NE(file("whole/final/adapter_model.safetensors"),
            file("plain/final/adapter_model.safetensors"));
  const Ended merged =
      run({"checkpoint", "export", folder_ / "parts", folder_ / "merged", "--merge-lora"});
  ASSERT_EQ(merged.exit_code, kDone) << to_string(merged);
  const Ended again = run({"adapter", "merge", "--model", base_, "--adapter",
                           folder_ / "parts/final", "--out", folder_ / "merged2"});
  ASSERT_EQ(again.exit_code, kDone) << to_string(again);
  EXPECT_TRUE(file("merged/model.safetensors") == file("merged2/model.safetensors"));

  const auto refused = [&](std::vector<std::string> more) {
    const Ended ended = tune("refused", std::move(more));
    EXPECT_EQ(ended.exit_code, kConfiguration) << to_string(ended);
    return ended.err;
  };
  EXPECT_THAT(refused({"--quantize", "nf4"}), HasSubstr("--quantize keeps a frozen base"));
  EXPECT_THAT(refused({"--lora", lora_, "--quantize", "fp4"}), HasSubstr("there are nf4 and int8"));
  EXPECT_THAT(refused({"--lora", lora_, "--quantize", "int8", "--save-frozen"}),
              HasSubstr("no --save-frozen"));
  EXPECT_THAT(refused({"--lora", "targets=c_attn,dora=true", "--quantize", "int8"}),
              HasSubstr("leave dora out"));
}

TEST_F(Tuned, PlanCountsWhatIsFrozen) {
  const auto plan = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments{"plan",    "--config", folder_ / "ds.json",
                                       "--model", base_,      "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Ended ended = run(arguments);
    EXPECT_EQ(ended.exit_code, kDone) << to_string(ended);
    return ended.out;
  };
  EXPECT_NE(plan({"--lora", lora_}), plan({}));
  EXPECT_NE(plan({"--freeze", "transformer.h.*"}), plan({}));
  EXPECT_NE(plan({"--lora", lora_, "--quantize", "nf4"}), plan({"--lora", lora_}));
  const Ended wrong =
      run({"plan", "--config", folder_ / "ds.json", "--model", base_, "--lora", "targets=q_proj"});
  EXPECT_EQ(wrong.exit_code, kConfiguration);
  EXPECT_THAT(wrong.err, HasSubstr("LoRA target \"q_proj\" matches no linear layer"));
}

}  // namespace tuned_test
}  // namespace zinc::apps
