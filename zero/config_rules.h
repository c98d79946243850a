// zero/config_rules.h: the table of settings that exclude each other, or that need each other.
//
// A row names the keys, and says what is refused, why, and what to do instead. The engine and the
// reading of a file (train/config) walk the rows and report every one that is broken;
// docs/config.md shows them. A new rule is a row of config_rules.cpp, and its case in
// tests/zero/config_rules_test.cpp.
//
// Not in the table:
// - what one value decides alone, as its range: value_problems() of zero/engine_config.h;
// - what a part of the engine refuses for every caller, with or without an EngineConfig: the
//   constants of an optimizer, a schedule and a loss scale (optim), the extents of a mesh in a
//   world (comm/mesh.h), how a model is cut and sliced (parallel), what a GPU computes
//   (core/device_checks.h);
// - random numbers that a CUDA graph would repeat, which show while passes are recorded
//   (zero/run/recorded_passes.h);
// - keys of a file that say one setting twice: train/config/key_rules.h.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/mesh.h"
#include "zero/engine_config.h"

namespace zinc::zero {

// What rules look at beside the configuration. A fact that is absent breaks no rule: a file is read
// before there is a world, and a step is recorded after the engine has begun.
struct ConfigFacts {
  struct World {
    comm::Mesh mesh{};
    int shards = 1;  // the ranks among which states are sharded
    bool on_gpu = false;
    bool gathers_in_streams = true;  // collectives follow streams, or there is one rank
    std::string backend{};           // the communicator's name
  };
  std::optional<World> world{};
  std::string model{};                     // nn::Model::model_type()
  std::optional<bool> has_stages{};        // the model is an nn::Staged
  std::optional<bool> recomputes{};        // the recorded model recomputes blocks
  std::optional<bool> is_dynamic{};        // EngineOptions::dynamic_model
  std::optional<std::string> optimizer{};  // the name of a client's own
  std::optional<bool> has_own_sums{};      // EngineOptions::gradient_sums
  std::optional<std::string>
      shared_parameter{};  // a trained parameter of several ranks of a pipeline
};

// What a rule is asked about.
struct ConfigCase {
  const EngineConfig& config;
  const ConfigFacts& facts;
};

// Where `when` holds, `not_with` must not, and `needs` must; one of the two is set. The texts may
// hold names in braces, as {determinism}, which a message fills with the values in force.
struct ConfigRule {
  using Condition = bool (*)(const ConfigCase&);

  std::string_view name;                   // for tests: a few words, unique
  std::array<std::string_view, 3> keys{};  // of a file, or members of EngineOptions; then empty
  Condition when = nullptr;
  Condition not_with = nullptr;
  Condition needs = nullptr;
  std::string_view what;  // a sentence that names both sides
  std::string_view why;   // empty where `what` says it
  std::string_view cure;

  bool is_broken_by(const ConfigCase& tried) const;
  // "<what>: <why>; <cure>"
  std::string message(const ConfigCase& tried) const;
};

std::span<const ConfigRule> config_rules();

// The rows that the configuration breaks, in the table's order.
std::vector<const ConfigRule*> broken_rules(const ConfigCase& tried);

// The text of a row as a page has it: names in braces become words.
std::string text_on_page(std::string_view text);

// Throws ConfigError with every problem of values and every broken rule, a line each.
void validate(const EngineConfig& config, const ConfigFacts& facts);
// Throws ConfigError with the broken rules alone, for facts that show later.
void require_rules(const EngineConfig& config, const ConfigFacts& facts);

}  // namespace zinc::zero
