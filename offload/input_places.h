// offload/input_places.h: allocates memory for the saved inputs of recomputation.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/context.h"

namespace zinc::offload {

class InputPlaces {
 public:
  // `count` 0: every place is an allocation of its own, freed with the place. Otherwise a row of
  // `count` places of equal size is allocated at once and kept. A place has `bytes` bytes, or as
  // many as the largest input that came; smaller inputs take such places too. Another row is
  // allocated when all large enough places are taken. A row of smaller places is freed once all of
  // its places are free.
  InputPlaces(Context& context, Tier tier, int64_t count, int64_t bytes = 0);

  bool contiguous() const { return count_ > 0; }
  Tier tier() const { return tier_; }

  // The memory is free again when the last `owner` is gone, and may be handed out again at once.
  // Before that, the compute stream must wait for the last use of the place. A place may outlive
  // the InputPlaces.
  struct Memory {
    void* data = nullptr;
    std::shared_ptr<void> owner;
  };
  Memory take(int64_t bytes);

 private:
  struct Row;
  static Memory place_in(const std::shared_ptr<Row>& row);

  Context& context_;
  const Tier tier_;
  const int64_t count_;
  int64_t place_bytes_;
  std::vector<std::shared_ptr<Row>> rows_;
};

}  // namespace zinc::offload
