#include "zero/edited_parameters.h"

#include "core/error.h"

namespace zinc::zero {

void check_edited(const std::vector<std::string>& names, const Engine::EditedParameters& values) {
  for (const std::string& name : names) {
    const auto found = values.find(name);
    require(found != values.end(), "engine.edit: '", name, "' was taken out");
    require(found->second.view().is_contiguous(), "engine.edit: '", name, "' must be contiguous");
  }
  require(values.size() == names.size(), "engine.edit: names were added");
}

}  // namespace zinc::zero
