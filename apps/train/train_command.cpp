// zinc train: a model, a configuration and text become weights.
#include <CLI/CLI.hpp>
#include <exception>
#include <memory>
#include <string>

#include "apps/command.h"
#include "apps/help/help_text.h"
#include "apps/rank_job.h"
#include "apps/run_forecast.h"
#include "apps/train/training_job.h"
#include "apps/train/training_setup.h"
#include "comm/world.h"
#include "core/error.h"
#include "core/exit_codes.h"
#include "core/trace.h"

namespace zinc::apps {
namespace {

CLI::Range at_least_one() { return {int64_t{1}, int64_t{1} << 53}; }
CLI::Range at_least_zero() { return {int64_t{0}, int64_t{1} << 53}; }

// Every option stands in a group: tests/apps/help_test.cpp.
void group_train_options(CLI::App& verb) {
  verb.get_help_ptr()->group(kMostNeeded);
  put_into(verb, kMostNeeded,
           {"--config", "--model", "--init", "--data", "--out", "--steps", "--seq", "--batch",
            "--lr", "--lora"});
  put_into(verb, kOfModel, {"--tokenizer", "--freeze", "--train", "--adapter", "--seed"});
  put_into(verb, kOfData,
           {"--validation", "--validation-fraction", "--fields", "--pattern", "--chat", "--mask",
            "--classes", "--mlm-probability", "--no-end", "--skip-bad", "--pack",
            "--pad-to-longest", "--group-by-length", "--cache"});
  put_into(
      verb, kOfLength,
      {"--epochs", "--grad-accum", "--weight-decay", "--warmup-steps", "--label-smoothing-factor",
       "--early-stopping-patience", "--early-stopping-threshold", "--allow-nan"});
  put_into(verb, kOfMemory, {"--dtype", "--quantize", "--dry-run", "--hardware"});
  put_into(verb, kOfRanks, {"--device", "--comm", "--threads"});
  put_into(verb, kOfFiles,
           {"--resume", "--reset-optimizer", "--reset-errors", "--force", "--save-every",
            "--save-minutes", "--save-total-limit", "--save-frozen", "--export-every",
            "--load-best-model-at-end"});
  put_into(verb, kOfFigures,
           {"--eval-every", "--eval-strategy", "--eval-on-start", "--eval-delay", "--eval-batches",
            "--metric-for-best-model", "--greater-is-better", "--sample-prompt", "--sample-every",
            "--histogram-every"});
  verb.footer(
      "For example: zinc train --config ds.json --model gpt2-124m --data text.txt --steps 1000 "
      "--out run\nRecipes and whole configurations: docs/recipes.md; keys of --config: `zinc "
      "config keys`");
}

// Joins no ranks. Rank 0 prints the plan, or what is wrong.
int dry_run(const TrainArguments& options, const comm::RankInfo& rank) {
  try {
    const TrainingSetup setup = set_up(options, rank.size);
    if (rank.rank == 0) print_plan(planned(setup, options), rank);
    return kDone;
  } catch (...) {
    if (rank.rank == 0) throw;
    return describe(std::current_exception()).code;
  }
}

int run_training(const TrainArguments& options) {
  const comm::RankInfo rank = comm::discover_rank();
  if (options.dry_run) return dry_run(options, rank);
  TraceRecorder trace;  // outlives the world
  return run_on_ranks(training_job(options, rank.size, trace));
}

}  // namespace

void add_train_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<TrainArguments>();
  CLI::App* verb = app.add_subcommand("train", "Train a model");
  train::Overrides& flags = options->flags;
  verb->add_option("--config", options->config, "DeepSpeed JSON configuration")->required();
  verb->add_option("--model", options->model, "Preset, config.json or a folder that holds one");
  add_run_data_options(*verb, options->data);
  add_trainer_options(*verb, options->training, options->trainer);
  verb->add_option("--seed", flags.seed, "Of weights, data order and dropout");
  const auto not_empty = [](const std::string& text) {
    return text.empty() ? std::string("must not be empty") : std::string();
  };
  verb->add_option("--out", options->training.out, "Folder of the run")
      ->required()
      ->check(not_empty);
  verb->add_option("--init", options->init, "Hugging Face folder with the first weights");
  verb->add_option("--tokenizer", options->tokenizer,
                   "Folder or file of the tokenizer for text, copied to what is saved (default: "
                   "that of --init, else bytes)");
  verb->add_option("--batch,--per-device-train-batch-size", flags.micro_batch,
                   "Sequences per rank and micro-step");
  verb->add_option("--seq", options->seq, "Tokens per sequence")->check(at_least_one());
  verb->add_option("--grad-accum,--gradient-accumulation-steps", flags.accumulation,
                   "Micro-steps per optimizer step");
  verb->add_option("--lr,--learning-rate", flags.lr, "Learning rate")
      ->check(CLI::NonNegativeNumber);
  verb->add_option("--weight-decay", flags.weight_decay, "Not on biases and norms")
      ->check(CLI::NonNegativeNumber);
  verb->add_option("--warmup-steps", flags.warmup_steps, "Steps of the schedule's warm-up")
      ->check(at_least_zero());
  verb->add_option("--dtype", options->dtype, "f32, bf16 or f16");
  verb->add_option("--device", options->device,
                   "cpu (default); cuda: a GPU for each rank of a host; cuda:<i>");
  verb->add_option("--comm", options->comm, std::string(comm_help()));
  verb->add_option("--eval-batches", options->eval_batches,
                   "Global batches of an evaluation, the same in each (default: a tenth of the "
                   "steps, at most 131072 tokens)")
      ->check(at_least_one());
  verb->add_option("--save-every,--save-steps", flags.save_every,
                   "Steps between checkpoints, which --resume goes on from (default 0: none but "
                   "when a signal ends the run)")
      ->check(at_least_zero());
  verb->add_option("--save-minutes", flags.save_minutes, "Minutes between checkpoints")
      ->check(CLI::NonNegativeNumber);
  verb->add_option(
          "--save-total-limit", flags.save_total_limit,
          "The newest checkpoints that stay (default 3; 0: all); the best weights stay too")
      ->check(at_least_zero());
  verb->add_option("--export-every", options->training.export_every,
                   "Steps between saved weights (default 0: at the end only)")
      ->check(at_least_zero());
  verb->add_option("--label-smoothing-factor", flags.label_smoothing,
                   "Share of each label that is spread over all classes, in training (default 0)");
  add_tuning_options(*verb, options->tuning);
  verb->add_flag("--save-frozen", options->save_frozen,
                 "Checkpoints hold frozen weights too (default: they name those of --init)");
  verb->add_option("--resume", options->training.resume,
                   "auto: go on from the newest checkpoint in --out, from the beginning where "
                   "there is none; or a checkpoint, or a run's folder")
      ->check(not_empty);
  verb->add_flag("--reset-optimizer", options->training.reset_optimizer,
                 "With --resume: the optimizer's states begin at zero; steps, schedule and data go "
                 "on (default: they are those of the checkpoint)")
      ->needs("--resume");
  verb->add_flag(
          "--reset-errors", options->training.reset_errors,
          "With --resume: what the signs of OneBitAdam left out begins at zero, as on another "
          "number of ranks (default: it is that of the checkpoint)")
      ->needs("--resume");
  verb->add_option("--threads", options->threads,
                   "Per rank (default: this host's cores / its ranks)")
      ->check(CLI::PositiveNumber);
  verb->add_option("--sample-prompt", options->sample_prompts,
                   "What a sample goes on from; several make several samples")
      ->check(not_empty);
  verb->add_option("--sample-every", options->training.sample_every,
                   "Steps between samples (default 0: at the end only)")
      ->check(at_least_zero());
  verb->add_option("--histogram-every", options->training.histogram_every,
                   "Steps between histograms of the weights, for TensorBoard (default 0: none)")
      ->check(at_least_zero());
  verb->add_flag("--allow-nan", options->training.allow_damaged,
                 "Go on where the loss is NaN or infinite, which ends a run otherwise");
  verb->add_option("--hardware", options->hardware,
                   "The machine's speeds: a step's predicted time is printed beside the measured "
                   "one (default: what `zinc bench ceilings --save` measured)");
  verb->add_flag("--dry-run", options->dry_run,
                 "Print what the run would take, as zinc plan does, and end");
  verb->add_flag("--force", options->training.force, "Replace an existing run in --out");
  group_train_options(*verb);
  verb->callback([options, &action] {
    if (options->sample_prompts.empty()) options->sample_prompts.emplace_back("\n");
    action = [options] { return run_training(*options); };
  });
}

}  // namespace zinc::apps
