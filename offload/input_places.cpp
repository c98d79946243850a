#include "offload/input_places.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace zinc::offload {
namespace {

int64_t whole_blocks(int64_t bytes) {
  return (bytes + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment;
}

}  // namespace

// A row of places in one block.
struct InputPlaces::Row {
  Row(Block memory, int64_t bytes, int64_t count) : block(std::move(memory)), place_bytes(bytes) {
    for (int64_t i = count; i > 0; --i) free.push_back(i - 1);
  }
  bool is_unused() const {
    return static_cast<int64_t>(free.size()) * place_bytes == block.bytes();
  }

  Block block;
  int64_t place_bytes;
  std::vector<int64_t> free;  // free places; the next one to hand out is the last
};

InputPlaces::InputPlaces(Context& context, Tier tier, int64_t count, int64_t bytes)
    : context_(context), tier_(tier), count_(count), place_bytes_(whole_blocks(bytes)) {}

InputPlaces::Memory InputPlaces::take(int64_t bytes) {
  if (!contiguous()) {
    auto block = std::make_shared<Block>(context_.allocate(bytes, Label::activations, tier_));
    void* const data = block->data();
    return {data, std::move(block)};
  }
  std::erase_if(rows_, [&](const std::shared_ptr<Row>& row) {
    return row->place_bytes < bytes && row->is_unused();
  });
  for (const std::shared_ptr<Row>& row : rows_) {
    if (row->place_bytes >= bytes && !row->free.empty()) return place_in(row);
  }
  place_bytes_ = std::max(place_bytes_, whole_blocks(bytes));
  rows_.push_back(std::make_shared<Row>(
      context_.allocate(count_ * place_bytes_, Label::activations, tier_), place_bytes_, count_));
  return place_in(rows_.back());
}

InputPlaces::Memory InputPlaces::place_in(const std::shared_ptr<Row>& row) {
  const int64_t index = row->free.back();
  row->free.pop_back();
  std::byte* const data = static_cast<std::byte*>(row->block.data()) + index * row->place_bytes;
  return {data, std::shared_ptr<void>(data, [row, index](void*) { row->free.push_back(index); })};
}

}  // namespace zinc::offload
