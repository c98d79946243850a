// zero/layout/planes.h: the kinds of values of a trained element, by number: first the master
// weights, then the optimizer's states in the order of Optimizer::state_names(). Behind the planes
// that name vectors of whole parameters, which no element has.
#pragma once

#include "optim/optimizer.h"
#include "zero/layout/shard_group.h"

namespace zinc::zero {

inline constexpr int kMasterPlane = 0;
inline constexpr int kFirstStatePlane = 1;

// The planes [begin, end).
struct Planes {
  int begin = 0, end = 0;
  int count() const { return end - begin; }
  bool has(int plane) const { return plane >= begin && plane < end; }
};

// The planes of states that the elements of a segment have.
inline Planes state_planes(const optim::States& states, SegmentKind kind) {
  const int whole = kFirstStatePlane + states.count;
  if (kind == SegmentKind::whole) return {whole, whole + states.in_whole};
  return {kFirstStatePlane, is_trained(kind) ? whole : kFirstStatePlane};
}

// The number that stands for the first vector of whole parameters.
inline int first_vector(const optim::States& states) {
  return kFirstStatePlane + states.count + states.in_whole;
}

// Whether the elements of a segment have a plane, master weights included.
inline bool has_plane(const optim::States& states, SegmentKind kind, int plane) {
  return plane == kMasterPlane || state_planes(states, kind).has(plane);
}

// How a plane of the elements of a group is stored. `wide`: the group's wide_dtype().
inline Encoding plane_encoding(const optim::States& states, int plane, DType wide) {
  if (plane < kFirstStatePlane) return {.dtype = wide == DType::f32 ? states.weights : wide};
  const auto blocks = states.blocks_of(plane - kFirstStatePlane, wide);
  return blocks ? Encoding::in_blocks(*blocks) : Encoding{.dtype = states.dtype(wide)};
}

}  // namespace zinc::zero
