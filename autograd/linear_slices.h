// autograd/linear_slices.h: the features of a layer, cut into slices that several ranks share.
//
// nn::TensorRanks::slices_of() makes them, and parallel/linear_slices.h says how results get the
// same bits on any number of ranks: Note [Fixed slices].
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "autograd/linear_products.h"
#include "core/tensor_slice.h"
#include "core/view.h"

namespace zinc::autograd {

// The slices that this rank has. Immutable; layers and graphs share it.
class LinearSlices {
 public:
  // One piece, or one piece of each section.
  using Features = std::vector<TensorSlice::Piece>;

  virtual ~LinearSlices() = default;

  // The features of each slice of this rank, counted among the features of this rank.
  const std::vector<Features>& slices() const { return slices_; }
  // Sums, over the slices of all ranks, the terms in f32 (f64 for f64) that make(slice, to) writes
  // for the slices of this rank. Rounds the sum to `out`, which is a matrix.
  virtual void sum_to(const View& out,
                      const std::function<void(size_t slice, const View& to)>& make) const = 0;
  // Products of this rank's part of a layer that is cut along these features.
  virtual std::shared_ptr<LinearProducts> products(WeightLayout layout) const = 0;

 protected:
  explicit LinearSlices(std::vector<Features> slices) : slices_(std::move(slices)) {}

 private:
  std::vector<Features> slices_;
};

}  // namespace zinc::autograd
