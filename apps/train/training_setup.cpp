#include "apps/train/training_setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "apps/command.h"
#include "core/device_checks.h"
#include "core/error.h"
#include "core/philox.h"
#include "files/input_file.h"
#include "files/nearest_path.h"
#include "hub/family.h"
#include "text/tokenizer.h"

namespace zinc::apps {
namespace {

// --classes for a model that was trained on text alone: it gets a head for them.
void begin_classes(hub::ModelConfigFile& model, const TrainArguments& options) {
  using hub::Objective;
  const std::vector<std::string>& classes = options.data.examples.classes;
  const Objective kind = hub::objective(model.config).kind;
  if (classes.empty() || (kind != Objective::masked_tokens && kind != Objective::none)) return;
  if (model.tuning.has_adapters()) {
    throw ConfigError(
        "--classes gives this model a new head, which adapters would leave untrained; train the "
        "head first (--train 'classifier.*'), then adapters of the model with it");
  }
  hub::become_classifier(model, std::ssize(classes));
}

// Tokens that were added to the tokenizer of trained weights get rows of their own. `made`: tokens
// of the text; 0: none.
void grow_with_tokenizer(TrainingSetup& setup, int64_t made) {
  const int64_t known = hub::vocabulary_size(setup.model.config);
  const text::Tokenizer* tokenizer = setup.tokenizer.tokenizer.get();
  if (made <= known || tokenizer == nullptr || tokenizer->own_vocabulary_size() > known) return;
  if (setup.model.tuning.has_adapters()) {
    throw ConfigError(fmt::format(
        "{} has {} tokens, of which {} were added to those of the model's {}; adapters would leave "
        "out their rows of the embedding: train the model with them first (--train with the "
        "embedding's name trains it alone), then adapters of that",
        tokenizer->name(), made, made - known, known));
  }
  hub::grow_vocabulary(setup.model, made);
}

}  // namespace

std::string frozen_from(const TrainingSetup& setup, const TrainArguments& options) {
  const bool refers = !options.save_frozen && setup.config.mesh.tensor == 1 &&
                      !setup.model.tuning.is_all() && setup.model.new_parameters.empty() &&
                      setup.model.stored_vocabulary == 0 &&
                      files::file_exists(options.init + "/config.json");
  return refers ? options.init : "";
}

TrainingSetup set_up(const TrainArguments& options, int64_t world_size) {
  TrainingSetup setup;
  require_consistent(options.training, options.trainer, validation_names(options.data));
  setup.steps = options.training.steps;
  if (!options.init.empty() && !files::folder_exists(options.init) &&
      !files::file_exists(options.init)) {
    throw DataError("--init: " + files::no_such_path("folder", options.init));
  }
  const std::string model = options.model.empty() ? options.init : options.model;
  if (model.empty()) throw ConfigError("--model (or --init) must name a model");
  setup.model = hub::find_model_config(model);
  setup.model.tuning = tuning_of(options.tuning, hub::model_type(setup.model.config));
  setup.model.tuning.base_model = options.init.empty() ? model : options.init;
  if (setup.model.tuning.quantize && frozen_from(setup, options).empty()) {
    throw ConfigError(
        "--quantize leaves the base out of checkpoints: give its folder, with a config.json, in "
        "--init, and no --save-frozen");
  }
  setup.tokenizer = find_tokenizer(options.tokenizer, options.init);
  setup.data = find_run_data(options.data, setup.tokenizer);
  // A preset's vocabulary becomes that of the text's tokens. Trained weights keep theirs.
  const int64_t made = setup.data->vocabulary_size();
  if (made > 0 && options.init.empty() && hub::vocabulary_size(setup.model.config) != made) {
    hub::set_vocabulary_size(setup.model.config, made);
    setup.vocabulary_replaced = true;
  }
  grow_with_tokenizer(setup, made);
  const int64_t longest = hub::max_positions(setup.model.config);
  setup.seq = options.seq > 0 ? options.seq : std::min(longest, kDefaultSequence);
  if (setup.seq > longest) {
    throw ConfigError(
        fmt::format("--seq {} is longer than the model's {} positions", setup.seq, longest));
  }
  begin_classes(setup.model, options);
  setup.data->fit(setup.model, setup.seq);
  if (const auto& classes = options.data.examples.classes; !classes.empty()) {
    hub::set_class_names(setup.model, classes);
  }
  train::Overrides flags = options.flags;
  if (setup.steps > 0) flags.total_steps = setup.steps;
  flags.sequence = setup.seq;
  flags.hidden_size = hub::hidden_size(setup.model.config);
  if (!options.dtype.empty()) {
    flags.dtype = parse_dtype(options.dtype);
    if (!flags.dtype || !is_float(*flags.dtype) || *flags.dtype == DType::f64) {
      throw ConfigError(fmt::format("--dtype must be f32, bf16 or f16, not '{}'", options.dtype));
    }
  }
  setup.config = train::load_config(options.config, world_size, flags);
  setup.config.engine.batch.sequence = setup.seq;
  setup.config.engine.precision.allow_nonfinite_loss = options.training.allow_damaged;
  if (options.threads > 0) setup.config.num_threads = options.threads;
  // A plan needs no GPU.
  if (!options.dry_run) {
    require_device(parse_device(options.device), setup.config.engine.precision.dtype,
                   setup.config.engine.fp8);
  }
  return setup;
}

bool has_short_batches(const TrainingSetup& setup) {
  return setup.data->has_lengths() && !setup.config.engine.cuda_graph;
}

PlannedRun planned(const TrainingSetup& setup, const TrainArguments& options) {
  return {.model = setup.model,
          .config = setup.config,
          .seq = setup.seq,
          .device = options.device,
          .comm = options.comm,
          .hardware = options.hardware,
          .save_frozen = frozen_from(setup, options).empty(),
          .fields = setup.data->fields()};
}

std::vector<comm::Fingerprint> fingerprints(const TrainingSetup& setup,
                                            const TrainArguments& options) {
  const std::string flags =
      str(text_of(options.training), ' ', options.trainer.epochs, ' ', setup.seq, ' ',
          options.eval_batches, ' ', options.data.group_by_length, ' ', options.init, ' ',
          options.save_frozen);
  return {{"model", hash_text(hub::model_config_json(setup.model.config, DType::f32))},
          {"data", setup.data->hash()},
          {"tuning", hash_text(hub::text_of(setup.model.tuning))},
          {"command line (steps, sequence length, intervals)", hash_text(flags)}};
}

}  // namespace zinc::apps
