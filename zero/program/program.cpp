#include "zero/program/program.h"

#include <array>
#include <cstddef>

#include "core/error.h"
#include "core/philox.h"

namespace zinc::zero {

std::string_view name_of(EventKind kind) {
  static constexpr std::array<std::string_view, 5> kNames{"begin", "use of", "release of",
                                                          "finished gradient of", "end"};
  return kNames[static_cast<size_t>(kind)];
}

std::string_view name_of(OpKind kind) {
  static constexpr std::array<std::string_view, 11> kNames{
      "read",   "gather",    "release", "reduce",  "norm", "decide",
      "direct", "transform", "update",  "publish", "join"};
  return kNames[static_cast<size_t>(kind)];
}

bool has_group(OpKind kind) { return kind != OpKind::norm && kind != OpKind::decide; }

std::string name_of(const MicroBatchKind& kind) {
  const char* const name =
      kind.first ? (kind.last ? "only" : "first") : (kind.last ? "last" : "middle");
  return kind.part == 0 ? name : str(name, ", part ", kind.part + 1);
}

namespace {

template <class PlacePointer, class Of>
std::vector<PlacePointer> places_of(Of& body) {
  std::vector<PlacePointer> places;
  for (auto* phase : {&body.forward, &body.backward, &body.weights}) {
    for (auto& place : *phase) places.push_back(&place);
  }
  return places;
}

uint64_t hash_phase(uint64_t hash, const Phase& phase) {
  const auto mix = [&hash](int64_t value) {
    hash = combine_bits(hash, static_cast<uint64_t>(value));
  };
  for (const Place& place : phase) {
    mix(static_cast<int64_t>(place.event.kind));
    mix(place.event.parameter.group);
    mix(place.event.parameter.position);
    mix(place.event.micro_batch);
    for (const auto* ops : {&place.before, &place.after}) {
      mix(static_cast<int64_t>(ops->size()));
      for (const Op& op : *ops) {
        mix(static_cast<int64_t>(op.kind));
        mix(op.group);
        mix(op.micro_batch);
      }
    }
  }
  return hash;
}

}  // namespace

std::vector<const Phase*> Body::phases() const {
  std::vector<const Phase*> all{&forward, &backward};
  if (!weights.empty()) all.push_back(&weights);
  return all;
}
std::vector<Place*> Body::timeline() { return places_of<Place*>(*this); }
std::vector<const Place*> Body::timeline() const { return places_of<const Place*>(*this); }

std::vector<const Phase*> Program::phases() const {
  std::vector<const Phase*> all{&evaluation};
  for (const auto& [kind, body] : bodies) {
    for (const Phase* phase : body.phases()) all.push_back(phase);
  }
  all.push_back(&step);
  return all;
}

std::vector<std::vector<Place*>> Program::timelines() {
  std::vector<std::vector<Place*>> all(1);
  for (Place& place : evaluation) all.front().push_back(&place);
  for (auto& [kind, body] : bodies) all.push_back(body.timeline());
  return all;
}

uint64_t Program::hash() const {
  uint64_t hash = hash_phase(hash_phase(0, evaluation), step);
  for (const auto& [kind, body] : bodies) {
    for (const Phase* phase : body.phases()) hash = hash_phase(hash, *phase);
  }
  for (const parallel::PipelineOp& op : pipeline) {
    hash = combine_bits(hash, static_cast<uint64_t>(op.work));
    hash = combine_bits(hash, static_cast<uint64_t>(op.micro_batch));
    hash = combine_bits(hash, static_cast<uint64_t>(op.part));
  }
  for (const int group : resident) hash = combine_bits(hash, static_cast<uint64_t>(group));
  return hash;
}

std::vector<std::vector<int>> Program::whole_windows() const {
  std::vector<std::vector<int>> windows;
  std::vector<int> directed;
  for (const Place& place : step) {
    for (const auto* ops : {&place.before, &place.after}) {
      for (const Op& op : *ops) {
        if (op.kind == OpKind::direct) directed.push_back(op.group);
        if (op.kind == OpKind::transform) windows.push_back(std::exchange(directed, {}));
      }
    }
  }
  return windows;
}

std::vector<int> Program::update_order() const {
  std::vector<int> order;
  const auto add = [&order](const Phase& phase) {
    for (const Place& place : phase) {
      for (const auto* ops : {&place.before, &place.after}) {
        for (const Op& op : *ops) {
          if (op.kind == OpKind::update) order.push_back(op.group);
        }
      }
    }
  };
  const Body& only = bodies.at({.first = true, .last = true});
  for (const Phase* phase : {&only.backward, &step, &only.forward}) add(*phase);
  return order;
}

std::vector<int64_t> gathered_curve(const std::vector<const Place*>& timeline,
                                    const ShardGroups& groups, const std::set<int>& resident) {
  std::vector<int64_t> curve;
  int64_t live = 0;
  for (const Place* place : timeline) {
    for (const auto* ops : {&place->before, &place->after}) {
      for (const Op& op : *ops) {
        if (resident.contains(op.group)) continue;
        const int64_t numel = groups[op.group].gathered_numel();
        if (op.kind == OpKind::gather) live += numel;
        if (op.kind == OpKind::release) live -= numel;
      }
    }
    curve.push_back(live);
  }
  return curve;
}

std::string describe(const StepEvent& event, const ShardGroups& groups) {
  if (event.kind == EventKind::begin || event.kind == EventKind::end) {
    return std::string(name_of(event.kind));
  }
  const std::string beside =
      event.micro_batch > 0 ? str(", micro-batch ", event.micro_batch + 1) : std::string();
  return str(name_of(event.kind), " ", groups.at(event.parameter).parameter->name(), beside);
}

std::string describe(const Op& op, const ShardGroups& groups) {
  if (!has_group(op.kind)) return std::string(name_of(op.kind));
  const std::string& group = groups[op.group].name();
  const std::string beside =
      op.micro_batch > 0 ? str(", micro-batch ", op.micro_batch + 1) : std::string();
  return str(name_of(op.kind), " ", group.empty() ? "(the model itself)" : group, beside);
}

}  // namespace zinc::zero
