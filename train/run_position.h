// train/run_position.h: where a run stands, as its checkpoints say it.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "data/loader.h"
#include "files/json/value.h"
#include "train/trainer.h"

namespace zinc::train {

struct RunPosition {
  data::LoaderState loader;
  TrainerState trainer;
  // The fingerprints that ranks agreed on, in hexadecimal.
  std::map<std::string, std::string> fingerprints;
};

// Converts a position to the client state of a checkpoint, and back. Throws a DataError for client
// state that is not that of a run.
files::json::Object to_json(const RunPosition& position);
RunPosition parse_run_position(const files::json::Object& object);

}  // namespace zinc::train
