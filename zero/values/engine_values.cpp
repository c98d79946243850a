#include "zero/values/engine_values.h"

#include <algorithm>
#include <exception>
#include <span>

#include "comm/gather_values.h"
#include "core/error.h"
#include "kernels/scale.h"
#include "parallel/tensor_ranks.h"
#include "zero/values/own_values.h"
#include "zero/values/values_at_end.h"

namespace zinc::zero {
namespace {

// Host memory of the parameter's shape in the optimizer's dtype.
Tensor host_tensor(const nn::Parameter& parameter) {
  return Tensor::empty(parameter.shape(),
                       parameter.dtype() == DType::f64 ? DType::f64 : DType::f32);
}

View flat(const Tensor& values) { return values.view().reshape(Shape{values.numel()}); }

// InvalidArgument where the source lacks anything that the model has, or has it in another shape.
void require_fit(const StateSource& source, nn::Model& model,
                 std::span<const std::string_view> kinds) {
  std::vector<std::string> problems;
  for (const nn::Parameter* parameter : model.parameters()) {
    if (parameter->numel() == 0) continue;
    for (const std::string_view kind : kinds) {
      if (kind != kWeightsKind && !parameter->requires_grad()) continue;
      const std::optional<Shape> shape = source.shape_of(parameter->name(), kind);
      if (!shape) {
        problems.push_back(str(kind, " of ", parameter->name(), ": missing"));
      } else if (*shape != parameter->whole_shape()) {
        problems.push_back(str(kind, " of ", parameter->name(), ": shape ", *shape,
                               ", the model has ", parameter->whole_shape()));
      }
    }
  }
  if (problems.empty()) return;
  constexpr size_t kShown = 10;
  std::string message = "engine.import_state: the state is not of this model and optimizer:";
  for (size_t i = 0; i < std::min(problems.size(), kShown); ++i) message += "\n  " + problems[i];
  if (problems.size() > kShown) {
    message += str("\n  and ", problems.size() - kShown, " more");
  }
  throw InvalidArgument(message);
}

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

std::vector<std::string_view> EngineValues::kinds() const {
  std::vector<std::string_view> kinds{kWeightsKind};
  for (int i = 0; i < parts_.optimizer.num_states(); ++i) {
    kinds.push_back(parts_.optimizer.state_name(i));
  }
  return kinds;
}

void EngineValues::require_one_state() const {
  require(!is_mixed_,
          "engine: import_state() has failed half-way, and values of two states are mixed; import "
          "a whole one first");
}

void EngineValues::require_trained_in_pipeline(const nn::Parameter& parameter) const {
  require(parts_.cut == nullptr || parameter.requires_grad(), "parameter '", parameter.name(),
          "' is frozen: it has neither gradient nor optimizer state");
}

Tensor EngineValues::on_all_stages(const nn::Parameter& parameter, const Tensor& values) {
  if (parts_.cut == nullptr || parameter.numel() == 0) return values;
  parts_.world.pipe()
      ->communicator()
      .broadcast({.inout = flat(values), .root = parts_.cut->holders(parameter).front()},
                 context().compute())
      .wait();
  return values;
}

Tensor EngineValues::whole_of(const nn::Parameter& parameter, const Tensor& here) {
  if (!parameter.slice()) return here;
  return parallel::whole_of(*parts_.world.tensor(), *parameter.slice(), here);
}

Tensor EngineValues::read_here(const nn::Parameter& parameter,
                               std::optional<std::string_view> state) {
  const Tensor values = host_tensor(parameter);
  const ParameterIndex index = index_of(parameter, parts_.groups);
  if (state) {
    const int number = parts_.optimizer.state_index(*state);
    require_trained_in_pipeline(parameter);
    if (is_here(parameter)) weights().read_state(index, number, flat(values));
  } else if (is_here(parameter)) {
    weights().read_master(index, flat(values));
  }
  return on_all_stages(parameter, values);
}

Tensor EngineValues::read(std::string_view name, std::optional<std::string_view> state) {
  const nn::Parameter& parameter = parts_.model.parameter(name);
  return whole_of(parameter, read_here(parameter, state));
}

void EngineValues::write(std::string_view name, const Tensor& values) {
  ++num_set_;
  const nn::Parameter& parameter = parts_.model.parameter(name);
  require(values.shape() == parameter.whole_shape(), "parameter '", name, "' has shape ",
          parameter.whole_shape(), ", the values have ", values.shape());
  if (!is_here(parameter)) return;
  const Tensor here =
      parameter.slice() ? parallel::part_of(*parameter.slice(), values) : values.clone();
  weights().write_master(index_of(parameter, parts_.groups), flat(here));
}

void EngineValues::edit(const std::vector<std::string>& names,
                        const std::function<void(Engine::EditedParameters&)>& change,
                        int modifier) {
  ++num_set_;
  require(modifier >= 0 && modifier < parts_.world.size(), "engine.edit: rank ", modifier,
          " is not in a world of ", parts_.world.size());
  Engine::EditedParameters values;
  for (const std::string& name : names) values.emplace(name, read(name));
  std::exception_ptr failure;
  try {
    change(values);
    check_edited(names, values);
  } catch (...) {
    failure = std::current_exception();
  }
  const bool failed = comm::any_rank(parts_.world, failure != nullptr);
  if (failure != nullptr) std::rethrow_exception(failure);
  if (failed) throw InvalidArgument("engine.edit: the change failed on another rank");
  for (const std::string& name : names) {
    const Tensor& edited = values.find(name)->second;
    const View whole = edited.view().reshape(Shape{edited.numel()});
    parts_.world.communicator()
        .broadcast({.inout = whole, .root = modifier}, context().compute())
        .wait();
    write(name, edited);
  }
}

Tensor EngineValues::gradient(std::string_view name, const std::function<double()>& divisor) {
  const nn::Parameter& parameter = parts_.model.parameter(name);
  require_trained_in_pipeline(parameter);
  const double divided_by = divisor();
  const Tensor values = host_tensor(parameter);
  if (is_here(parameter)) {
    weights().read_owned(
        index_of(parameter, parts_.groups),
        [this](const Slice& slice) { return parts_.strategy.gradients->gradient(slice); },
        flat(values));
    kernels::scale({.x = flat(values), .factor = 1.0 / divided_by, .y = flat(values)},
                   context().compute());
  }
  const Tensor whole = whole_of(parameter, on_all_stages(parameter, values));
  context().compute()->synchronize();
  return whole;
}

void EngineValues::read_own(Engine::Own what, const TakeOwn& take, bool hold) {
  const std::vector<std::string_view> all = kinds();
  const size_t count = what == Engine::Own::weights ? 1 : all.size();
  const bool holds = hold && can_hold();
  if (holds && parts_.strategy.swapped != nullptr) {
    require(!parts_.gate.is_held(),
            "engine.read_own: values in swap space are held by one at a time: let go of those of "
            "before");
    if (!own_reader_) own_reader_.emplace(*parts_.strategy.swapped, context());
    own_reader_->begin();
  }
  const OwnHold held{parts_.gate, own_reader_ ? &*own_reader_ : nullptr};
  // What several ranks have is handed out by the first of them.
  const auto hands_out = [this](const autograd::Parameter& parameter) {
    const comm::World* const tensor = parts_.world.tensor();
    const bool is_main = tensor == nullptr || tensor->is_main();
    return (parameter.slice() || is_main) &&
           (parts_.cut == nullptr || parts_.cut->speaks_for(parameter));
  };
  read_own_values(parts_.groups, weights(), parts_.world.shards().communicator(), context(),
                  std::span(all).first(count), holds ? &held : nullptr, hands_out, take);
}

// Nothing that the optimizer has is on the device, or in memory that the next read uses again.
bool EngineValues::can_hold() const {
  const OffloadConfig& offload = parts_.config.zero.offload_optimizer;
  return offload.device == OffloadDevice::nvme ||
         (offload.device == OffloadDevice::cpu && offload.ratio >= 1.0 &&
          parts_.config.zero.offload_param.device != OffloadDevice::nvme);
}

void EngineValues::import_state(const StateSource& source, const ImportOptions& options) {
  std::vector<std::string_view> wanted = kinds();
  if (!options.optimizer_states) wanted.resize(1);
  comm::together(parts_.world, "import a state", [&] {
    if (options.strict) require_fit(source, parts_.model, wanted);
    ++num_set_;
    is_mixed_ = true;
    load_from(source, wanted, options);
  });
  is_mixed_ = false;
}

void EngineValues::load_from(const StateSource& source, const std::vector<std::string_view>& kinds,
                             const ImportOptions& options) {
  const auto has = [&](const autograd::Parameter& parameter, int plane) {
    return source.shape_of(parameter.name(), kinds[static_cast<size_t>(plane)]) ==
           parameter.whole_shape();
  };
  std::vector<ReadValues> planes;
  for (const std::string_view kind : kinds) {
    planes.emplace_back(
        [&source, kind](const autograd::Parameter& parameter, int64_t begin, const View& out) {
          read_slice(parameter.slice(), begin, out, [&](int64_t at, const View& part) {
            source.read(parameter.name(), kind, at, part);
          });
        });
  }
  weights().load(planes, options.strict ? HasValues() : has);
  if (options.counters) parts_.step.restore(source.state());
}

void EngineValues::release_to_model() {
  release_values(parts_.model, [this](const std::string& name) {
    return read_here(parts_.model.parameter(name), {});
  });
}

}  // namespace zinc::zero
