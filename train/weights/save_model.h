// train/weights/save_model.h: writes the weights and adapters of an engine as Hugging Face folders.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "hub/adapter.h"
#include "hub/model.h"
#include "hub/name_map.h"
#include "zero/engine.h"

namespace zinc::train {

// Writes the engine's weights, in the model's dtype, and config.json as a folder that transformers
// loads. The bytes are the same on every stage and in every world. Collective.
//
// Each rank writes its own byte ranges into the same files and gathers nothing. So all ranks need
// one shared file system. The folder appears at once, when all ranks have written and synced. If a
// rank fails, nothing is left: that rank throws its error, the others throw PeerFailed. Throws
// NumericsError, by name, for weights that are NaN or infinite; they replace no folder.
void save_model(zero::Engine& engine, const hub::ModelConfigFile& config, const std::string& folder,
                const hub::SaveOptions& options = {});
// The same for a client's own model. Its config.json has architecture and dtype alone.
void save_model(zero::Engine& engine, const std::string& folder,
                const hub::SaveOptions& options = {});

// The config.json that save_model() writes. `config` is null for a client's own model.
std::string config_json(zero::Engine& engine, const hub::ModelConfigFile* config);

// The engine's weights in the model's dtype, as save_model() writes them. Collective.
inline void save_weights(zero::Engine& engine, const std::string& folder,
                         const hub::SaveOptions& options = {}) {
  save_model(engine, folder, options);
}

// Saves the trained parameters of a model with adapters, f32. The folder appears whole. `names`: of
// the base. Throws NumericsError, by name, for weights that are not finite, unless
// options.allow_damaged. Collective.
void save_adapter(zero::Engine& engine, const hub::AdapterConfig& config, const hub::NameMap& names,
                  const std::string& folder, const hub::SaveOptions& options = {});

// Hands out what save_adapter() writes, by name in the model, on every rank; `take` may be empty.
// Collective.
void visit_adapter(
    zero::Engine& engine,
    const std::function<void(const std::string& name, const std::vector<float>& values)>& take);

}  // namespace zinc::train
