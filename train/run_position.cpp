#include "train/run_position.h"

#include <optional>

#include "core/error.h"

namespace zinc::train {
namespace {

files::json::Value to_json(const std::optional<double>& value) {
  return value ? files::json::Value(*value) : files::json::Value(nullptr);
}

std::optional<double> read_optional(const files::json::Value& value) {
  if (value.is_null()) return std::nullopt;
  return value.as_double();
}

BestSoFar read_best(const files::json::Value& value) {
  return {.metric = value.at("metric").as_string(),
          .greater_is_better = value.at("greater_is_better").as_bool(),
          .samples = value.at("samples").as_int64(0),
          .value = read_optional(value.at("value")),
          .step = value.at("step").as_int64(0),
          .without_improvement = value.at("without_improvement").as_int64(0)};
}

}  // namespace

files::json::Object to_json(const RunPosition& position) {
  files::json::Object run;
  run.set("seed", position.loader.seed);
  run.set("loaded_samples", position.loader.samples);
  run.set("samples", position.trainer.samples);
  run.set("tokens", position.trainer.tokens);
  run.set("seconds", position.trainer.seconds);
  run.set("loss", position.trainer.loss);
  run.set("val_loss", to_json(position.trainer.val_loss));
  const BestSoFar& so_far = position.trainer.best;
  files::json::Object best;
  best.set("metric", so_far.metric);
  best.set("greater_is_better", so_far.greater_is_better);
  best.set("samples", so_far.samples);
  best.set("value", to_json(so_far.value));
  best.set("step", so_far.step);
  best.set("without_improvement", so_far.without_improvement);
  run.set("best", std::move(best));
  files::json::Object fingerprints;
  for (const auto& [name, hash] : position.fingerprints) fingerprints.set(name, hash);
  run.set("fingerprints", std::move(fingerprints));
  files::json::Object object;
  object.set("run", std::move(run));
  return object;
}

RunPosition parse_run_position(const files::json::Object& object) {
  const files::json::Value* run = object.find("run");
  if (run == nullptr) {
    throw DataError(
        "this checkpoint was not saved by a run of zinc train, or of train::Run: it "
        "does not say where in the data to go on; load_checkpoint() reads it");
  }
  RunPosition position;
  position.loader = {.seed = run->at("seed").as_uint64(),
                     .samples = run->at("loaded_samples").as_int64(0)};
  position.trainer = {.tokens = run->at("tokens").as_int64(0),
                      .samples = run->at("samples").as_int64(0),
                      .seconds = run->at("seconds").as_double(),
                      .loss = run->at("loss").is_null() ? 0.0 : run->at("loss").as_double(),
                      .val_loss = read_optional(run->at("val_loss")),
                      .best = read_best(run->at("best"))};
  for (const files::json::Member& member : run->at("fingerprints").as_object()) {
    position.fingerprints[member.key] = member.value.as_string();
  }
  return position;
}

}  // namespace zinc::train
