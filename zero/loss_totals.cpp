#include "zero/loss_totals.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <span>

#include "zero/gather_values.h"

namespace zinc::zero {
namespace {

// The sum over a binary tree of the values' positions: halves of the largest power of two below
// their number. The tree of comm's ordered sums.
double tree_sum(std::span<const double> values) {
  if (values.empty()) return 0.0;
  if (values.size() == 1) return values.front();
  const size_t left = std::bit_floor(values.size() - 1);
  return tree_sum(values.first(left)) + tree_sum(values.subspan(left));
}

}  // namespace

double LossTotals::seed(double loss_scale, int64_t num_targets) const {
  if (by_token()) return loss_scale / divisor_;
  // Without targets the gradients are zeros. A seed of zero would be divided by.
  return loss_scale / static_cast<double>(std::max<int64_t>(num_targets, 1));
}

double LossTotals::term(double sum, int64_t num_targets) const {
  if (by_token()) return sum;
  return num_targets == 0 ? 0.0 : sum / static_cast<double>(num_targets);
}

void LossTotals::add(double sum, int64_t num_targets) {
  losses_.push_back(term(sum, num_targets));
  num_targets_ += num_targets;
}

StepLoss LossTotals::reduce(comm::World& world) const {
  std::vector<double> values = losses_;
  values.push_back(static_cast<double>(num_targets_));
  return combine(gather_values(world, values), losses_.size());
}

StepLoss LossTotals::combine(std::span<const double> by_rank, size_t num_batches) const {
  const size_t length = num_batches + 1;
  const size_t ranks = by_rank.size() / length;
  std::vector<double> losses;
  StepLoss step;
  for (size_t micro_step = 0; micro_step < num_batches; ++micro_step) {
    for (size_t r = 0; r < ranks; ++r) losses.push_back(by_rank[r * length + micro_step]);
  }
  for (size_t r = 0; r < ranks; ++r) {
    step.num_targets += static_cast<int64_t>(by_rank[(r + 1) * length - 1]);
  }
  const auto terms =
      static_cast<double>(by_token() ? step.num_targets : static_cast<int64_t>(losses.size()));
  step.mean = terms == 0.0 ? std::numeric_limits<double>::quiet_NaN() : tree_sum(losses) / terms;
  return step;
}

double LossTotals::count(const StepLoss& loss, int world) const {
  if (by_token()) return static_cast<double>(loss.num_targets);
  return static_cast<double>(static_cast<int64_t>(losses_.size()) * world);
}

double LossTotals::count_with(comm::World& world, std::span<const int64_t> coming) const {
  if (!by_token()) return static_cast<double>((losses_.size() + coming.size()) * world.size());
  const int64_t own = std::accumulate(coming.begin(), coming.end(), num_targets_);
  const auto value = static_cast<double>(own);
  const std::vector<double> all = gather_values(world, {&value, 1});
  return std::accumulate(all.begin(), all.end(), 0.0);
}

void LossTotals::clear() {
  losses_.clear();
  num_targets_ = 0;
}

}  // namespace zinc::zero
