#include "plan/estimator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <utility>

#include "core/error.h"
#include "hub/model.h"

namespace zinc::plan {
namespace {

struct Needs {
  double cpu = 0.0;  // bytes per node
  double gpu = 0.0;  // bytes per GPU
};

std::string row(const Needs& needs, const std::string& options) {
  constexpr double kGiB = 1 << 30;
  return fmt::format(" {:7.2f}GB | {:6.2f}GB | {}\n", std::floor(needs.cpu) / kGiB,
                     std::floor(needs.gpu) / kGiB, options);
}

std::string head(const EstimatorInput& input, bool with_layer) {
  const auto millions = [](int64_t count) { return count / 1'000'000; };
  return fmt::format(
      "Estimated memory needed for params, optim states and gradients for a:\n"
      "HW: Setup with {} {}, {} {} per node.\nSW: Model with {}M total params{}.\n"
      "  per CPU  |  per GPU |   Options\n",
      input.num_nodes, input.num_nodes > 1 ? "nodes" : "node", input.gpus_per_node,
      input.gpus_per_node > 1 ? "GPUs" : "GPU", millions(input.num_parameters),
      with_layer ? fmt::format(", {}M largest layer params", millions(input.largest_layer)) : "");
}

// A device as DeepSpeed's tables pad it.
std::string place(bool offloaded) { return offloaded ? "cpu " : "none"; }

std::string stage_2(const EstimatorInput& in) {
  const auto weights = static_cast<double>(in.num_parameters);
  const auto total = static_cast<double>(in.gpus_per_node * in.num_nodes);
  std::string text = head(in, false);
  for (const bool offload : {true, false}) {
    Needs needs;
    if (offload) {
      needs = {.cpu = weights * std::max(4.0 * total, 16.0) * in.buffer_factor,
               .gpu = 2.0 * weights};
    } else {
      needs = {.cpu = weights * 4.0 * static_cast<double>(in.gpus_per_node) * in.buffer_factor,
               .gpu = 2.0 * weights + std::floor(18.0 * weights / total)};
    }
    text += row(needs, "offload_optimizer=" + place(offload));
  }
  return text;
}

Needs stage_3_needs(const EstimatorInput& in, bool optimizer, bool parameters, bool zero_init) {
  const auto weights = static_cast<double>(in.num_parameters);
  const auto layer = static_cast<double>(in.largest_layer);
  const auto gpus = static_cast<double>(in.gpus_per_node);
  const auto nodes = static_cast<double>(in.num_nodes);
  if (!optimizer) {
    return {.cpu = (zero_init ? layer : weights) * 4.0 * gpus * in.buffer_factor,
            .gpu = 4.0 * layer + std::floor(18.0 * weights / (gpus * nodes))};
  }
  const double states = (parameters ? 18.0 : 16.0) / nodes;
  return {.cpu = weights * (zero_init ? states : std::max(4.0 * gpus, states)) * in.buffer_factor,
          .gpu = 4.0 * layer + (parameters ? 0.0 : std::floor(2.0 * weights / (gpus * nodes)))};
}

std::string stage_3(const EstimatorInput& in) {
  std::string text = head(in, true);
  for (const auto& [optimizer, parameters] :
       {std::pair{true, true}, std::pair{true, false}, std::pair{false, false}}) {
    for (const bool zero_init : {true, false}) {
      text += row(stage_3_needs(in, optimizer, parameters, zero_init),
                  fmt::format("offload_param={}, offload_optimizer={}, zero_init={}",
                              place(parameters), place(optimizer), zero_init ? 1 : 0));
    }
  }
  return text;
}

}  // namespace

ParameterCounts count_parameters(const hub::ModelConfigFile& config) {
  const std::unique_ptr<nn::Model> model = hub::make_model(config.config);
  std::map<std::string, int64_t, std::less<>> by_module;
  for (const auto& [name, parameter] : model->named_parameters()) {
    by_module[name.substr(0, name.rfind('.'))] += parameter->numel();
  }
  ParameterCounts counts{.num_parameters = model->num_parameters()};
  for (const auto& [module, numel] : by_module) {
    counts.largest_layer = std::max(counts.largest_layer, numel);
  }
  return counts;
}

std::string deepspeed_estimate(const EstimatorInput& input) {
  require(input.num_parameters > 0 && input.largest_layer > 0,
          "estimate: give --model, or --params and --largest-layer, both positive");
  require(input.gpus_per_node > 0 && input.num_nodes > 0,
          "estimate: --gpus and --nodes must be positive");
  return stage_2(input) + stage_3(input);
}

}  // namespace zinc::plan
