#include "train/weights_for_use.h"

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/executor.h"
#include "optim/factory.h"
#include "train/config/config.h"

namespace zinc::train {
namespace {

constexpr std::string_view kConfiguration = "config.resolved.json";

}  // namespace

WeightsForUse::WeightsForUse(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {
  if (!checkpoint.state().apart) return;
  if (const std::optional<std::string> text = checkpoint.text_of(kConfiguration)) {
    const Config config = parse_config(*text, str(checkpoint.path(), '/', kConfiguration),
                                       checkpoint.manifest().world);
    hyper_ = config.engine.optimizer.hyper;
    optimizer_ = optim::make_optimizer(config.engine.optimizer);
    if (optimizer_->evaluates_apart() && optimizer_->name() == checkpoint.state().optimizer) return;
  }
  throw ConfigError(str(
      checkpoint.path(), ": ", checkpoint.state().optimizer,
      " trains with other weights than those for use, and the checkpoint has no ", kConfiguration,
      " that says how the latter are made: take the run's folder best/ or final/, which have them, "
      "or go on with the run (--resume) to its end, which writes final/"));
}

void WeightsForUse::read(std::string_view name, int64_t begin, View out) const {
  const auto has = [&](std::string_view kind) {
    return checkpoint_.shape_of(name, kind).has_value();
  };
  if (optimizer_ == nullptr || !has(optimizer_->state_name(0))) {  // frozen ones have no states
    return checkpoint_.read(name, zero::kWeightsKind, begin, out);
  }
  const DType wide = out.dtype() == DType::f64 ? DType::f64 : DType::f32;
  std::array<std::vector<std::byte>, 1 + optim::kMaxOptimizerStates> rooms;
  const auto values_of = [&](std::string_view kind, std::vector<std::byte>& room) {
    room.resize(static_cast<size_t>(out.numel() * size_of(wide)));
    const View values(room.data(), wide, Shape{out.numel()}, kCpu);
    checkpoint_.read(name, kind, begin, values);
    return values;
  };
  optim::Update update{.weights = values_of(zero::kWeightsKind, rooms[0])};
  for (int i = 0; i < optimizer_->num_states(); ++i) {
    const auto at = static_cast<size_t>(i);
    update.states[at] = values_of(optimizer_->state_name(i), rooms[at + 1]);
  }
  update.model_weights = out;
  optimizer_->evaluated(update, hyper_, *make_inline_stream("weights for use", 0, nullptr));
}

}  // namespace zinc::train
