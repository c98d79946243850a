#include "kernels/sort.h"

#include <algorithm>

#include "core/parallel.h"
#include "kernels/checks.h"

namespace zinc::kernels::cpu {
namespace {

// Whether column i of a row comes before column j.
template <class T>
struct Before {
  using A = AccumulatorOf<T>;
  const T* row;
  bool descending;
  bool operator()(int64_t i, int64_t j) const {
    const A a = A(row[i]);
    const A b = A(row[j]);
    const bool a_is_nan = a != a;
    const bool b_is_nan = b != b;
    if (a_is_nan != b_is_nan) return a_is_nan == descending;
    if (a == b || a_is_nan) return i < j;
    return descending ? a > b : a < b;
  }
};

// The first k columns in order: the k best so far are a heap with the last of them on top.
template <class Order>
void first_indices(const Order& before, int64_t cols, int64_t* indices, int64_t k) {
  for (int64_t i = 0; i < k; ++i) indices[i] = i;
  if (k < cols) {
    std::make_heap(indices, indices + k, before);
    for (int64_t i = k; i < cols; ++i) {
      if (!before(i, indices[0])) continue;
      std::pop_heap(indices, indices + k, before);
      indices[k - 1] = i;
      std::push_heap(indices, indices + k, before);
    }
    std::sort_heap(indices, indices + k, before);
  } else {
    std::sort(indices, indices + k, before);
  }
}

}  // namespace

void sort(const Sort& args) {
  const int64_t cols = args.x.dim(1);
  const int64_t k = args.values.dim(1);
  const int64_t stride = row_stride("sort", "x", args.x);
  auto* indices = args.indices.data_as<int64_t>();
  dispatch_float(args.x.dtype(), [&]<class T>() {
    const T* x = args.x.data_as<T>();
    T* values = args.values.data_as<T>();
    parallel_for(args.x.dim(0), std::max<int64_t>(1, 4096 / cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const T* row = x + r * stride;
        int64_t* mine = indices + r * k;
        first_indices(Before<T>{row, args.descending}, cols, mine, k);
        for (int64_t i = 0; i < k; ++i) values[r * k + i] = row[mine[i]];
      }
    });
  });
}

}  // namespace zinc::kernels::cpu
