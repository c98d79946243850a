#include "zero/update/update_rules.h"

#include <algorithm>
#include <map>

#include "core/error.h"
#include "core/philox.h"
#include "core/transfer.h"

namespace zinc::zero {
namespace {

using GroupOf = std::map<const autograd::Parameter*, size_t>;

// By parameter: the index of its group.
GroupOf group_of_parameter(nn::Module& model, const std::vector<optim::ParameterGroup>& groups) {
  check_parameter_groups(groups);
  GroupOf group_of;
  const auto parameters = model.parameters();
  for (size_t i = 0; i < groups.size(); ++i) {
    for (const autograd::Parameter* parameter : groups[i].parameters) {
      require(std::find(parameters.begin(), parameters.end(), parameter) != parameters.end(),
              "parameter groups: ", parameter->name(), " of \"", groups[i].name,
              "\" is not a parameter of the engine's model");
      group_of.emplace(parameter, i);
    }
  }
  for (const autograd::Parameter* parameter : parameters) {
    require(!parameter->requires_grad() || group_of.contains(parameter),
            "parameter groups: ", parameter->name(),
            " is in none of them; put it in one, or freeze it");
  }
  return group_of;
}

kernels::ElementPlaces places_of(const autograd::Parameter& parameter) {
  return parameter.slice() ? kernels::ElementPlaces::of(*parameter.slice())
                           : kernels::ElementPlaces();
}

}  // namespace

UpdateRules::UpdateRules(nn::Module& model, const ShardGroups& shard_groups,
                         std::vector<optim::ParameterGroup> groups,
                         const optim::HyperParameters& hyper, bool by_parameter)
    : groups_(std::move(groups)) {
  if (groups_.empty()) {
    const auto parameters = model.parameters();
    groups_ = optim::make_parameter_groups(
        std::vector<autograd::Parameter*>(parameters.begin(), parameters.end()), hyper);
  }
  const GroupOf group_of = group_of_parameter(model, groups_);
  for (const optim::ParameterGroup& group : groups_) {
    require(group.hyper.lr == hyper.lr || hyper.lr > 0.0, "parameter groups: \"", group.name,
            "\" has a learning rate of its own, so that of the configuration must be positive");
    lr_scales_.push_back(group.hyper.lr == hyper.lr ? 1.0 : group.hyper.lr / hyper.lr);
    hyper_.push_back(group.hyper);
    carried_.emplace_back();
  }
  for (const ShardGroup& shard_group : shard_groups) {
    std::vector<Piece>& pieces = pieces_.emplace_back();
    std::vector<const Placement*> trained;
    for (const Placement& placement : shard_group.placements()) {
      if (is_trained(placement.segment)) trained.push_back(&placement);
    }
    std::stable_sort(trained.begin(), trained.end(),
                     [](const Placement* a, const Placement* b) { return a->offset < b->offset; });
    // Padding belongs to the piece of the parameter before it.
    for (const Placement* placement : trained) {
      const size_t group = group_of.at(placement->parameter);
      if (!pieces.empty()) {
        if (pieces.back().group == group && !by_parameter) continue;
        pieces.back().range.end = placement->offset;
        if (pieces.back().range.empty()) pieces.pop_back();
      }
      pieces.push_back(
          {{placement->offset, shard_group.trained_numel()},
           group,
           hash_text(placement->parameter->name()),
           by_parameter ? places_of(*placement->parameter) : kernels::ElementPlaces()});
    }
  }
}

void UpdateRules::follow(const optim::Schedule& schedule, const optim::Optimizer& optimizer,
                         int64_t step) {
  for (size_t i = 0; i < groups_.size(); ++i) {
    hyper_[i] = groups_[i].hyper;
    schedule.apply(hyper_[i], lr_scales_[i]);
    hyper_[i].carried = carried_[i];
    hyper_[i].carried = optimizer.carried(hyper_[i], step);
  }
}

void UpdateRules::applied() {
  for (size_t i = 0; i < groups_.size(); ++i) carried_[i] = hyper_[i].carried;
}

std::vector<double> UpdateRules::carried(const optim::Optimizer& optimizer) const {
  std::vector<double> values;
  for (const optim::Carried& of_group : carried_) {
    values.insert(values.end(), of_group.begin(), of_group.begin() + optimizer.num_carried());
  }
  return values;
}

void UpdateRules::set_carried(const optim::Optimizer& optimizer, std::span<const double> values) {
  const auto each = static_cast<size_t>(optimizer.num_carried());
  require(values.empty() || values.size() == groups_.size() * each,
          "engine.import_state: ", optimizer.name(), " carries ", groups_.size() * each,
          " numbers for ", groups_.size(), " parameter groups, and the state has ", values.size());
  for (size_t i = 0; i < groups_.size(); ++i) {
    carried_[i] = {};
    if (!values.empty()) std::ranges::copy(values.subspan(i * each, each), carried_[i].begin());
  }
}

void UpdateRules::bring_scalars(const optim::Optimizer& optimizer, int64_t step) {
  const optim::WholeRule* const whole = optimizer.whole_rule();
  own_scalars_ = optimizer.num_scalars();
  const auto own = static_cast<size_t>(own_scalars_);
  const auto of_whole = static_cast<size_t>(whole != nullptr ? whole->num_scalars() : 0);
  const size_t each = own + of_whole;
  if (!scalars_.defined()) {
    scalars_ = Tensor::empty({static_cast<int64_t>(groups_.size()), static_cast<int64_t>(each)},
                             DType::f32, Label::workspace);
  }
  std::vector<float> values(groups_.size() * each);
  for (size_t i = 0; i < groups_.size(); ++i) {
    const std::span<float> of_group = std::span(values).subspan(i * each, each);
    if (own > 0) optimizer.scalars(hyper_[i], step, of_group.first(own));
    if (of_whole > 0) whole->scalars(hyper_[i], step, of_group.subspan(own));
  }
  upload(values.data(), scalars_.view(), Context::current().compute());
}

std::vector<UpdateRules::RuledRange> UpdateRules::ranges(int shard_group, Range range) const {
  std::vector<RuledRange> parts;
  for (const Piece& piece : pieces_[shard_group]) {
    const Range inside = intersect(piece.range, range);
    if (inside.empty()) continue;
    const auto scalars = [&](int64_t begin, int64_t count) {
      if (!scalars_.defined() || count == 0) return ConstView();
      const ConstView all = scalars_.view().reshape(Shape{scalars_.numel()});
      return all.narrow(0, static_cast<int64_t>(piece.group) * scalars_.dim(1) + begin, count);
    };
    const int64_t each = scalars_.defined() ? scalars_.dim(1) : 0;
    parts.push_back({.range = inside,
                     .hyper = hyper_[piece.group],
                     .scalars = scalars(0, own_scalars_),
                     .whole_scalars = scalars(own_scalars_, each - own_scalars_),
                     .site = piece.site,
                     .first_element = inside.begin - piece.range.begin,
                     .places = piece.places});
  }
  return parts;
}

uint64_t UpdateRules::hash() const {
  std::string text;
  for (const optim::ParameterGroup& group : groups_) {
    const optim::HyperParameters& h = group.hyper;
    text += str(group.name, ' ', h.lr, ' ', h.weight_decay, ' ', h.momentum, ' ', h.beta1, ' ',
                h.beta2, ' ', h.eps, ':');
    for (const autograd::Parameter* parameter : group.parameters) {
      text += str(' ', parameter->name());
    }
  }
  return hash_text(text);
}

}  // namespace zinc::zero
