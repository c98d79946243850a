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

#include "data/examples/example_data.h"
#include "text/scores/score_pairs.h"
#include "text/tokenizer_folder.h"
#include "train/evaluation/written_answers.h"
#include "zinc.h"

constexpr int64_t kSequence = 96;

struct Arguments {
  std::string config, model, tokenizer, records, held_out, steps, out;
};

void summarize(const Arguments& arguments) {
  zinc::World world = zinc::connect();
  const int64_t steps = std::atoll(arguments.steps.c_str());
  const zinc::Config config = zinc::load_config(arguments.config, world, {.total_steps = steps});
  const zinc::hub::ModelConfigFile file = zinc::hub::read_model_config(arguments.model);
  const std::unique_ptr<zinc::nn::Model> model = zinc::hub::make_model(file);
  const std::unique_ptr<zinc::text::Tokenizer> tokenizer =
      zinc::text::load_tokenizer(arguments.tokenizer);

  // The encoder reads the prompt, the decoder learns the summary.
  const zinc::data::ExampleSettings settings{
      .fields = zinc::data::look_for_fields(arguments.records),
      .pattern = zinc::data::parse_pattern_of_prompt("summarize: {}\n{}"),
      .max_tokens = kSequence,
      .labels = zinc::data::LabelsOf::text};
  const zinc::data::ExampleFileOptions where{.cache = arguments.out + "-cache",
                                             .tokenizer_folder = arguments.tokenizer};
  const std::string made =
      zinc::data::make_example_folder(arguments.records, tokenizer.get(), settings, where);
  const auto examples = std::make_shared<const zinc::data::ExampleFile>(
      zinc::data::ExampleFile::open(made, arguments.records));
  const zinc::data::ExampleData data({examples}, {.lengths = true, .labels = settings.labels});
  zinc::LoaderOptions batches = zinc::loader_options(config, world, kSequence);
  batches.pad_multiple = 8;  // a batch is as long as its longest example
  zinc::Loader loader(data, batches);

  zinc::train::Run run(world, config, {.out = arguments.out, .steps = steps},
                       {.tokenizer_folder = arguments.tokenizer, .model = &file});
  run.begin();
  run.make_engine(*model, loader);
  const zinc::train::TrainResult result = run.train(loader);
  run.end();

  // The saved model writes; the ranks share the dialogues.
  zinc::train::EvaluatedModel writer(arguments.out + "/final", file.config, world);
  const zinc::data::ExampleMaker maker(tokenizer.get(), settings);
  const zinc::train::WrittenAnswers summaries = zinc::train::write_answers(
      writer, *tokenizer, maker, zinc::train::read_questions(arguments.held_out, maker, 0),
      {.generate = {.max_tokens = 40,
                    .sampling = {.temperature = 0.0},
                    .stop_tokens = {*tokenizer->end_of_text()}}});
  if (!world.is_main()) return;
  std::printf("loss %.3f\n%s\n", result.loss, summaries.pairs.front().prediction.c_str());
  for (const char* name : {"rouge1", "rouge2", "rougeL"}) {
    std::printf("%s %.3f\n", name, zinc::text::score_of(name, summaries.pairs));
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
