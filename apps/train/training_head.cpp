#include "apps/train/training_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "apps/swap_preflight.h"
#include "comm/device_collectives.h"
#include "hub/family.h"
#include "kernels/attention_library.h"
#include "nn/attention/sparse_attention.h"

namespace zinc::apps {
namespace {

std::string threads_from(const comm::RankInfo& rank) {
  return rank.threads_from.empty() ? "" : fmt::format(" ({})", rank.threads_from);
}

std::string describe_evaluation(const TrainingSetup& setup, const TrainArguments& options,
                                const std::vector<data::EvaluationSet>& sets) {
  const std::vector<std::string> names = validation_names(options.data);
  std::string words = when_evaluated(options.training) + "at the end, on ";
  for (size_t i = 0; i < sets.size(); ++i) {
    words +=
        fmt::format("{}{}{}{} of {}", i > 0 ? ", " : "", names[i], names[i].empty() ? "" : ": ",
                    sets[i].num_samples(), setup.data->validation()[i]->num_samples());
  }
  return words + fmt::format(" {} (--eval-batches)", setup.data->samples_are());
}

std::string describe_length(const TrainingSetup& setup, const TrainArguments& options) {
  const double epochs = options.trainer.epochs;
  if (epochs == 0.0) return fmt::format("{} steps", setup.steps);
  return fmt::format("{} steps, {:g} {} of {} {}", setup.steps, epochs,
                     epochs == 1.0 ? "epoch" : "epochs", setup.data->training().num_samples(),
                     setup.data->samples_are());
}

// " = 2 data x 4 sequence x 2 tensor", of axes with several ranks.
std::string grid_of(const comm::Mesh& mesh, int data_ranks) {
  std::string text = fmt::format(" = {} data", data_ranks);
  if (mesh.sequence > 1) text += fmt::format(" x {} sequence", mesh.sequence);
  if (mesh.pipe > 1) text += fmt::format(" x {} pipe", mesh.pipe);
  if (mesh.tensor > 1) text += fmt::format(" x {} tensor", mesh.tensor);
  return text;
}

// A step that crosses the border of two epochs may take a sample from both. Steps of up to `apart`
// samples never do: Note [Order of samples] in data/loader.h.
std::string note_on_borders(const TrainingSetup& setup, int64_t global_batch) {
  const int64_t samples = setup.data->training().num_samples();
  const int64_t apart = std::min(samples / 3, data::kMostApart);
  if (global_batch <= apart || setup.steps * global_batch <= samples) return {};
  return fmt::format(
      "a step takes {} of {} samples: where an epoch ends within a step, the step may hold a "
      "sample twice; steps of up to {} samples never do",
      global_batch, samples, apart);
}

}  // namespace

void show_head(Console& console, const TrainingSetup& setup, const TrainArguments& options,
               comm::World& world, nn::Model& model, const std::vector<data::EvaluationSet>& sets) {
  const zero::EngineConfig& engine = setup.config.engine;
  const std::string_view most = has_short_batches(setup) ? "at most " : "";
  console.table(
      "zinc train",
      {{"model",
        fmt::format("{} {}, {} weights, vocabulary {}", hub::model_type(setup.model.config),
                    options.model.empty() ? options.init : options.model,
                    train::format_count(static_cast<double>(model.num_parameters())),
                    model.vocab_size())},
       {"data", setup.data->training().describe()},
       {"tokenizer", setup.tokenizer.describe()},
       {"batch", fmt::format("{} x {}{} tokens x {} accumulated x {} ranks = {}{} tokens per step",
                             engine.batch.micro_batch, most, setup.seq, engine.batch.accumulation,
                             world.data().size(), most,
                             engine.batch.global_batch(world.data().size()) * setup.seq)},
       {"length", describe_length(setup, options)},
       {"evaluation", describe_evaluation(setup, options, sets)},
       {"precision", std::string(zinc::name_of(engine.precision.dtype))},
       {"optimizer", fmt::format("{}, lr {:g}, schedule {}", name_of(engine.optimizer.kind),
                                 engine.optimizer.hyper.lr, name_of(engine.schedule.kind))},
       {"zero", fmt::format("stage {}", engine.zero.stage)},
       {"ranks",
        fmt::format("{}{} ({}), {} threads each{}", world.size(),
                    world.mesh().is_flat() ? "" : grid_of(world.mesh(), world.data().size()),
                    world.info().source, world.context().num_threads(),
                    threads_from(world.info()))},
       {"seed", fmt::format("{}", setup.config.seed)},
       {"out", options.training.out}});
  if (!world.device_collectives().empty()) {
    console.line("collectives: " + world.device_collectives());
  }
  if (world.context().device().is_cuda()) {
    console.line("attention: " + kernels::attention_outlook(engine.precision.dtype));
  }
  if (setup.model.tuning.has_default_targets) {
    std::string targets;
    for (const std::string& target : setup.model.tuning.lora->targets) {
      targets += (targets.empty() ? "" : ", ") + target;
    }
    console.on_note(fmt::format("LoRA names no targets: {}, peft's own of {}", targets,
                                hub::model_type(setup.model.config)));
  }
  if (!setup.model.tuning.is_all()) console.line(hub::describe_trainable(model));
  if (!setup.initialised.empty()) {
    console.line(fmt::format("note: {} does not hold the head for classes, which is new: {}",
                             options.init, fmt::join(setup.initialised, ", ")));
  }
  if (const int64_t stored = setup.model.stored_vocabulary; stored > 0) {
    console.line(fmt::format(
        "note: {} tokens were added to the tokenizer: the vocabulary grows from {} to {}, and the "
        "rows of new tokens begin as the mean of the others",
        model.vocab_size() - stored, stored, model.vocab_size()));
  }
  for (const std::string& line : setup.data->notes()) console.line(line);
  if (const std::string note =
          note_on_borders(setup, engine.batch.global_batch(world.data().size()));
      !note.empty()) {
    console.line("note: " + note);
  }
  const std::string note = setup.tokenizer.note(setup.vocabulary_replaced, model.vocab_size());
  if (!note.empty()) console.line(note);
  const int64_t positions = hub::max_positions(setup.model.config);
  if (options.init.empty() && setup.seq < positions && hub::learns_positions(setup.model.config)) {
    console.line(fmt::format(
        "note: positions {0} to {1} of the model are never trained; --seq {2} would train "
        "them all, zinc generate --context {0} stays below them",
        setup.seq, positions - 1, positions));
  }
  if (world.is_main()) {
    for (const std::string& note : swap_notes(engine)) console.line("note: " + note);
  }
  for (const std::string& notice : setup.config.notices) console.line("note: " + notice);
  if (const std::string_view on_dtype = model.note_on(engine.precision.dtype); !on_dtype.empty()) {
    console.line(fmt::format("note: {}", on_dtype));
  }
  if (engine.sparse_attention && nn::hides_part_of(model, *engine.sparse_attention)) {
    console.line(
        "note: sparse_attention: the model is causal, so tokens see what the layout shows and none "
        "behind themselves; \"attention\": \"unidirectional\" leaves out what is never seen");
  }
  if (setup.config.dump_state) {
    console.line(train::resolved_json(setup.config, world.size()));
    console.line(model.tree());
  }
}

}  // namespace zinc::apps
