// A T5 learns to summarise the dialogues of a file of records, then writes summaries of others, and
// says how near they come to those that people wrote:
//
//   build/release/example_summarize_t5 examples/jobs/flan-t5-summaries/ds.json MODEL.json TOKENIZER
//       dialogues.jsonl held-out.jsonl 400 out
//
// The model lies in out/final, as transformers reads it. `zinc train` and `zinc evaluate --metric
// rouge` do the same.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "train/evaluation/written_answers.h"
#include "train/examples/example_data.h"
#include "train/scores/score_pairs.h"
#include "train/text/tokenizer_folder.h"
#include "zinc.h"

namespace zt = zinc::train;

constexpr int64_t kSequence = 96;

struct Arguments {
  std::string config, model, tokenizer, records, held_out, steps, out;
};

void summarize(const Arguments& arguments) {
  zinc::World world = zinc::connect();
  const int64_t steps = std::atoll(arguments.steps.c_str());
  const zinc::Config config = zinc::load_config(arguments.config, world, {.total_steps = steps});
  const zt::ModelConfigFile file = zt::read_model_config(arguments.model);
  const std::unique_ptr<zinc::nn::Model> model = zt::make_model(file);
  const std::unique_ptr<zt::Tokenizer> tokenizer = zt::load_tokenizer(arguments.tokenizer);

  // The encoder reads the prompt, the decoder learns the summary.
  const zt::ExampleSettings settings{.fields = zt::look_for_fields(arguments.records),
                                     .pattern = zt::parse_pattern_of_prompt("summarize: {}\n{}"),
                                     .max_tokens = kSequence,
                                     .labels = zt::LabelsOf::text};
  const zt::ExampleFileOptions where{.cache = arguments.out + "-cache",
                                     .tokenizer_folder = arguments.tokenizer};
  const std::string made =
      zt::make_example_folder(arguments.records, tokenizer.get(), settings, where);
  const auto examples =
      std::make_shared<const zt::ExampleFile>(zt::ExampleFile::open(made, arguments.records));
  const zt::ExampleData data({examples}, {.lengths = true, .labels = settings.labels});
  zinc::LoaderOptions batches = zinc::loader_options(config, world, kSequence);
  batches.pad_multiple = 8;  // a batch is as long as its longest example
  zinc::Loader loader(data, batches);

  zt::Run run(world, config,
              {.out = arguments.out,
               .steps = steps,
               .tokenizer_folder = arguments.tokenizer,
               .model = &file});
  run.begin();
  run.make_engine(*model, loader);
  const zt::TrainResult result = run.train(loader);
  run.end();

  // The saved model writes; the ranks share the dialogues.
  zt::EvaluatedModel writer(arguments.out + "/final", file.config, world);
  const zt::ExampleMaker maker(tokenizer.get(), settings);
  const zt::WrittenAnswers summaries =
      zt::write_answers(writer, *tokenizer, maker, zt::read_questions(arguments.held_out, maker, 0),
                        {.generate = {.max_tokens = 40,
                                      .sampling = {.temperature = 0.0},
                                      .stop_tokens = {*tokenizer->end_of_text()}}});
  if (!world.is_main()) return;
  std::printf("loss %.3f\n%s\n", result.loss, summaries.pairs.front().prediction.c_str());
  for (const char* name : {"rouge1", "rouge2", "rougeL"}) {
    std::printf("%s %.3f\n", name, zt::score_of(name, summaries.pairs));
  }
}

int main(int argc, char** argv) {
  if (argc == 8) {
    return zinc::run_program([&] {
      summarize({argv[1], argv[2], argv[3], argv[4], argv[5], argv[6], argv[7]});
    });
  }
  std::fprintf(stderr, "usage: %s CONFIG.json MODEL.json TOKENIZER RECORDS HELD_OUT STEPS OUT\n",
               argv[0]);
  return 64;
}
