// plan/fit_bounds.h: lower bounds of the bytes and the time of a candidate of plan/fit.h, from
// plans of the same model with few blocks.
//
// Blocks of a model are alike: each further block adds the same to a plan. So two plans of a few
// blocks, for one micro-batch size, kind of recomputation and number of tensor and sequence ranks,
// give the bytes and times of any number of blocks, also for one rank of a pipeline. Note [Floors]
// in fit_bounds.cpp has the formulas.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "plan/fit_space.h"
#include "plan/hardware.h"
#include "plan/plan.h"

namespace zinc::plan {

class FitBounds {
 public:
  struct Floor {
    double step_seconds = 0.0;  // 0 without hardware
    int64_t device_bytes = 0;   // handed out
  };

  // All three must outlive this. `options`: of the run; `threads` plan side by side.
  FitBounds(const hub::ModelConfigFile& model, const FitSpace& space, const PlanOptions& options,
            int threads);

  // The reason why the candidate's ranks cannot share the model; empty: they can.
  const std::string& problem_of(const FitCandidate& candidate);
  // A lower bound from FLOP alone, for all micro-batches. It takes at most one pair of plans for
  // each kind of recomputation and number of tensor and sequence ranks.
  double least_seconds(const FitCandidate& candidate);
  // The floor of a candidate that is not between two levels. Where the candidate has the first of
  // its pipeline's orders, the seconds are those of the best order.
  Floor floor_of(const FitCandidate& candidate);
  // The least time of `other`, which is the candidate in another order of its pipeline, as a share
  // of the candidate's.
  double share_in_order(const FitCandidate& candidate, const FitCandidate& other);
  // Ranks of the candidate's pipeline that take most or work longest, as far as floors tell: the
  // first, the second, the last and the one with most blocks.
  std::vector<int> telling_ranks(const FitCandidate& candidate);

 private:
  // A quantity that is linear in the number of blocks.
  struct Linear {
    double each = 0.0, rest = 0.0;
    double at(double blocks) const { return each * blocks + rest; }
  };
  struct Slice {
    std::string problem;
    Linear seconds, flops;  // for a micro-batch
    Linear weights, states, gradients, activations;
  };
  // tensor, sequence, micro-batch, recomputation, moments
  using Kind = std::tuple<int, int, int64_t, int, int>;

  const Slice& slice_of(const FitCandidate& candidate);
  Slice make_slice(const FitCandidate& candidate) const;
  Plan plan_of(const FitCandidate& candidate, int64_t blocks) const;
  std::vector<int64_t> blocks_by_rank(const FitCandidate& candidate, const Slice& slice) const;
  double least_bubble(const FitCandidate& candidate) const;
  double slowest_pass(const FitCandidate& candidate, const Slice& slice) const;
  double network_seconds(const FitCandidate& candidate, double weights, double size) const;
  double floor_seconds(const FitCandidate& candidate, const Slice& slice) const;
  int64_t floor_bytes(const FitCandidate& candidate, const Slice& slice) const;

  const hub::ModelConfigFile& model_;
  const FitSpace& space_;
  const PlanOptions& options_;
  const int threads_;
  double seconds_per_flop_ = 0.0;  // seconds of a FLOP at the highest rate that a kernel may have
  std::map<Kind, Slice> slices_;
  std::map<FitCandidate, Floor> floors_;
  std::map<std::tuple<int, int, int>, Kind> first_;  // for each tensor, sequence, recomputation
};

// Seconds per FLOP of a rank's kernels of this kind; `options` has hardware.
double seconds_per_flop(const PlanOptions& options, WorkKind kind, DType dtype);

}  // namespace zinc::plan
