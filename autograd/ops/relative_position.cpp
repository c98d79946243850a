#include "autograd/ops/relative_position.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "autograd/ops/cast.h"
#include "autograd/ops/embedding.h"
#include "autograd/ops/permute.h"
#include "core/error.h"

namespace zinc::autograd {

int64_t relative_bucket(int64_t distance, const RelativeBuckets& options) {
  const int64_t buckets = options.bidirectional ? options.buckets / 2 : options.buckets;
  const int64_t behind = options.bidirectional && distance > 0 ? buckets : 0;
  const int64_t away = options.bidirectional ? std::abs(distance) : std::max<int64_t>(-distance, 0);
  const int64_t exact = buckets / 2;
  if (away < exact) return behind + away;
  // Computed in f32, as in the models that were trained with these buckets.
  const auto ratio = std::log(static_cast<float>(away) / static_cast<float>(exact)) /
                     static_cast<float>(std::log(static_cast<double>(options.max_distance) /
                                                 static_cast<double>(exact)));
  const auto more = static_cast<int64_t>(ratio * static_cast<float>(buckets - exact));
  return behind + std::min(exact + more, buckets - 1);
}

Tensor make_relative_buckets(int64_t positions, const RelativeBuckets& options) {
  const int64_t exact = (options.bidirectional ? options.buckets / 2 : options.buckets) / 2;
  require(positions > 0, "make_relative_buckets: positions must be positive, not ", positions);
  require(exact > 0 && options.max_distance > exact, "make_relative_buckets: ", options.buckets,
          options.bidirectional ? " bidirectional" : "", " buckets do not reach a distance of ",
          options.max_distance);
  std::vector<int32_t> ids;
  for (int64_t distance = 1 - positions; distance < positions; ++distance) {
    ids.push_back(static_cast<int32_t>(relative_bucket(distance, options)));
  }
  return Tensor::from(ids, Shape{2 * positions - 1});
}

Tensor relative_position_bias(const Weight& table, const Tensor& buckets, int64_t queries,
                              int64_t keys) {
  const int64_t positions = (buckets.numel() + 1) / 2;
  require(
      buckets.rank() == 1 && queries > 0 && queries <= positions && keys > 0 && keys <= positions,
      "relative_position_bias: ", queries, " queries and ", keys,
      " keys need buckets of as many positions, not of shape ", buckets.shape());
  const Tensor ids = buckets.narrow_view(0, positions - keys, queries + keys - 1);
  const Tensor by_distance = transpose(embedding(ids, table));
  return cast(by_distance, by_distance.dtype() == DType::f64 ? DType::f64 : DType::f32);
}

}  // namespace zinc::autograd
