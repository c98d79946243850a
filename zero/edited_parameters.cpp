#include "zero/edited_parameters.h"

#include <exception>

#include "core/error.h"
#include "zero/gather_values.h"

namespace zinc::zero {
namespace {

// InvalidArgument unless `values` has exactly these names, each with contiguous values.
void check_edited(const std::vector<std::string>& names, const Engine::EditedParameters& values) {
  for (const std::string& name : names) {
    const auto found = values.find(name);
    require(found != values.end(), "engine.edit: '", name, "' was taken out");
    require(found->second.view().is_contiguous(), "engine.edit: '", name, "' must be contiguous");
  }
  require(values.size() == names.size(), "engine.edit: names were added");
}

}  // namespace

void edit_parameters(comm::World& world, const std::vector<std::string>& names,
                     const std::function<void(Engine::EditedParameters&)>& change, int modifier,
                     const std::function<Tensor(const std::string&)>& read,
                     const std::function<void(const std::string&, const Tensor&)>& write) {
  require(modifier >= 0 && modifier < world.size(), "engine.edit: rank ", modifier,
          " is not in a world of ", world.size());
  Engine::EditedParameters values;
  for (const std::string& name : names) values.emplace(name, read(name));
  std::exception_ptr failure;
  try {
    change(values);
    check_edited(names, values);
  } catch (...) {
    failure = std::current_exception();
  }
  const bool failed = any_rank(world, failure != nullptr);
  if (failure != nullptr) std::rethrow_exception(failure);
  if (failed) throw InvalidArgument("engine.edit: the change failed on another rank");
  for (const std::string& name : names) {
    const Tensor& edited = values.find(name)->second;
    const View whole = edited.view().reshape(Shape{edited.numel()});
    world.communicator()
        .broadcast({.inout = whole, .root = modifier}, world.context().compute())
        .wait();
    write(name, edited);
  }
}

}  // namespace zinc::zero
