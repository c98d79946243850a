// zinc plan --program --html: the step as a page, which a browser opens in ./run soak.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "core/exit_codes.h"
#include "tests/apps/browser.h"
#include "tests/apps/command_process.h"
#include "tests/apps/training_folder.h"

namespace zinc::apps {
namespace plan_page_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::string_view kStage3 =
    R"({"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 3,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "bf16": {"enabled": true},
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0,
                              "stage3_max_reuse_distance": 0}})";

// A configuration whose name is markup, and programs of GPT-2 on two GPUs that it makes.
class PlanPage : public testing::Test {
 protected:
  Ended plan(const std::string& model, const std::vector<std::string>& more) const {
    std::vector<std::string> words{
        "plan", "--config",  config_,      "--model",
        model,  "--world",   "2",          "--seq",
        "64",   "--device",  "cuda",       "--comm",
        "nccl", "--program", "--hardware", "examples/hardware/h200-node.json"};
    words.insert(words.end(), more.begin(), more.end());
    return run_zinc(words);
  }
  std::string page_of(const std::vector<std::string>& more = {},
                      const std::string& model = "gpt2-124m") const {
    std::vector<std::string> words{"--html", folder_ / "page.html"};
    words.insert(words.end(), more.begin(), more.end());
    const Ended ended = plan(model, words);
    EXPECT_EQ(ended.exit_code, kDone) << to_string(ended);
    EXPECT_THAT(ended.out, HasSubstr("page.html: the step, "));
    return folder_ / "page.html";
  }
  std::string program_of(const std::vector<std::string>& more) const {
    std::vector<std::string> words{"--json"};
    words.insert(words.end(), more.begin(), more.end());
    return plan("gpt2-124m", words).out;
  }

  files::ScratchFolder folder_;
  std::string config_ =
      folder_.write("<img src=x onerror=\"document.body.dataset.bad=1\">.json", kStage3);
};

TEST(Plan, PresetsOfEveryFamily_OnOneToManyRanks) {
  const files::ScratchFolder folder;
  const std::string config = folder.write("ds.json", std::string(kStage3));
  for (const char* model : {"roberta-base", "flan-t5-xxl", "bloomz-7b1", "chatglm3-6b",
                            "mistral-7b", "qwen2-7b", "qwen3-8b"}) {
    for (const char* world : {"1", "1024"}) {
      const Ended ended = run_zinc(
          {"plan", "--config", config, "--model", model, "--world", world, "--seq", "512"});
      EXPECT_EQ(ended.exit_code, kDone) << model << to_string(ended);
      EXPECT_THAT(ended.out, HasSubstr(std::string(" weights, ") + world + " ranks")) << model;
    }
  }
}

TEST_F(PlanPage, HasItsProgramInIt_AndNoMarkupOfNames) {
  const std::string page = files::read_whole_file(page_of());
  EXPECT_THAT(page, AllOf(HasSubstr("\"event\":\"use of transformer.h.11.ln_1.weight\""),
                          HasSubstr("\"stream\":\"gather\""), HasSubstr("\\u003cimg src=x"),
                          Not(HasSubstr("<img"))));
}

TEST_F(PlanPage, ADiffWithWhatIsNoProgram_WritesNothing) {
  const std::string other = folder_.write("other.json", R"({"places": 3})");
  const Ended ended = plan("gpt2-124m", {"--html", folder_ / "page.html", "--diff", other});
  EXPECT_EQ(ended.exit_code, kBadData) << to_string(ended);
  EXPECT_THAT(ended.err, HasSubstr("other.json"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "page.html"));
}

// --- in a browser: ./run soak

class PlanPageSlow : public PlanPage {
 protected:
  void SetUp() override {
    if (browser().empty()) GTEST_SKIP() << "left out: this machine has no Chromium";
  }
  // The page's own figures for its drawing, after `act` of a script.
  struct Drawing {
    std::string document;
    double operator[](const std::string& name) const {
      const std::string key = "data-" + name + "=\"";
      const size_t at = document.find(key);
      EXPECT_NE(at, document.npos) << name;
      return at == document.npos ? -1.0 : std::atof(document.c_str() + at + key.size());
    }
  };
  Drawing open(const std::string& page, const std::string& view = {}, const std::string& act = {}) {
    std::string path = page;
    if (!act.empty()) {
      std::string text = files::read_whole_file(page);
      const size_t end = text.rfind("</body>");
      text.insert(end, "<script>" + act + "</script>");
      path = folder_.write("act.html", text);
    }
    Drawing drawing{document_of(folder_, "file://" + path + "#" + view, 20'000)};
    EXPECT_THAT(drawing.document, HasSubstr("data-state=\"drawn\"")) << page << " " << view;
    return drawing;
  }
};

TEST_F(PlanPageSlow, DrawsEventsAndTime) {
  const std::string page = page_of();
  const Drawing events = open(page);
  EXPECT_GT(events["boxes"], 500);
  EXPECT_GT(events["memory"], 100);
  const Drawing time = open(page, "axis=time");
  EXPECT_GT(time["boxes"], 500);
  EXPECT_GT(time["waits"], 10);
  EXPECT_THAT(time.document, Not(HasSubstr("data-bad")));
  document_of(folder_, "file://" + page, 20'000, folder_ / "page.png");
  EXPECT_GT(std::filesystem::file_size(folder_ / "page.png"), 20'000U);
}

TEST_F(PlanPageSlow, ZoomsByAddressButtonAndWheel) {
  const std::string page = page_of();
  const double all = open(page)["to"];
  const Drawing near = open(page, "from=100&to=130");
  EXPECT_EQ(near["from"], 100);
  EXPECT_EQ(near["to"], 130);
  EXPECT_GT(near["texts"], 30);  // single events have their names
  for (const char* const act :
       {"$('closer').click()",
        "$('canvas').dispatchEvent(new WheelEvent('wheel', {deltaY: -400, ctrlKey: true}))"}) {
    const Drawing zoomed = open(page, "", act);
    EXPECT_LT(zoomed["to"] - zoomed["from"], 0.9 * all) << act;
  }
  const Drawing moved = open(page, "from=100&to=130",
                             "$('canvas').dispatchEvent(new WheelEvent('wheel', {deltaY: 200}))");
  EXPECT_GT(moved["from"], 100);
  EXPECT_NEAR(moved["to"] - moved["from"], 30, 1e-3);
}

TEST_F(PlanPageSlow, MarksWhatAPassChanged) {
  EXPECT_EQ(open(page_of())["marks"], 0);
  EXPECT_GT(open(page_of(), "rewrite=prefetch")["marks"], 20);
}

TEST_F(PlanPageSlow, TwoProgramsStandSideBySide) {
  const std::string other = folder_.write("other.json", program_of({"--without", "prefetch"}));
  const Drawing two = open(page_of({"--diff", other}));
  EXPECT_GT(two["marks"], 20);
  const std::string same = folder_.write("same.json", program_of({}));
  EXPECT_EQ(open(page_of({"--diff", same}))["marks"], 0);
}

TEST_F(PlanPageSlow, ANameThatEndsTheScript_IsText) {
  std::string other = program_of({});
  const std::string bad = "</script><script>document.body.dataset.bad=1</script><b id=bad>";
  for (size_t at = 0; (at = other.find("transformer.h.1\"", at)) != other.npos;) {
    other.replace(at, std::string("transformer.h.1").size(), bad);
  }
  ASSERT_THAT(other, HasSubstr(bad));
  const Drawing two = open(page_of({"--diff", folder_.write("other.json", other)}));
  EXPECT_THAT(two.document, AllOf(Not(HasSubstr("data-bad")), Not(HasSubstr("id=\"bad\""))));
}

TEST_F(PlanPageSlow, AProgramOfAHundredThousandOps_Draws) {
  const std::string model = folder_.write(
      "deep.json",
      R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64,
          "intermediate_size": 128, "num_hidden_layers": 1150, "num_attention_heads": 2,
          "num_key_value_heads": 2, "vocab_size": 128, "max_position_embeddings": 128,
          "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false,
          "hidden_act": "silu"})");
  const std::string page = page_of({"--without", "keep_resident", "--without", "prefetch"}, model);
  EXPECT_GT(count(files::read_whole_file(page), "\"added\":\""), 100'000);
  EXPECT_GT(open(page)["boxes"], 500);
  EXPECT_GT(open(page, "axis=time")["boxes"], 500);
}

}  // namespace plan_page_test
}  // namespace zinc::apps
