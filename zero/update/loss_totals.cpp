#include "zero/update/loss_totals.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

#include "comm/gather_values.h"
#include "core/error.h"

namespace zinc::zero {
namespace {

// The sum of `values` over a binary tree of their positions: the left half has the largest power of
// two below their number. This is the tree of comm's ordered sums.
double tree_sum(std::span<const double> values) {
  if (values.empty()) return 0.0;
  if (values.size() == 1) return values.front();
  const size_t left = std::bit_floor(values.size() - 1);
  return tree_sum(values.first(left)) + tree_sum(values.subspan(left));
}

}  // namespace

void require_finite(const StepLoss& loss, int64_t step, const PrecisionConfig& precision) {
  if (loss.nonfinite_batch < 0 || precision.allow_nonfinite_loss) return;
  throw NumericsError(
      str("step ", step, ": the loss is ", std::isnan(loss.mean) ? "nan" : str(loss.mean),
          ", first in micro-batch ", loss.nonfinite_batch + 1, " of rank ", loss.nonfinite_rank,
          "; no weight was changed by this step. Lower the learning rate, or check data and "
          "weights for NaN; --allow-nan (allow_nonfinite_loss) goes on all the same"));
}

double LossTotals::seed(double loss_scale, int64_t num_targets) const {
  if (by_token()) return loss_scale / divisor_;
  // Without targets all gradients are zeros. The seed must not be zero: later code divides by it.
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

StepLoss LossTotals::reduce(comm::World& world, comm::World* pipe) const {
  std::vector<double> values = losses_;
  values.push_back(static_cast<double>(num_targets_));
  if (pipe != nullptr) values = comm::last_values(*pipe, values);
  return combine(comm::gather_values(world, values), losses_.size());
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
  step.num_targets /= shares_;
  const auto terms = static_cast<double>(
      by_token() ? step.num_targets : static_cast<int64_t>(losses.size()) / shares_);
  const auto bad =
      std::find_if(losses.begin(), losses.end(), [](double loss) { return !std::isfinite(loss); });
  if (bad != losses.end()) {
    step.nonfinite_batch = (bad - losses.begin()) / static_cast<int64_t>(ranks);
    step.nonfinite_rank = static_cast<int>((bad - losses.begin()) % static_cast<int64_t>(ranks));
  }
  step.mean = terms == 0.0 ? std::numeric_limits<double>::quiet_NaN() : tree_sum(losses) / terms;
  return step;
}

double LossTotals::count(const StepLoss& loss, int world) const {
  if (by_token()) return static_cast<double>(loss.num_targets);
  return static_cast<double>(static_cast<int64_t>(losses_.size()) * (world / shares_));
}

double LossTotals::count_with(comm::World& world, std::span<const BatchLoss> coming) const {
  if (!by_token()) {
    const auto batches = static_cast<int64_t>(losses_.size() + coming.size());
    return static_cast<double>(batches * (world.size() / shares_));
  }
  int64_t own = num_targets_;
  for (const BatchLoss& loss : coming) own += loss.num_targets;
  const auto value = static_cast<double>(own);
  const std::vector<double> all = comm::gather_values(world, {&value, 1});
  return std::accumulate(all.begin(), all.end(), 0.0) / shares_;
}

bool LossTotals::is_finite_with(std::span<const BatchLoss> coming) const {
  const auto finite = [](double loss) { return std::isfinite(loss); };
  return std::all_of(losses_.begin(), losses_.end(), finite) &&
         std::all_of(coming.begin(), coming.end(), [&](const BatchLoss& loss) {
           return finite(term(loss.sum.item(), loss.num_targets));
         });
}

void LossTotals::clear() {
  losses_.clear();
  num_targets_ = 0;
}

}  // namespace zinc::zero
