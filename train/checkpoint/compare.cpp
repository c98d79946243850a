#include "train/checkpoint/compare.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/error.h"

namespace zinc::train {
namespace {

std::string called(const std::string& kind, const std::string& name) {
  return str(kind, " of ", name);
}

ValueDifference compare(const Checkpoint& a, const Checkpoint& b, const std::string& name,
                        const std::string& kind, int64_t numel) {
  ValueDifference difference{.name = name, .kind = kind, .numel = numel};
  const auto room = static_cast<size_t>(std::min(numel, kBlockNumel));
  std::vector<double> of_a(room), of_b(room);
  for (int64_t begin = 0; begin < numel; begin += kBlockNumel) {
    const int64_t count = std::min(kBlockNumel, numel - begin);
    a.read(name, kind, begin, View(of_a.data(), DType::f64, Shape{count}, kCpu));
    b.read(name, kind, begin, View(of_b.data(), DType::f64, Shape{count}, kCpu));
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      if (std::bit_cast<uint64_t>(of_a[i]) == std::bit_cast<uint64_t>(of_b[i])) continue;
      ++difference.differing;
      const double far = std::fabs(of_a[i] - of_b[i]);
      if (!(far <= difference.greatest)) difference.greatest = far;
    }
  }
  return difference;
}

void compare_counters(const Manifest& a, const Manifest& b, std::vector<std::string>& out) {
  const auto add = [&](std::string_view name, const auto& of_a, const auto& of_b) {
    if (of_a != of_b) out.push_back(str(name, ": ", of_a, " and ", of_b));
  };
  add("seed", a.seed, b.seed);
  add("optimizer", a.state.optimizer, b.state.optimizer);
  add("steps", a.state.steps, b.state.steps);
  add("applied", a.state.applied, b.state.applied);
  add("reset_at", a.state.reset_at, b.state.reset_at);
  add("loss scale", a.state.loss_scale.scale, b.state.loss_scale.scale);
  add("schedule", a.state.schedule.updates, b.state.schedule.updates);
  if (a.state.carried != b.state.carried) {
    out.emplace_back("carried: what the optimizer carries from update to update differs");
  }
}

}  // namespace

CheckpointDifference compare(const Checkpoint& a, const Checkpoint& b) {
  CheckpointDifference difference;
  compare_counters(a.manifest(), b.manifest(), difference.counters);
  for (const auto& [name, tensor] : a.tensors()) {
    for (const std::string& kind : tensor.kinds) {
      const std::optional<Shape> shape = a.shape_of(name, kind);
      if (b.shape_of(name, kind) != shape) {
        difference.only_a.push_back(called(kind, name));
        continue;
      }
      ValueDifference values = compare(a, b, name, kind, shape->numel());
      difference.compared += values.numel;
      if (values.differing > 0) difference.values.push_back(std::move(values));
    }
  }
  for (const auto& [name, tensor] : b.tensors()) {
    for (const std::string& kind : tensor.kinds) {
      if (a.shape_of(name, kind) != b.shape_of(name, kind)) {
        difference.only_b.push_back(called(kind, name));
      }
    }
  }
  return difference;
}

}  // namespace zinc::train
