#include "bench/random_batch.h"

#include <span>
#include <vector>

#include "core/philox.h"

namespace zinc::bench {

nn::Batch random_batch(int64_t index, int64_t batch, int64_t seq, int64_t vocabulary) {
  const RandomKey key = make_random_key(7, Purpose::test, 0, static_cast<uint64_t>(index), 0);
  const int64_t n = batch * seq;
  std::vector<int64_t> ids;
  for (int64_t i = 0; i <= n; ++i) {
    ids.push_back(key.bits(static_cast<uint64_t>(i)) % vocabulary);
  }
  const Shape shape{batch, seq};
  const std::span<const int64_t> all(ids);
  const auto tensor = [&](std::span<const int64_t> values) {
    return Tensor::from<int64_t>(values, shape, DType::i32);
  };
  const auto count = static_cast<size_t>(n);
  return {.tensors = {{"input_ids", tensor(all.first(count))}, {"labels", tensor(all.last(count))}},
          .num_targets = n,
          .num_tokens = n,
          .global_micro_batch = index};
}

}  // namespace zinc::bench
