// A configuration as a file that loads to the same values.
#include <algorithm>

#include "core/error.h"
#include "core/philox.h"
#include "files/json/writer.h"
#include "train/config/config.h"
#include "train/config/key.h"

namespace zinc::train {
namespace {

// The members of one block: every key that counts and has a value.
files::json::Object members_of(std::string_view block, const Config& config, int64_t world_size) {
  files::json::Object members;
  for (const Key* key : keys_of(block)) {
    const bool has_value = key->key_class == KeyClass::works && key->stands_for.empty();
    if (!has_value || !key->counts(config)) continue;
    if (key->is_block()) {
      files::json::Object inner = members_of(key->path, config, world_size);
      if (!inner.empty()) members.set(key->name(), std::move(inner));
    } else if (std::ranges::find(config.open, key->path) != config.open.end()) {
      members.set(key->name(), "auto");
    } else if (files::json::Value value = key->setting.get(config, world_size); !value.is_null()) {
      members.set(key->name(), std::move(value));
    }
  }
  return members;
}

}  // namespace

std::string resolved_json(const Config& config, int64_t world_size) {
  return files::json::write(members_of("", config, world_size), 2);
}

void require_filled(const Config& config) {
  if (config.open.empty()) return;
  std::string names;
  for (const std::string& path : config.open) names += (names.empty() ? "" : ", ") + path;
  throw ConfigError(str(
      "\"auto\" of ", names,
      " is found by plans of a model that zinc knows: zinc train and zinc plan do it, a program by "
      "plan::fill_memory() (plan/fill.h); or give a number"));
}

uint64_t fingerprint_of(const Config& config, int64_t world_size) {
  return hash_text(resolved_json(config, world_size));
}

}  // namespace zinc::train
