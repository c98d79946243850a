// A Llama of a Hugging Face folder learns by adapters to answer the questions of a file of records,
// then answers one:
//
//   build/release/example_tune_llama examples/jobs/llama-lora-questions/ds.json FOLDER
//       questions.jsonl 200 out "Tell me on which river Paris lies."
//
// The adapter lies in out/final, as peft reads it. `zinc train --lora` does the same.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "data/examples/example_data.h"
#include "files/input_file.h"
#include "hub/adapter.h"
#include "hub/tuning.h"
#include "text/tokenizer_folder.h"
#include "zinc.h"

constexpr int64_t kSequence = 64;

void tune(const std::string& config_path, const std::string& folder, const std::string& records,
          int64_t steps, const std::string& out, const std::string& question) {
  zinc::World world = zinc::connect();
  const zinc::Config config =
      zinc::load_config(config_path, world, {.lr = 4e-3, .total_steps = steps});

  // The model, what of it is trained, and its first values.
  zinc::hub::ModelConfigFile file = zinc::hub::read_model_config(folder);
  file.tuning.lora = zinc::hub::parse_lora("r=8,alpha=16,targets=all-linear");
  file.tuning.base_model = folder;
  const std::unique_ptr<zinc::nn::Model> model = zinc::hub::make_model(file);
  const std::unique_ptr<zinc::nn::Model> plain = zinc::hub::make_model(file.config);
  const zinc::hub::FolderWeights base(folder, *plain, file.config);
  const zinc::hub::AdaptedWeights weights(*model, &base, zinc::hub::name_map(file.config), "");
  if (world.is_main()) std::printf("%s\n", zinc::hub::describe_trainable(*model).c_str());

  // Records as examples: prompt and answer side by side, of which the answer is learned.
  const std::unique_ptr<zinc::text::Tokenizer> tokenizer = zinc::text::load_tokenizer(folder);
  const zinc::data::ExampleSettings settings{
      .fields = zinc::data::look_for_fields(records),
      .pattern = zinc::data::parse_pattern_of_prompt("{} {}"),
      .max_tokens = kSequence};
  const zinc::data::ExampleFileOptions where{.cache = out + "-cache", .tokenizer_folder = folder};
  const std::string made =
      zinc::data::make_example_folder(records, tokenizer.get(), settings, where);
  const zinc::data::ExampleData data({std::make_shared<const zinc::data::ExampleFile>(
      zinc::data::ExampleFile::open(made, records))});
  zinc::LoaderOptions batches = zinc::loader_options(config, world, kSequence);
  batches.pad_multiple = 8;  // a batch is as long as its longest example
  zinc::Loader loader(data, batches);

  zinc::train::Run run(world, config, {.out = out, .steps = steps},
                       {.tokenizer_folder = folder, .model = &file});
  run.begin();
  zinc::Engine& engine = run.make_engine(*model, loader, {.weights = &weights});
  const zinc::train::TrainResult result = run.train(loader);
  const zinc::data::ExampleMaker maker(tokenizer.get(), settings);
  const auto answer = zinc::generate_tokens(engine, maker.encode_prompt(question),
                                            {.max_tokens = 12,
                                             .sampling = {.temperature = 0.0},
                                             .stop_tokens = {*tokenizer->end_of_text()}});
  if (world.is_main()) {
    std::printf("loss %.3f\n%s%s\n", result.loss, question.c_str(),
                tokenizer->decode(answer).c_str());
  }
  run.end();
}

int main(int argc, char** argv) {
  if (argc == 7) {
    return zinc::run_program(
        [&] { tune(argv[1], argv[2], argv[3], std::atoll(argv[4]), argv[5], argv[6]); });
  }
  std::fprintf(stderr, "usage: %s CONFIG.json FOLDER RECORDS STEPS OUT QUESTION\n", argv[0]);
  return 64;
}
