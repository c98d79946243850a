#include "hub/family.h"

#include <algorithm>
#include <list>
#include <mutex>

#include "core/edit_distance.h"
#include "core/error.h"
#include "hub/builtin_families.h"

namespace zinc::hub {
namespace {

// Why there is state of the whole program here: a config.json is read by functions that are told
// nothing but a path, and a program of one's own must be able to teach them a model_type. Rows are
// only ever added.
struct FamilyTable {
  std::mutex mutex;
  std::list<Family> rows;  // a row does not move

  FamilyTable() {
    for (Family (*make)() : kBuiltinFamilies) rows.push_back(make());
  }
};

FamilyTable& table() {
  static FamilyTable the_table;
  return the_table;
}

void require_complete(const Family& family) {
  require(!family.model_type.empty(), "add_family: a family needs its model_type");
  const bool complete = family.config_type != nullptr && family.parse && family.write &&
                        family.make && family.names && family.sizes && family.objective &&
                        family.set_vocabulary_size && family.validate && family.equal;
  require(complete, "add_family: the row of ", family.model_type,
          " lacks a function; make_family() gives all of them");
}

}  // namespace

void add_family(Family family) {
  require_complete(family);
  FamilyTable& all = table();
  const std::lock_guard lock(all.mutex);
  for (const Family& row : all.rows) {
    require(row.model_type != family.model_type, "add_family: there is a family \"",
            family.model_type, "\" already");
    for (const FamilyPreset& preset : row.presets) {
      require(std::ranges::find(family.presets, preset.name, &FamilyPreset::name) ==
                  family.presets.end(),
              "add_family: ", row.model_type, " has a preset \"", preset.name, "\" already");
    }
  }
  all.rows.push_back(std::move(family));
}

std::vector<const Family*> families() {
  FamilyTable& all = table();
  const std::lock_guard lock(all.mutex);
  std::vector<const Family*> rows;
  for (const Family& row : all.rows) rows.push_back(&row);
  return rows;
}

const Family* find_family(std::string_view model_type) {
  for (const Family* family : families()) {
    if (family->model_type == model_type) return family;
  }
  return nullptr;
}

const Family* find_family_of_architecture(std::string_view architecture) {
  const Family* found = nullptr;
  size_t longest = 0;
  for (const Family* family : families()) {
    for (const std::string& prefix : family->architectures) {
      if (prefix.size() <= longest || !architecture.starts_with(prefix)) continue;
      found = family;
      longest = prefix.size();
    }
  }
  return found;
}

std::string known_families(std::string_view model_type) {
  std::vector<std::string> names;
  for (const Family* family : families()) names.push_back(family->model_type);
  const std::string nearest = nearest_name(model_type, names);
  std::string text = nearest.empty() ? "" : str("did you mean \"", nearest, "\"? ");
  text += "zinc has ";
  for (size_t i = 0; i < names.size(); ++i) text += str(i == 0 ? "" : ", ", names[i]);
  return text;
}

}  // namespace zinc::hub
