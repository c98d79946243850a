// zero/tiers/input_places.h: memory for the saved inputs of recomputation.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/context.h"

namespace zinc::zero {

class InputPlaces {
 public:
  // `count` 0: every place is an allocation of its own, freed with the place. Else `count` places
  // of equal size are allocated at once, again as many where they do not suffice, and kept; those
  // of another size are given back once nobody has one.
  InputPlaces(Context& context, Tier tier, int64_t count);

  bool contiguous() const { return count_ > 0; }
  Tier tier() const { return tier_; }

  // The memory goes back when the last owner is gone, and may then be handed out again: until then
  // the compute stream has to wait for its last use. A place may outlive the InputPlaces.
  struct Place {
    void* data = nullptr;
    std::shared_ptr<void> owner;
  };
  Place take(int64_t bytes);

 private:
  struct Row;
  static Place place_in(const std::shared_ptr<Row>& row);

  Context& context_;
  const Tier tier_;
  const int64_t count_;
  std::vector<std::shared_ptr<Row>> rows_;
};

}  // namespace zinc::zero
