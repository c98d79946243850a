#include "kernels/cpu/element_blocks.h"

#include <algorithm>

#include "kernels/broadcast.h"
#include "kernels/cpu/highway_targets.h"
#include "kernels/cpu/past_caches.h"
#include "kernels/cpu/row_walk.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/element_blocks.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/lane_number-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

#undef ZINC_ELEMENT
#define ZINC_ELEMENT HWY_INLINE
#include "kernels/elementwise_rows-inl.h"

// out[i] = function(number), where number(k) is input k.
template <class Function>
HWY_INLINE void for_each_number(const ElementBlock& block, const Function& function) {
  for (int64_t i = 0; i < block.count; i += lane_count()) {
    const auto number = [&](size_t k) HWY_ATTR { return LaneNumber(load_lanes(block.in[k] + i)); };
    store_lanes(function(number).lanes, block.out + i);
  }
}

template <UnaryOp kOp>
void unary_value(const ElementBlock& block) {
  const LaneNumber p(block.p), q(block.q);
  for_each_number(block,
                  [&](auto number) HWY_ATTR { return UnaryRow<kOp>::value(number(0), p, q); });
}
template <UnaryOp kOp>
void unary_gradient(const ElementBlock& block) {
  const LaneNumber p(block.p), q(block.q);
  for_each_number(block, [&](auto number) HWY_ATTR {
    return UnaryRow<kOp>::gradient(number(0), number(1), p, q);
  });
}
template <BinaryOp kOp>
void binary_value(const ElementBlock& block) {
  for_each_number(block,
                  [](auto number) HWY_ATTR { return BinaryRow<kOp>::value(number(0), number(1)); });
}
template <BinaryOp kOp>
void binary_gradient_of_a(const ElementBlock& block) {
  for_each_number(block, [](auto number) HWY_ATTR {
    return BinaryRow<kOp>::gradient_of_a(number(0), number(1), number(2));
  });
}
template <BinaryOp kOp, bool kAdds>
void binary_gradient_of_b(const ElementBlock& block) {
  for_each_number(block, [](auto number) HWY_ATTR {
    const LaneNumber sum = BinaryRow<kOp>::gradient_of_b(number(0), number(1), number(2));
    if constexpr (kAdds) return number(3) + sum;
    return sum;
  });
}
template <CompareOp kOp>
void compare_mask(const ElementBlock& block) {
  const LaneNumber one(1.0), zero(0.0);
  for_each_number(block, [&](auto number) HWY_ATTR {
    return select(CompareRow<kOp>::holds(number(0), number(1)), one, zero);
  });
}

#define ZINC_BLOCKS(Op, OPS, function)                          \
  BlockFunction function##_of(Op op) {                          \
    static constexpr BlockFunction kBlocks[] = {OPS(ZINC_ROW)}; \
    return kBlocks[static_cast<int>(op)];                       \
  }
#define ZINC_ROW(name, ...) unary_value<UnaryOp::name>,
ZINC_BLOCKS(UnaryOp, ZINC_UNARY_OPS, unary_value)
#undef ZINC_ROW
#define ZINC_ROW(name, ...) unary_gradient<UnaryOp::name>,
ZINC_BLOCKS(UnaryOp, ZINC_UNARY_OPS, unary_gradient)
#undef ZINC_ROW
#define ZINC_ROW(name, ...) binary_value<BinaryOp::name>,
ZINC_BLOCKS(BinaryOp, ZINC_BINARY_OPS, binary_value)
#undef ZINC_ROW
#define ZINC_ROW(name, ...) binary_gradient_of_a<BinaryOp::name>,
ZINC_BLOCKS(BinaryOp, ZINC_BINARY_OPS, binary_gradient_of_a)
#undef ZINC_ROW
#define ZINC_ROW(name, ...) binary_gradient_of_b<BinaryOp::name, false>,
ZINC_BLOCKS(BinaryOp, ZINC_BINARY_OPS, binary_gradient_of_b)
#undef ZINC_ROW
#define ZINC_ROW(name, ...) binary_gradient_of_b<BinaryOp::name, true>,
ZINC_BLOCKS(BinaryOp, ZINC_BINARY_OPS, binary_sum_of_b)
#undef ZINC_ROW
#define ZINC_ROW(name, ...) compare_mask<CompareOp::name>,
ZINC_BLOCKS(CompareOp, ZINC_COMPARE_OPS, compare_mask)
#undef ZINC_ROW
#undef ZINC_BLOCKS

template <class T>
void widen(const T* from, int64_t n, float* to) {
  for_each_vector(
      n, [=](int64_t i, auto load, auto store) HWY_ATTR { store(load(from + i), to + i); });
}
void widen_elements(const void* from, DType dtype, int64_t n, float* to) {
  switch (dtype) {
    case DType::f32:
      return widen(static_cast<const float*>(from), n, to);
    case DType::bf16:
      return widen(static_cast<const bf16*>(from), n, to);
    case DType::f16:
      return widen(static_cast<const f16*>(from), n, to);
    default:
      return widen(static_cast<const uint8_t*>(from), n, to);
  }
}

template <class T>
void narrow(const float* from, int64_t n, T* to, bool past) {
  for_each_vector(
      n, [=](int64_t i, auto load, auto store) HWY_ATTR { store(load(from + i), to + i); }, past,
      past ? head_of(to) : 0);
}
void narrow_elements(const float* from, int64_t n, void* to, DType dtype, bool past) {
  switch (dtype) {
    case DType::f32:
      return narrow(from, n, static_cast<float*>(to), past);
    case DType::bf16:
      return narrow(from, n, static_cast<bf16*>(to), past);
    case DType::f16:
      return narrow(from, n, static_cast<f16*>(to), past);
    default:
      return narrow(from, n, static_cast<uint8_t*>(to), past);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zinc::kernels::cpu {

HWY_EXPORT(unary_value_of);
HWY_EXPORT(unary_gradient_of);
HWY_EXPORT(binary_value_of);
HWY_EXPORT(binary_gradient_of_a_of);
HWY_EXPORT(binary_gradient_of_b_of);
HWY_EXPORT(binary_sum_of_b_of);
HWY_EXPORT(compare_mask_of);
HWY_EXPORT(widen_elements);
HWY_EXPORT(narrow_elements);

BlockFunction value_block(UnaryOp op) { return HWY_DYNAMIC_DISPATCH(unary_value_of)(op); }
BlockFunction gradient_block(UnaryOp op) { return HWY_DYNAMIC_DISPATCH(unary_gradient_of)(op); }
BlockFunction value_block(BinaryOp op) { return HWY_DYNAMIC_DISPATCH(binary_value_of)(op); }
BlockFunction gradient_of_a_block(BinaryOp op) {
  return HWY_DYNAMIC_DISPATCH(binary_gradient_of_a_of)(op);
}
BlockFunction gradient_of_b_block(BinaryOp op, bool adds) {
  return adds ? HWY_DYNAMIC_DISPATCH(binary_sum_of_b_of)(op)
              : HWY_DYNAMIC_DISPATCH(binary_gradient_of_b_of)(op);
}
BlockFunction mask_block(CompareOp op) { return HWY_DYNAMIC_DISPATCH(compare_mask_of)(op); }

namespace {

constexpr int64_t kMostLanes = 16;

const std::byte* bytes_at(const ConstView& view, int64_t element) {
  return static_cast<const std::byte*>(view.data()) + element * size_of(view.dtype());
}

// The elements of one thread's turn, gathered from as many rows as a block takes.
class BlockMap {
 public:
  using Walk = RowWalk<kBlockInputs + 1>;

  BlockMap(BlockFunction function, const View& out, std::initializer_list<ConstView> in,
           const Walk& walk, float p, float q, bool past)
      : function_(function), out_(out), in_(in.begin(), in.end()), walk_(walk), past_(past) {
    block_.p = p;
    block_.q = q;
    for (size_t k = 0; k < count_of_inputs(); ++k) repeated_since_[k] = nullptr;
  }

  void run(int64_t begin, int64_t end) {
    walk_.run(begin, end, [&](const auto& at, int64_t n) {
      for (int64_t done = 0; done < n;) {
        const int64_t part = std::min(n - done, kElementBlock - filled_);
        take(at, done, part);
        done += part;
        if (filled_ == kElementBlock) flush();
      }
    });
    flush();
    if (past_) flush_past_caches();
  }

 private:
  struct Piece {
    int64_t out;
    int64_t count;
  };

  size_t count_of_inputs() const { return in_.size(); }

  void take(const std::array<int64_t, kBlockInputs + 1>& at, int64_t done, int64_t n) {
    for (size_t k = 0; k < count_of_inputs(); ++k) {
      const ConstView& view = in_[k];
      float* to = buffer_[k] + filled_;
      if (walk_.repeats(k)) {
        const std::byte* from = bytes_at(view, at[k]);
        // A block of one row has been filled with this element already.
        if (from == repeated_since_[k]) continue;
        float value = 0.0f;
        HWY_DYNAMIC_DISPATCH(widen_elements)(from, view.dtype(), 1, &value);
        std::fill_n(to, n, value);
        repeated_since_[k] = n == kElementBlock ? from : nullptr;
        continue;
      }
      const std::byte* from = bytes_at(view, at[k] + done);
      // Whole blocks of f32 are read where they lie.
      if (n == kElementBlock && view.dtype() == DType::f32) {
        block_.in[k] = reinterpret_cast<const float*>(from);
        continue;
      }
      HWY_DYNAMIC_DISPATCH(widen_elements)(from, view.dtype(), n, to);
      block_.in[k] = buffer_[k];
    }
    pieces_[num_pieces_++] = {at[kBlockInputs] + done, n};
    filled_ += n;
  }

  void flush() {
    if (filled_ == 0) return;
    for (size_t k = 0; k < count_of_inputs(); ++k) {
      if (walk_.repeats(k) || block_.in[k] == nullptr) block_.in[k] = buffer_[k];
    }
    block_.count = (filled_ + kMostLanes - 1) / kMostLanes * kMostLanes;
    float* const to = reinterpret_cast<float*>(static_cast<std::byte*>(out_.data()) +
                                               pieces_[0].out * size_of(out_.dtype()));
    const bool in_place =
        !past_ && filled_ == kElementBlock && num_pieces_ == 1 && out_.dtype() == DType::f32;
    block_.out = in_place ? to : result_;
    function_(block_);
    const float* from = result_;
    for (int64_t i = 0; i < num_pieces_ && !in_place; ++i) {
      HWY_DYNAMIC_DISPATCH(narrow_elements)
      (from, pieces_[i].count,
       static_cast<std::byte*>(out_.data()) + pieces_[i].out * size_of(out_.dtype()), out_.dtype(),
       past_);
      from += pieces_[i].count;
    }
    filled_ = 0;
    num_pieces_ = 0;
  }

  BlockFunction function_;
  const View& out_;
  std::span<const ConstView> in_;
  const Walk& walk_;
  bool past_;
  ElementBlock block_;
  int64_t filled_ = 0;
  int64_t num_pieces_ = 0;
  std::array<const std::byte*, kBlockInputs> repeated_since_{};
  Piece pieces_[kElementBlock];
  alignas(64) float buffer_[kBlockInputs][kElementBlock] = {};
  alignas(64) float result_[kElementBlock];
};

}  // namespace

void map_blocks(BlockFunction function, const View& out, std::initializer_list<ConstView> in,
                double p, double q) {
  std::array<Strides, kBlockInputs + 1> strides{};
  size_t k = 0;
  bool past = past_caches(out.bytes());
  for (const ConstView& view : in) {
    strides[k++] = broadcast_strides(view, out.shape());
    past = past && view.data() != out.data();
  }
  strides[kBlockInputs] = out.strides();
  const BlockMap::Walk walk(out.shape(), strides);
  const auto first = static_cast<float>(p);
  const auto second = static_cast<float>(q);
  parallel_for(walk.total(), past_caches_grain(kElementGrain, past),
               [&](int64_t begin, int64_t end) {
                 BlockMap(function, out, in, walk, first, second, past).run(begin, end);
               });
}

}  // namespace zinc::kernels::cpu
#endif
