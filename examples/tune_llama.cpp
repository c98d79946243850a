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

#include "train/adapter.h"
#include "train/examples/example_data.h"
#include "train/files/input_file.h"
#include "train/text/tokenizer_folder.h"
#include "train/tuning.h"
#include "zinc.h"

namespace zt = zinc::train;

constexpr int64_t kSequence = 64;

void tune(const std::string& config_path, const std::string& folder, const std::string& records,
          int64_t steps, const std::string& out, const std::string& question) {
  zinc::World world = zinc::connect();
  const zinc::Config config =
      zinc::load_config(config_path, world, {.lr = 4e-3, .total_steps = steps});

  // The model, what of it is trained, and its first values.
  zt::ModelConfigFile file = zt::read_model_config(folder);
  file.tuning.lora = zt::parse_lora("r=8,alpha=16,targets=all-linear");
  file.tuning.base_model = folder;
  const std::unique_ptr<zinc::nn::Model> model = zt::make_model(file);
  const std::unique_ptr<zinc::nn::Model> plain = zt::make_model(file.config);
  const zt::FolderWeights base(folder, *plain, file.config);
  const zt::AdaptedWeights weights(*model, &base, zt::name_map(file.config), "");
  if (world.is_main()) std::printf("%s\n", zt::describe_trainable(*model).c_str());

  // Records as examples: prompt and answer side by side, of which the answer is learned.
  const std::unique_ptr<zt::Tokenizer> tokenizer = zt::load_tokenizer(folder);
  const zt::ExampleSettings settings{.fields = zt::look_for_fields(records),
                                     .pattern = zt::parse_pattern_of_prompt("{} {}"),
                                     .max_tokens = kSequence};
  const zt::ExampleFileOptions where{.cache = out + "-cache", .tokenizer_folder = folder};
  const std::string made = zt::make_example_folder(records, tokenizer.get(), settings, where);
  const zt::ExampleData data(
      {std::make_shared<const zt::ExampleFile>(zt::ExampleFile::open(made, records))});
  zinc::LoaderOptions batches = zinc::loader_options(config, world, kSequence);
  batches.pad_multiple = 8;  // a batch is as long as its longest example
  zinc::Loader loader(data, batches);

  zt::Run run(world, config,
              {.out = out, .steps = steps, .tokenizer_folder = folder, .model = &file});
  run.begin();
  zinc::Engine& engine = run.make_engine(*model, loader, {.weights = &weights});
  const zt::TrainResult result = run.train(loader);
  const zt::ExampleMaker maker(tokenizer.get(), settings);
  const auto answer = zinc::generate(engine, maker.encode_prompt(question),
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
