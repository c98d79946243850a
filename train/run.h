// train/run.h: a run, from a model and a configuration to a folder with weights and figures. `zinc
// train` is such a run; a program of one's own makes it like this:
//
//   zinc::train::Run run(world, config, {.out = "out", .steps = 1000});
//   run.begin({{"data", dataset_hash}});               // ranks agree; the folder is there
//   zinc::Engine& engine = run.make_engine(model);
//   run.train(loader, &evaluation);                    // steps, evaluations, weights, figures
//   run.end();
//
// With checkpoints ("zinc": {"checkpoint": {"every": 100}}), a run that was killed can continue:
// the same program with `.resume = "auto"` gives the bits of a run that was not killed
// (docs/checkpoints.md).
//
// Every call is collective. If a call fails on some ranks, it throws on all of them: their own
// error on those ranks, PeerFailed on the others. A run that does not reach its first step leaves
// no folder.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/agreement.h"
#include "comm/world.h"
#include "data/loader.h"
#include "hub/model.h"
#include "train/checkpoint/save_checkpoint.h"
#include "train/config/config.h"
#include "train/run_output.h"
#include "train/run_position.h"
#include "train/trace/trace_writer.h"
#include "train/trainer.h"
#include "train/training_options.h"
#include "zero/engine.h"

namespace zinc::train {

// What a program lends its run. All must outlive the run.
struct RunParts {
  // Texts that the engine's model writes: TrainerParts.
  std::function<std::vector<SampleText>(zero::Engine& engine)> sample;
  double ends_at = 0.0;          // TrainerParts
  std::string frozen_from;       // SaveCheckpointOptions; a continued run reads them there too
  std::string tokenizer_folder;  // its files are saved beside the weights; empty: none
  // The config.json of a model that zinc knows; may be null.
  const hub::ModelConfigFile* model = nullptr;
  const std::atomic<bool>* stop = nullptr;  // TrainerParts
};

class Run {
 public:
  // World and configuration must outlive the run. options.steps may follow: set_steps().
  Run(comm::World& world, const Config& config, TrainingOptions options, RunParts parts = {});

  // Checks that the ranks run the same configuration, and agree on the fingerprints in `more`.
  // Throws ConfigError.
  void agree(std::vector<comm::Fingerprint> more);
  // Sets the length of the run instead of options.steps, for a length that is known later, as one
  // in epochs: length_of_epochs() with the values that are known after open(). Call before
  // make_engine().
  void set_steps(int64_t steps);
  // Makes the folder, with the resolved configuration, the files of figures and the file of the
  // trace. Throws as RunFolder does.
  void open();
  // agree() and open().
  void begin(std::vector<comm::Fingerprint> more = {}) {
    agree(std::move(more));
    open();
  }
  // Makes the engine; `options.total_steps` becomes the length of the run. With a loader the model
  // is recorded on batches of the loader's shapes, otherwise on nn::Model::example().
  zero::Engine& make_engine(nn::Model& model, const data::Loader& loader,
                            zero::EngineOptions options = {});
  zero::Engine& make_engine(nn::Model& model, zero::EngineOptions options = {});
  zero::Engine& make_engine(nn::Model& model, const zero::EngineConfig& config,
                            zero::EngineOptions options = {});
  // Trains. Weights go to <out>/step-N, <out>/best and <out>/final, checkpoints to
  // <out>/checkpoints/step-N. <out>/best.json has the step and the figure of the best weights. A
  // checkpoint that fails with an IoError is a note to the observer, unless the configuration
  // requires checkpoints; any other failure ends the run. `observer` may be null. A step that
  // throws NumericsError has changed no weight; last_saved() names the saved weights.
  TrainResult train(data::Loader& loader, ValidationSets validation = {},
                    TrainerObserver* observer = nullptr);
  // Closes the trace.
  void end();

  // True if an existing run in the folder will be replaced at the first step.
  bool replaces() const { return folder_ && folder_->replaces(); }
  // The name in the folder of the weights saved last; empty: none were saved.
  const std::string& last_saved() const { return saved_; }
  // The last checkpoint of this run: "checkpoints/step-000120"; empty: none.
  const std::string& last_checkpoint() const { return saved_checkpoint_; }
  // The checkpoint that the run continues from; null: it begins anew. Valid from open() to
  // make_engine().
  const Checkpoint* resumed() const { return checkpoint_ ? &*checkpoint_ : nullptr; }
  // Samples that the run had taken at that checkpoint; 0: it begins anew.
  int64_t samples_so_far() const { return start_.loader.samples; }
  // Findings of open() for the user, a line each.
  const std::vector<std::string>& notes() const { return notes_; }
  // True if the error that a call has thrown was thrown on all ranks. If false, as in a collective
  // that lost a peer, other ranks may not know of it.
  bool failed_together() const { return failed_together_; }

 private:
  template <class Work>
  void together(std::string_view operation, const Work& work);
  void open_folder();
  void find_checkpoint();
  void find_best_of(const std::string& run);
  std::optional<FiguresSoFar> figures_so_far() const;
  bool is_traced_by_program() const;
  std::string name_of_trace() const;
  void open_trace();
  void save(const std::string& name, const BestSoFar& best);
  bool load_best(const BestSoFar& best);
  std::vector<std::pair<std::string, std::string>> texts_beside() const;
  void go_on_in(data::Loader& loader);
  template <class Work>
  void on_checkpoints(TrainerObserver* observer, const Work& work);
  void begin_checkpoint(const data::Loader& loader, const Trainer& trainer,
                        TrainerObserver* observer, bool last);
  void end_checkpoint(const std::string& path, TrainerObserver* observer);

  comm::World& world_;
  const Config& config_;
  TrainingOptions options_;
  const RunParts parts_;
  std::vector<comm::Fingerprint> agreed_;
  std::optional<RunFolder> folder_;                  // on rank 0
  std::vector<std::unique_ptr<MetricsSink>> sinks_;  // likewise
  bool reopened_ = false;                            // the folder holds a run that goes on, or may
  std::optional<Checkpoint> checkpoint_;
  RunPosition start_;
  // The run whose best weights become this run's; empty: they are in this run's folder.
  std::string best_from_;
  std::vector<std::string> notes_;
  std::optional<TraceWriter> trace_;
  std::unique_ptr<zero::Engine> engine_;
  std::unique_ptr<CheckpointSaver> saver_;
  std::string saved_, saved_checkpoint_;
  int64_t checkpoint_step_ = 0;  // step of the last checkpoint that was begun
  bool failed_together_ = false;
};

}  // namespace zinc::train
