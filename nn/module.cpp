#include "nn/module.h"

#include <algorithm>
#include <set>

#include "core/context.h"
#include "core/edit_distance.h"
#include "core/error.h"
#include "core/glob.h"
#include "core/transfer.h"
#include "nn/tensor_ranks.h"

namespace zinc::nn {
namespace {

std::string join_path(const std::string& parent, const std::string& name) {
  return parent.empty() ? name : str(parent, ".", name);
}

void append_list(std::string& text, std::string_view title, const std::vector<std::string>& names) {
  if (names.empty()) return;
  if (!text.empty()) text += "; ";
  text += str(title, " ", names.size(), ":");
  constexpr size_t kShown = 8;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) text += str(" ", names[i]);
  if (names.size() > kShown) text += " ...";
}

}  // namespace

std::string to_string(const LoadResult& result) {
  std::string text;
  append_list(text, "missing", result.missing);
  append_list(text, "unexpected", result.unexpected);
  append_list(text, "mismatched", result.mismatched);
  return text.empty() ? "all weights loaded" : text;
}

void InitializerSource::read(const autograd::Parameter& parameter, int64_t begin, View out) const {
  autograd::initialize_range(parameter.initializer(), seed_, parameter.name(), begin, out);
}

Module::Module(Module& parent, std::string name)
    : name_(std::move(name)),
      path_(join_path(parent.path_, name_)),
      parent_(&parent),
      training_(parent.training_) {
  parent.check_name(name_);
  parent.members_.emplace_back(this, nullptr);
  parent.children_.push_back(this);
}

Module::~Module() {
  if (parent_ == nullptr) return;
  std::erase_if(parent_->members_, [this](const auto& member) { return member.first == this; });
  std::erase(parent_->children_, this);
}

void Module::check_name(std::string_view name) const {
  const std::string_view place = path_.empty() ? std::string_view("the root module") : path_;
  require(!name.empty(), "module: a member of ", place, " needs a name");
  require(name.find('.') == std::string_view::npos, "module: the name '", name, "' in ", place,
          " must not contain a dot");
  for (const auto& [module, parameter] : members_) {
    const std::string& taken = module != nullptr ? module->name() : parameter->leaf_name();
    require(taken != name, "module: ", place, " already has a member called '", name, "'");
  }
}

void Module::collect(std::vector<Parameter*>& found) {
  for (const auto& [module, parameter] : members_) {
    if (module != nullptr) {
      module->collect(found);
    } else {
      found.push_back(parameter);
    }
  }
}

std::vector<Parameter*> Module::parameters() {
  std::vector<Parameter*> found;
  collect(found);
  return found;
}

std::vector<std::pair<std::string, Parameter*>> Module::named_parameters() {
  std::vector<std::pair<std::string, Parameter*>> named;
  for (Parameter* parameter : parameters()) named.emplace_back(parameter->name(), parameter);
  return named;
}

std::vector<Module*> Module::modules() {
  std::vector<Module*> found{this};
  for (Module* child : children_) {
    const std::vector<Module*> below = child->modules();
    found.insert(found.end(), below.begin(), below.end());
  }
  return found;
}

int64_t Module::num_parameters() {
  int64_t count = 0;
  for (const Parameter* parameter : parameters()) count += parameter->whole_shape().numel();
  return count;
}

int64_t Module::num_trainable_parameters() {
  int64_t count = 0;
  for (const Parameter* parameter : parameters()) {
    if (parameter->requires_grad()) count += parameter->whole_shape().numel();
  }
  return count;
}

int64_t Module::num_tensor_ranks() const {
  return tensor_ranks_ == nullptr ? 1 : tensor_ranks_->size();
}

void Module::share_over(TensorRanks* ranks) {
  for (Module* module : modules()) {
    if (module->tensor_ranks_ == ranks) continue;
    module->tensor_ranks_ = ranks;
    module->slice_parameters();
    module->on_share();
  }
}

void Module::slice_parameters() {
  const TensorRanks* ranks = tensor_ranks_;
  for (const auto& [module, parameter] : members_) {
    if (parameter == nullptr || parameter->sections_.empty()) continue;
    parameter->set_slice(ranks == nullptr || ranks->size() == 1
                             ? std::optional<TensorSlice>()
                             : TensorSlice::of(parameter->whole_shape(), 0, parameter->sections_,
                                               ranks->rank(), ranks->size()));
  }
}

Parameter& Module::parameter(std::string_view name) {
  std::vector<std::string> names;
  for (Parameter* parameter : parameters()) {
    if (parameter->name() == name) return *parameter;
    names.push_back(parameter->name());
  }
  const std::string near = nearest_name(name, names);
  throw InvalidArgument(str("module: no parameter is called '", name, "'",
                            near.empty() ? "" : "; did you mean '" + near + "'?"));
}

void Module::set_dtype(DType dtype) {
  for (Parameter* parameter : parameters()) parameter->set_dtype(dtype);
}

int64_t Module::set_trainable(std::string_view pattern, bool trainable) {
  int64_t matched = 0;
  for (Parameter* parameter : parameters()) {
    if (!matches_glob(pattern, parameter->name())) continue;
    parameter->set_requires_grad(trainable);
    ++matched;
  }
  require(matched > 0, "module: no parameter matches '", pattern, "'");
  return matched;
}

void Module::train(bool training) {
  apply([training](Module& module) { module.training_ = training; });
}

void Module::apply(const std::function<void(Module&)>& function) {
  for (Module* module : modules()) function(*module);
}

StateDict Module::state_dict() {
  StateDict values;
  for (Parameter* parameter : parameters()) values[parameter->name()] = parameter->data();
  return values;
}

LoadResult Module::load_state_dict(const StateDict& values) {
  LoadResult result;
  std::set<std::string> known;
  for (Parameter* parameter : parameters()) {
    known.insert(parameter->name());
    const auto found = values.find(parameter->name());
    if (found == values.end()) {
      result.missing.push_back(parameter->name());
    } else if (!(found->second.shape() == parameter->shape())) {
      result.mismatched.push_back(
          str(parameter->name(), ": ", parameter->shape(), " vs ", found->second.shape()));
    } else {
      Tensor& data = parameter->overwrite_data();
      // A dictionary of this module's own holds its very tensors.
      if (data.view().data() != found->second.view().data()) data.copy_from(found->second);
    }
  }
  for (const auto& [name, value] : values) {
    if (!known.contains(name)) result.unexpected.push_back(name);
  }
  return result;
}

void require_fit(const WeightSource& source, Module& module) {
  LoadResult result;
  for (Parameter* parameter : module.parameters()) {
    const std::optional<Shape> shape = source.shape_of(*parameter);
    if (!shape) {
      result.missing.push_back(parameter->name());
    } else if (!(*shape == parameter->whole_shape())) {
      result.mismatched.push_back(
          str(parameter->name(), ": ", parameter->whole_shape(), " vs ", *shape));
    }
  }
  if (!result.ok()) throw DataError(str("weights: ", to_string(result)));
}

void Module::load(const WeightSource& source) {
  require_fit(source, *this);
  for (Parameter* parameter : parameters()) {
    const View flat = parameter->overwrite_data().view().reshape(Shape{parameter->numel()});
    if (flat.device().is_cuda()) {
      std::vector<std::byte> values(static_cast<size_t>(flat.bytes()));
      source.read_here(*parameter, 0, View(values.data(), flat.dtype(), flat.shape(), kCpu));
      upload(values.data(), flat, Context::current().compute());
    } else {
      source.read_here(*parameter, 0, flat);
    }
  }
}

void Module::zero_grad() {
  for (Parameter* parameter : parameters()) parameter->zero_grad();
}

void Module::append_tree(std::string& text, int depth) {
  text.append(static_cast<size_t>(2 * depth), ' ');
  text += str(parent_ == nullptr ? std::string("model") : name_, ": ", num_parameters());
  for (const auto& [module, parameter] : members_) {
    if (parameter != nullptr) {
      text += str("  ", parameter->leaf_name(), to_string(parameter->shape()));
      if (!parameter->requires_grad()) text += " frozen";
    }
  }
  text += "\n";
  for (Module* child : children_) child->append_tree(text, depth + 1);
}

std::string Module::tree() {
  std::string text;
  append_tree(text, 0);
  return text;
}

Parameter::Parameter(Module& parent, std::string name, const Shape& shape,
                     const autograd::Initializer& initializer)
    : autograd::Parameter(join_path(parent.path(), name), shape, initializer),
      parent_(&parent),
      leaf_name_(std::move(name)) {
  parent.check_name(leaf_name_);
  parent.members_.emplace_back(nullptr, this);
}

Parameter::~Parameter() {
  std::erase_if(parent_->members_, [this](const auto& member) { return member.second == this; });
}

}  // namespace zinc::nn
