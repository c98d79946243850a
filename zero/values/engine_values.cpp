#include "zero/values/engine_values.h"

#include <algorithm>
#include <exception>
#include <span>
#include <utility>

#include "autograd/resident_source.h"
#include "comm/gather_values.h"
#include "core/error.h"
#include "core/host_stream.h"
#include "core/transfer.h"
#include "kernels/scale.h"
#include "parallel/tensor_ranks.h"

namespace zinc::zero {
namespace {

// The dtype in which the parameter's values are read.
DType wide_dtype(const nn::Parameter& parameter) {
  return parameter.dtype() == DType::f64 ? DType::f64 : DType::f32;
}

// Host memory of the parameter's shape in that dtype.
Tensor host_tensor(const nn::Parameter& parameter) {
  return Tensor::empty(parameter.shape(), wide_dtype(parameter));
}

View flat(const Tensor& values) { return values.view().reshape(Shape{values.numel()}); }

// The bytes of the largest piece that any rank hands out. All ranks take the same memory.
int64_t room_bytes(const ShardGroups& groups, int world) {
  int64_t bytes = 0;
  for (const ShardGroup& group : groups) {
    for (const Placement& placement : group.placements()) {
      const int64_t shard = group.segment(placement.segment).size / world;
      const int64_t most = std::min({placement.range().size(), shard, kPieceNumel});
      bytes = std::max(bytes, most * size_of(group.wide_dtype()));
    }
  }
  return bytes;
}

// InvalidArgument where the source lacks anything that the model has, or has it in another shape.
// `shape_of`: the shape of a parameter's values of a kind; absent: it has none.
void require_fit(
    const StateSource& source, nn::Model& model, std::span<const std::string_view> kinds,
    const std::function<std::optional<Shape>(const nn::Parameter&, size_t kind)>& shape_of) {
  std::vector<std::string> problems;
  for (const nn::Parameter* parameter : model.parameters()) {
    if (parameter->numel() == 0) continue;
    for (size_t i = 0; i < kinds.size(); ++i) {
      const std::string_view kind = kinds[i];
      const std::optional<Shape> wanted = shape_of(*parameter, i);
      if (!wanted) continue;
      const std::optional<Shape> shape = source.shape_of(parameter->name(), kind);
      if (!shape) {
        problems.push_back(str(kind, " of ", parameter->name(), ": missing"));
      } else if (*shape != *wanted) {
        problems.push_back(
            str(kind, " of ", parameter->name(), ": shape ", *shape, ", the model has ", *wanted));
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
void check_edited(const std::vector<std::string>& names, const EditedParameters& values) {
  for (const std::string& name : names) {
    const auto found = values.find(name);
    require(found != values.end(), "engine.edit: '", name, "' was taken out");
    require(found->second.view().is_contiguous(), "engine.edit: '", name, "' must be contiguous");
  }
  require(values.size() == names.size(), "engine.edit: names were added");
}

// The reasons why a parameter has no values after an engine.
constexpr const char* kSharded =
    "their engine has ended, and on stage 3, or in a pipeline, this rank did not have them whole; "
    "call engine.release_to_model() before its end, or load weights again";
constexpr const char* kSliced =
    "their engine has ended, and every rank had a slice of them; load weights again";
constexpr const char* kEncoded =
    "their engine has ended, and kept them quantized; call engine.release_to_model() before its "
    "end, or load weights again";
constexpr const char* kPartWay =
    "their engine ended part way through an update; call engine.step() and "
    "engine.finish_update() before its end, or load weights again";

// Ends an update that is under way. False if that failed.
bool finish_late(const Stores& stores) {
  if (stores.update == nullptr || !stores.update->is_pending()) return true;
  if (std::uncaught_exceptions() > 0) return false;  // other ranks may not make the same call
  try {
    stores.update->finish();
  } catch (...) {  // a use of the parameters reports it
    return false;
  }
  return true;
}

}  // namespace

std::vector<std::string_view> EngineValues::kinds() const {
  std::vector<std::string_view> kinds{kWeightsKind};
  for (const std::string_view state : parts_.optimizer.state_names()) kinds.push_back(state);
  if (parts_.step == nullptr || !parts_.step->has_sent_signs()) return kinds;
  for (const std::string& error : parts_.stores.signs->error_names()) kinds.push_back(error);
  return kinds;
}

bool EngineValues::has_kind(const nn::Parameter& parameter, int plane) const {
  if (plane == kMasterPlane) return true;
  const ParameterIndex index = index_of(parameter, parts_.groups);
  // The ranks of a pipeline that have the parameter look themselves.
  if (index == kInNoGroup) return false;
  if (is_error(plane)) return is_trained(parts_.groups.at(index).segment);
  if (is_vector(plane)) return vector_shape(parameter, plane).has_value();
  const SegmentKind segment = parts_.groups.at(index).segment;
  return is_trained(segment) && has_plane(parts_.optimizer.states(), segment, plane);
}

std::optional<Shape> EngineValues::vector_shape(const nn::Parameter& parameter, int plane) const {
  if (!parts_.whole.contains(&parameter) || parameter.numel() == 0) return std::nullopt;
  return parts_.optimizer.whole_rule()->vector_shape(
      parameter.whole_shape(), plane - first_vector(parts_.optimizer.states()));
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

int EngineValues::plane_of(const nn::Parameter& parameter, std::string_view state) const {
  const std::vector<std::string_view> all = kinds();
  const auto error = std::find(all.begin() + first_error(), all.end(), state);
  const int plane = error == all.end() ? kFirstStatePlane + parts_.optimizer.state_index(state)
                                       : static_cast<int>(error - all.begin());
  require_trained_in_pipeline(parameter);
  if (is_here(parameter)) require_trained(parts_.groups.at(index_of(parameter, parts_.groups)));
  const bool is_whole = parts_.whole.contains(&parameter);
  const SegmentKind segment = is_whole ? SegmentKind::whole : SegmentKind::trained;
  const bool has = is_error(plane)    ? true
                   : is_vector(plane) ? vector_shape(parameter, plane).has_value()
                                      : has_plane(parts_.optimizer.states(), segment, plane);
  if (!has) {
    std::string names;
    for (int other = kFirstStatePlane; other < first_error(); ++other) {
      const bool is_its = is_vector(other) ? vector_shape(parameter, other).has_value()
                                           : has_plane(parts_.optimizer.states(), segment, other);
      if (is_its) names += str(" ", all[static_cast<size_t>(other)]);
    }
    throw InvalidArgument(str("parameter '", parameter.name(), "' has no state called '", state,
                              "': the update rule takes it ",
                              is_whole ? "as a whole" : "element by element",
                              ", with the states:", names.empty() ? " none" : names));
  }
  return plane;
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
  const ParameterIndex index = index_of(parameter, parts_.groups);
  const int plane = state ? plane_of(parameter, *state) : kMasterPlane;
  if (is_vector(plane)) return on_all_stages(parameter, read_vector(parameter, plane));
  if (is_error(plane)) return read_error(parameter, plane);
  const Tensor values = host_tensor(parameter);
  if (state) {
    if (is_here(parameter)) weights().read_state(index, plane, flat(values));
  } else if (is_here(parameter)) {
    weights().read_master(index, flat(values));
  }
  return on_all_stages(parameter, values);
}

Tensor EngineValues::read_vector(const nn::Parameter& parameter, int plane) {
  const Tensor values = Tensor::empty(*vector_shape(parameter, plane), wide_dtype(parameter));
  if (!is_here(parameter) || values.numel() == 0) return values;
  const ParameterIndex index = index_of(parameter, parts_.groups);
  const StreamRef stream = context().compute();
  transfer(phase().vector(index, plane - first_vector(parts_.optimizer.states())), values.view(),
           stream);
  comm::Communicator& ranks = parts_.world.shards().communicator();
  if (ranks.size() > 1) {
    ranks.broadcast({.inout = flat(values), .root = phase().owner(index)}, stream).wait();
  }
  return values;
}

Tensor EngineValues::read_error(const nn::Parameter& parameter, int plane) {
  const Tensor values = Tensor::zeros(parameter.shape(), DType::f32);
  if (values.numel() == 0) return values;
  const SignSums::OwnError own =
      parts_.stores.signs->own_error(index_of(parameter, parts_.groups), plane - first_error());
  const StreamRef stream = context().compute();
  if (own.values) {
    transfer(own.values, flat(values).narrow(0, own.part.begin, own.part.size()), stream);
  }
  // All other ranks have zeros in its place.
  comm::Communicator& ranks = parts_.world.shards().communicator();
  if (ranks.size() == 1) return values;
  const int64_t bytes =
      ranks.workspace_bytes(comm::Collective::all_reduce, values.view().bytes(), DType::f32);
  const Block workspace = context().allocate(bytes, Label::communication);
  ranks
      .all_reduce(
          {.inout = flat(values),
           .workspace = View(workspace.data(), DType::u8, Shape{bytes}, context().device())},
          stream)
      .wait();
  return values;
}

Tensor EngineValues::read(std::string_view name, std::optional<std::string_view> state) {
  const nn::Parameter& parameter = parts_.model.parameter(name);
  return whole_of(parameter, read_here(parameter, state));
}

bool EngineValues::is_made(const autograd::Parameter& parameter) const {
  return parts_.optimizer.evaluates_apart() && parameter.requires_grad();
}

void EngineValues::make_for_use(ParameterIndex index, Range range, const std::vector<View>& planes,
                                const View& out) {
  for (const UpdateRules::RuledRange& part : parts_.rules.ranges(index.group, range)) {
    const auto cut = [&](const View& of) {
      return of.narrow(0, part.range.begin - range.begin, part.range.size());
    };
    optim::Update update{.weights = cut(planes.front()), .model_weights = cut(out)};
    for (size_t i = 1; i < planes.size(); ++i) update.states[i - 1] = cut(planes[i]);
    parts_.optimizer.evaluated(update, part.hyper, context().compute());
  }
}

Tensor EngineValues::read_for_use_here(const nn::Parameter& parameter) {
  if (!is_made(parameter) || parameter.numel() == 0) return read_here(parameter, {});
  const Tensor values = host_tensor(parameter);
  if (is_here(parameter)) {
    const ParameterIndex index = index_of(parameter, parts_.groups);
    std::vector<Tensor> planes{host_tensor(parameter)};
    weights().read_master(index, flat(planes.front()));
    for (int i = 0; i < parts_.optimizer.num_states(); ++i) {
      planes.push_back(host_tensor(parameter));
      weights().read_state(index, kFirstStatePlane + i, flat(planes.back()));
    }
    std::vector<View> views;
    for (const Tensor& plane : planes) views.push_back(flat(plane));
    make_for_use(index, parts_.groups.at(index).range(), views, flat(values));
    context().compute()->synchronize();
  }
  return on_all_stages(parameter, values);
}

Tensor EngineValues::read_for_use(std::string_view name) {
  const nn::Parameter& parameter = parts_.model.parameter(name);
  return whole_of(parameter, read_for_use_here(parameter));
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
                        const std::function<void(EditedParameters&)>& change, int modifier) {
  ++num_set_;
  require(modifier >= 0 && modifier < parts_.world.size(), "engine.edit: rank ", modifier,
          " is not in a world of ", parts_.world.size());
  EditedParameters values;
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
        {.views =
             [this](const OwnedRange& slice) { return parts_.stores.gradients->gradient(slice); }},
        flat(values));
    kernels::scale({.x = flat(values), .factor = 1.0 / divided_by, .y = flat(values)},
                   context().compute());
  }
  const Tensor whole = whole_of(parameter, on_all_stages(parameter, values));
  context().compute()->synchronize();
  return whole;
}

bool EngineValues::hands_out(const autograd::Parameter& parameter) const {
  // The first of several ranks that have a parameter hands it out.
  const comm::World* const tensor = parts_.world.tensor();
  const bool is_main = tensor == nullptr || tensor->is_main();
  return (parameter.slice() || is_main) &&
         (parts_.cut == nullptr || parts_.cut->speaks_for(parameter));
}

void EngineValues::read_own(Own what, const TakeOwn& take, bool hold) {
  const std::vector<std::string_view> all = kinds();
  const bool holds = hold && can_hold();
  if (holds && parts_.stores.swapped != nullptr) {
    require(!parts_.rules.gate().is_held(),
            "engine.read_own: values in swap space are held by one at a time: let go of those of "
            "before");
    if (!own_reader_) own_reader_.emplace(*parts_.stores.swapped, context());
    own_reader_->begin();
  }
  const comm::Communicator& ranks = parts_.world.shards().communicator();
  // Weights for use are made from a piece of every plane.
  const int num_rooms = parts_.optimizer.evaluates_apart() ? 2 + parts_.optimizer.num_states() : 1;
  constexpr int64_t kUnit = 512;  // memory is handed out in such units
  const int64_t each = (room_bytes(parts_.groups, ranks.size()) + kUnit - 1) / kUnit * kUnit;
  const Block room = context().allocate(num_rooms * each, Label::staging);
  context().compute()->synchronize();
  std::vector<std::byte> in_host;
  for (const ShardGroup& group : parts_.groups) {
    for (size_t position = 0; position < group.placements().size(); ++position) {
      const Placement& placement = group.placements()[position];
      const autograd::Parameter& parameter = *placement.parameter;
      if (placement.range().empty() || !hands_out(parameter)) continue;
      const ParameterIndex index{group.index(), static_cast<int>(position)};
      const bool trained = is_trained(placement.segment);
      const Range part = intersect(
          placement.range(), group.segment(placement.segment).shard(ranks.rank(), ranks.size()));
      const bool has_states = trained && what == Own::weights_and_states;
      // One kind after the other: a file of them is written from its begin to its end.
      for (size_t plane = 0; plane < (has_states ? all.size() : 1); ++plane) {
        if (static_cast<int>(plane) >= first_vector(parts_.optimizer.states())) break;
        if (!has_plane(parts_.optimizer.states(), placement.segment, static_cast<int>(plane))) {
          continue;
        }
        for (int64_t begin = part.begin; begin < part.end; begin += kPieceNumel) {
          const Range piece{begin, std::min(begin + kPieceNumel, part.end)};
          OwnPiece own{.name = parameter.name(),
                       .kind = all[plane],
                       .slice = parameter.slice() ? &*parameter.slice() : nullptr,
                       .part = part.from(placement.offset),
                       .begin = begin - placement.offset,
                       .values = {}};
          const bool is_used = what == Own::weights && is_made(parameter);
          const bool is_held = holds && trained && !is_used;
          if (take && is_held) own.lease = parts_.rules.gate().hold(group.index(), piece);
          std::vector<View> rooms;
          for (int i = 0; i < (is_used ? num_rooms : 1); ++i) {
            rooms.emplace_back(static_cast<std::byte*>(room.data()) + i * each, group.wide_dtype(),
                               Shape{piece.size()}, context().device());
          }
          std::vector<std::byte>* const host = take ? &in_host : nullptr;
          if (is_used) {
            find_used(own, index, piece, rooms, host);
          } else {
            find_own(own, index, static_cast<int>(plane), piece, rooms.front(), host, is_held);
          }
          if (take) take(own);
        }
      }
      if (has_states && parts_.whole.contains(&parameter) && phase().owner(index) == ranks.rank()) {
        read_own_vectors(index, take, in_host);
      }
      if (has_states) read_own_errors(index, take, in_host);
    }
  }
}

void EngineValues::read_own_vectors(ParameterIndex index, const TakeOwn& take,
                                    std::vector<std::byte>& in_host) {
  const nn::Parameter& parameter =
      parts_.model.parameter(parts_.groups.at(index).parameter->name());
  const std::vector<std::string_view> all = kinds();
  const int first = first_vector(parts_.optimizer.states());
  for (int plane = first; plane < first_error(); ++plane) {
    const std::optional<Shape> shape = vector_shape(parameter, plane);
    if (!shape || !take || context().device().meta) continue;
    const View vector = phase().vector(index, plane - first).reshape(Shape{shape->numel()});
    for (int64_t begin = 0; begin < vector.numel(); begin += kPieceNumel) {
      const View piece = vector.narrow(0, begin, std::min(kPieceNumel, vector.numel() - begin));
      OwnPiece own{.name = parameter.name(),
                   .kind = all[static_cast<size_t>(plane)],
                   .shape = &*shape,
                   .part = {0, vector.numel()},
                   .begin = begin,
                   .values = piece};
      if (!context().device().is_cpu()) {
        in_host.resize(static_cast<size_t>(piece.bytes()));
        download(piece, in_host.data(), context().compute());
        own.values = {in_host.data(), piece.dtype(), piece.shape(), kCpu};
      }
      take(own);
    }
  }
}

void EngineValues::read_own_errors(ParameterIndex index, const TakeOwn& take,
                                   std::vector<std::byte>& in_host) {
  if (!take || context().device().meta) return;
  const std::vector<std::string_view> all = kinds();
  for (int plane = first_error(); plane < static_cast<int>(all.size()); ++plane) {
    const SignSums::OwnError error = parts_.stores.signs->own_error(index, plane - first_error());
    for (int64_t begin = 0; begin < error.part.size(); begin += kPieceNumel) {
      const View piece =
          error.values.narrow(0, begin, std::min(kPieceNumel, error.part.size() - begin));
      OwnPiece own{.name = parts_.groups.at(index).parameter->name(),
                   .kind = all[static_cast<size_t>(plane)],
                   .part = error.part,
                   .begin = error.part.begin + begin,
                   .values = {}};
      if (piece.tier() == Tier::pinned_host) {
        own.values = host_memory(piece);
      } else {
        bring_to_host(own, piece, &in_host);
      }
      take(own);
    }
  }
}

void EngineValues::find_own(OwnPiece& own, ParameterIndex index, int plane, Range range,
                            const View& room, std::vector<std::byte>* in_host, bool is_held) {
  if (is_held && own_reader_) {
    own.read = [reader = &*own_reader_, group = index.group, range, plane](View out) {
      reader->read(group, range, plane, out);
    };
    return;
  }
  const ConstView kept = weights().own_in_place(index, plane, range);
  if (kept && kept.dtype() == room.dtype()) {
    own.values = kept;
    return;
  }
  if (kept && is_held) {
    const Encoding encoding = weights().encoding(index, plane);
    own.read = [kept, encoding](View out) { encoding.widen(kept, out); };
    return;
  }
  const Device device = context().device();
  bug_check(!is_held || device.meta, "values of ", own.name,
            " are held, and do not stay where they are");
  weights().read_own(index, plane, range, room);
  bring_to_host(own, room, in_host);
}

void EngineValues::bring_to_host(OwnPiece& own, const View& values,
                                 std::vector<std::byte>* in_host) {
  own.values = values;
  const Device device = context().device();
  if (device.meta || device.is_cpu() || in_host == nullptr) return;
  in_host->resize(static_cast<size_t>(values.bytes()));
  download(values, in_host->data(), context().compute());
  own.values = {in_host->data(), values.dtype(), values.shape(), kCpu};
}

void EngineValues::find_used(OwnPiece& own, ParameterIndex index, Range range,
                             const std::vector<View>& rooms, std::vector<std::byte>* in_host) {
  const std::vector<View> planes(rooms.begin() + 1, rooms.end());
  for (size_t plane = 0; plane < planes.size(); ++plane) {
    weights().read_own(index, static_cast<int>(plane), range, planes[plane]);
  }
  make_for_use(index, range, planes, rooms.front());
  context().compute()->synchronize();
  bring_to_host(own, rooms.front(), in_host);
}

OwnBytes EngineValues::own_bytes() const {
  OwnBytes bytes;
  for (const ShardGroup& group : parts_.groups) {
    for (const Segment& segment : group.segments()) {
      const int64_t plane = segment.size / group.world() * size_of(group.wide_dtype());
      if (is_trained(segment.kind)) {
        const Planes states = state_planes(parts_.optimizer.states(), segment.kind);
        bytes.trained += plane * (1 + states.count());
      } else {
        bytes.frozen += plane;
      }
    }
  }
  if (parts_.stores.update != nullptr && parts_.stores.update->whole_phase() != nullptr) {
    bytes.vectors = phase().vector_bytes();
  }
  if (parts_.stores.signs != nullptr) bytes.vectors += parts_.stores.signs->error_bytes();
  return bytes;
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
  wanted.resize(options.optimizer_states ? static_cast<size_t>(first_error()) : 1);
  if (takes_errors(source, options)) {
    for (const std::string& error : parts_.stores.signs->error_names()) wanted.push_back(error);
  }
  comm::together(parts_.world, "import a state", [&] {
    if (options.strict) {
      require_fit(source, parts_.model, wanted, [this](const nn::Parameter& parameter, size_t i) {
        const int plane = static_cast<int>(i);
        if (!has_kind(parameter, plane)) return std::optional<Shape>();
        return is_vector(plane) ? vector_shape(parameter, plane)
                                : std::optional(parameter.whole_shape());
      });
    }
    ++num_set_;
    is_mixed_ = true;
    load_from(source, wanted, options);
  });
  is_mixed_ = false;
}

bool EngineValues::takes_errors(const StateSource& source, const ImportOptions& options) const {
  if (parts_.stores.signs == nullptr) return false;
  const TrainingState& state = source.state();
  const bool has_sent =
      parts_.optimizer.sign_reduction()->sends_signs(state.applied - state.reset_at);
  if (!has_sent || !options.optimizer_states || !options.counters || !options.sign_errors) {
    return false;
  }
  std::vector<std::string> there;
  std::ranges::copy_if(state.kinds, std::back_inserter(there),
                       [](const std::string& kind) { return kind.starts_with(kSignErrorKind); });
  const std::vector<std::string>& here = parts_.stores.signs->error_names();
  const auto ranks = [](const std::vector<std::string>& errors) {
    return errors.empty() ? 1 : errors.size() - 1;
  };
  require(there == here, "engine.import_state: the state has what the signs of ", ranks(there),
          " ranks left out, and here are ", ranks(here),
          ": it belongs to the ranks that sent them; start as many, or let it begin at zero: "
          "--reset-errors");
  return true;
}

void EngineValues::load_from(const StateSource& source, const std::vector<std::string_view>& kinds,
                             const ImportOptions& options) {
  const auto has = [&](const autograd::Parameter& parameter, int plane) {
    return source.shape_of(parameter.name(), kinds[static_cast<size_t>(plane)]) ==
           parameter.whole_shape();
  };
  std::vector<ReadValues> planes;
  for (const std::string_view kind : kinds) {
    if (static_cast<int>(planes.size()) >= first_vector(parts_.optimizer.states())) break;
    planes.emplace_back(
        [&source, kind](const autograd::Parameter& parameter, int64_t begin, const View& out) {
          read_slice(parameter.slice(), begin, out, [&](int64_t at, const View& part) {
            source.read(parameter.name(), kind, at, part);
          });
        });
  }
  weights().load(planes, options.strict ? HasValues() : has);
  load_vectors(source, kinds, options.strict);
  if (parts_.stores.signs != nullptr) load_errors(source, kinds);
  if (options.counters) parts_.step->restore(source.state(), !options.optimizer_states);
}

void EngineValues::load_errors(const StateSource& source,
                               const std::vector<std::string_view>& kinds) {
  SignSums& signs = *parts_.stores.signs;
  signs.forget_last();
  const int num_errors = static_cast<int>(signs.error_names().size());
  std::vector<std::byte> values;
  for (const nn::Parameter* parameter : parts_.model.parameters()) {
    const ParameterIndex index = index_of(*parameter, parts_.groups);
    if (!parameter->requires_grad() || parameter->numel() == 0) continue;
    for (int which = 0; which < num_errors; ++which) {
      const SignSums::OwnError error = signs.own_error(index, which);
      if (!error.values) continue;
      values.assign(static_cast<size_t>(error.values.bytes()), std::byte{});
      const auto plane = static_cast<size_t>(first_error() + which);
      if (plane < kinds.size()) {
        source.read(parameter->name(), kinds[plane], error.part.begin,
                    View(values.data(), DType::f32, error.values.shape(), kCpu));
      }
      upload(values.data(), error.values, context().compute());
    }
  }
}

void EngineValues::load_vectors(const StateSource& source,
                                const std::vector<std::string_view>& kinds, bool strict) {
  const int first = first_vector(parts_.optimizer.states());
  const int end = std::min(first_error(), static_cast<int>(kinds.size()));
  std::vector<std::byte> values;
  for (const nn::Parameter* parameter : parts_.model.parameters()) {
    for (int plane = first; plane < end; ++plane) {
      if (!has_kind(*parameter, plane)) continue;
      const std::string_view kind = kinds[static_cast<size_t>(plane)];
      const std::optional<Shape> shape = vector_shape(*parameter, plane);
      if (!strict && source.shape_of(parameter->name(), kind) != shape) continue;
      const View vector = phase().vector(index_of(*parameter, parts_.groups), plane - first);
      if (vector.numel() == 0) continue;
      values.resize(static_cast<size_t>(vector.bytes()));
      const Shape elements{vector.numel()};
      source.read(parameter->name(), kind, 0, View(values.data(), vector.dtype(), elements, kCpu));
      upload(values.data(), vector, context().compute());
    }
  }
}

void EngineValues::release_to_model() {
  std::vector<Tensor> values;
  for (const nn::Parameter* parameter : parts_.model.parameters()) {
    values.push_back(Tensor::empty(parameter->shape(), parameter->dtype(), Label::parameters));
    values.back().copy_from(read_for_use_here(*parameter));
  }
  size_t i = 0;
  for (nn::Parameter* parameter : parts_.model.parameters()) {
    parameter->reset_source();
    parameter->adopt_data(std::move(values[i++]));
  }
}

void EngineValues::leave(bool may_use) noexcept {
  const bool is_part_way = parts_.step != nullptr && parts_.step->is_updating();
  const bool complete = !is_part_way && finish_late(parts_.stores) && may_use;
  std::vector<std::pair<autograd::Parameter*, Tensor>> whole;
  if (complete) whole = parts_.stores.weights->hand_over();
  for (nn::Parameter* parameter : parts_.model.parameters()) {
    const bool was_released = &parameter->source() == &autograd::resident_source();
    if (was_released && !parameter->slice()) continue;
    parameter->reset_source();
    parameter->lose_data(parameter->slice()                      ? kSliced
                         : !complete                             ? kPartWay
                         : parameter->block_format().has_value() ? kEncoded
                                                                 : kSharded);
  }
  for (auto& [parameter, values] : whole) {
    if (!parameter->has_data() && !parameter->slice()) parameter->adopt_data(std::move(values));
  }
}

}  // namespace zinc::zero
