#include "kernels/cpu/element_blocks.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>

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
template <class In, class Out, class Function>
HWY_INLINE void for_each_number(const ElementBlock& block, const Function& function) {
  const auto at = [&](size_t k, int64_t i)
                      HWY_ATTR { return load_lanes(static_cast<const In*>(block.in[k]) + i); };
  Out* out = static_cast<Out*>(block.out);
  const int64_t lanes = lane_count();
  // value(i): the vector of results from i on.
  const auto run = [&](const auto& value) HWY_ATTR __attribute__((always_inline)) {
    if constexpr (sizeof(Out) < sizeof(float)) {
      for (int64_t i = 0; i < block.count; i += 2 * lanes) {
        store_lane_pair(value(i), value(i + lanes), out + i, block.past_caches);
      }
    } else {
      for (int64_t i = 0; i < block.count; i += lanes) {
        const LaneVec result = value(i);
        if (block.past_caches) {
          stream_lanes(result, out + i);
        } else {
          store_lanes(result, out + i);
        }
      }
    }
  };
  if (block.repeats == decltype(block.repeats){}) {
    return run([&](int64_t i) HWY_ATTR __attribute__((always_inline)) {
      return function([&](size_t k) HWY_ATTR { return LaneNumber(at(k, i)); }).lanes;
    });
  }
  LaneVec fixed[kBlockInputs] = {};
  for (size_t k = 0; k < kBlockInputs; ++k) {
    if (block.repeats[k]) fixed[k] = constant(block.value[k]);
  }
  run([&](int64_t i) HWY_ATTR __attribute__((always_inline)) {
    const auto number = [&](size_t k)
                            HWY_ATTR { return LaneNumber(block.repeats[k] ? fixed[k] : at(k, i)); };
    return function(number).lanes;
  });
}

template <class T, UnaryOp kOp>
void unary_value(const ElementBlock& block) {
  const LaneNumber p(block.p), q(block.q);
  for_each_number<T, T>(
      block, [&](auto number) HWY_ATTR { return UnaryRow<kOp>::value(number(0), p, q); });
}
template <class T, UnaryOp kOp>
void unary_gradient(const ElementBlock& block) {
  const LaneNumber p(block.p), q(block.q);
  for_each_number<T, T>(block, [&](auto number) HWY_ATTR {
    return UnaryRow<kOp>::gradient(number(0), number(1), p, q);
  });
}
template <class T, BinaryOp kOp>
void binary_value(const ElementBlock& block) {
  for_each_number<T, T>(
      block, [](auto number) HWY_ATTR { return BinaryRow<kOp>::value(number(0), number(1)); });
}
template <class T, BinaryOp kOp>
void gradient_of_a(const ElementBlock& block) {
  for_each_number<T, T>(block, [](auto number) HWY_ATTR {
    return BinaryRow<kOp>::gradient_of_a(number(0), number(1), number(2));
  });
}
template <class T, BinaryOp kOp>
void gradient_of_b(const ElementBlock& block) {
  for_each_number<T, T>(block, [](auto number) HWY_ATTR {
    return BinaryRow<kOp>::gradient_of_b(number(0), number(1), number(2));
  });
}
// Added to input 3.
template <class T, BinaryOp kOp>
void sum_of_b(const ElementBlock& block) {
  for_each_number<T, T>(block, [](auto number) HWY_ATTR {
    return number(3) + BinaryRow<kOp>::gradient_of_b(number(0), number(1), number(2));
  });
}
template <class T, CompareOp kOp>
void compare_mask(const ElementBlock& block) {
  const LaneNumber one(1.0), zero(0.0);
  for_each_number<T, uint8_t>(block, [&](auto number) HWY_ATTR {
    return select(CompareRow<kOp>::holds(number(0), number(1)), one, zero);
  });
}

// clang-format off
#define ZINC_OF_F32(Op, function) {function<float, Op>},
#define ZINC_OF_ALL(Op, function) {function<float, Op>, function<bf16, Op>, function<f16, Op>},
#define ZINC_BLOCKS(Op, OPS, function)                           \
  BlockFunctions function##_of(Op op) {                          \
    static constexpr BlockFunctions kBlocks[] = {OPS(ZINC_ROW)}; \
    return kBlocks[static_cast<int>(op)];                        \
  }
#define ZINC_ROW(name, ...) ZINC_OF_F32(UnaryOp::name, unary_value)
ZINC_BLOCKS(UnaryOp, ZINC_UNARY_OPS, unary_value)
#undef ZINC_ROW
#define ZINC_ROW(name, ...) ZINC_OF_F32(UnaryOp::name, unary_gradient)
ZINC_BLOCKS(UnaryOp, ZINC_UNARY_OPS, unary_gradient)
#undef ZINC_ROW
#define ZINC_ROW(name, ...) ZINC_OF_ALL(BinaryOp::name, binary_value)
ZINC_BLOCKS(BinaryOp, ZINC_BINARY_OPS, binary_value)
#undef ZINC_ROW
#define ZINC_ROW(name, ...) ZINC_OF_ALL(BinaryOp::name, gradient_of_a)
ZINC_BLOCKS(BinaryOp, ZINC_BINARY_OPS, gradient_of_a)
#undef ZINC_ROW
#define ZINC_ROW(name, ...) ZINC_OF_ALL(BinaryOp::name, gradient_of_b)
ZINC_BLOCKS(BinaryOp, ZINC_BINARY_OPS, gradient_of_b)
#undef ZINC_ROW
#define ZINC_ROW(name, ...) ZINC_OF_F32(BinaryOp::name, sum_of_b)
ZINC_BLOCKS(BinaryOp, ZINC_BINARY_OPS, sum_of_b)
#undef ZINC_ROW
#define ZINC_ROW(name, ...) ZINC_OF_ALL(CompareOp::name, compare_mask)
ZINC_BLOCKS(CompareOp, ZINC_COMPARE_OPS, compare_mask)
#undef ZINC_ROW
#undef ZINC_BLOCKS
#undef ZINC_OF_ALL
#undef ZINC_OF_F32
// clang-format on

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
    default:
      return narrow(from, n, static_cast<f16*>(to), past);
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
HWY_EXPORT(gradient_of_a_of);
HWY_EXPORT(gradient_of_b_of);
HWY_EXPORT(sum_of_b_of);
HWY_EXPORT(compare_mask_of);
HWY_EXPORT(widen_elements);
HWY_EXPORT(narrow_elements);

BlockFunctions value_block(UnaryOp op) { return HWY_DYNAMIC_DISPATCH(unary_value_of)(op); }
BlockFunctions gradient_block(UnaryOp op) { return HWY_DYNAMIC_DISPATCH(unary_gradient_of)(op); }
BlockFunctions value_block(BinaryOp op) { return HWY_DYNAMIC_DISPATCH(binary_value_of)(op); }
BlockFunctions gradient_of_a_block(BinaryOp op) {
  return HWY_DYNAMIC_DISPATCH(gradient_of_a_of)(op);
}
BlockFunctions gradient_of_b_block(BinaryOp op, bool adds) {
  return adds ? HWY_DYNAMIC_DISPATCH(sum_of_b_of)(op) : HWY_DYNAMIC_DISPATCH(gradient_of_b_of)(op);
}
BlockFunctions mask_block(CompareOp op) { return HWY_DYNAMIC_DISPATCH(compare_mask_of)(op); }

namespace {

constexpr int64_t kMostLanes = 32;  // of two vectors

// The function for arrays of these dtypes; null where they are converted to f32. Inputs that repeat
// are widened apart.
BlockFunction direct_function(const BlockFunctions& functions, const View& out,
                              std::span<const ConstView> in,
                              const std::array<bool, kBlockInputs>& repeats) {
  std::optional<DType> dtype;
  for (size_t k = 0; k < in.size(); ++k) {
    if (repeats[k]) continue;
    if (dtype.value_or(in[k].dtype()) != in[k].dtype()) return nullptr;
    dtype = in[k].dtype();
  }
  if (!dtype || (out.dtype() != *dtype && out.dtype() != DType::u8)) return nullptr;
  switch (*dtype) {
    case DType::f32:
      return functions.f32;
    case DType::bf16:
      return functions.bf16;
    case DType::f16:
      return functions.f16;
    default:
      return nullptr;
  }
}

// The elements of one thread's turn. Whole vectors of a row go to the direct function. The rest of
// a row, and rows without a direct function, are gathered into blocks of f32, from as many rows as
// a block takes.
class BlockMap {
 public:
  using Walk = RowWalk<kBlockInputs + 1>;
  using Offsets = std::array<int64_t, kBlockInputs + 1>;

  BlockMap(const BlockFunctions& functions, const View& out, std::span<const ConstView> in,
           const Walk& walk, float p, float q, bool past)
      : block_function_(functions.f32), out_(out), in_(in), walk_(walk) {
    block_.p = gathered_.p = p;
    block_.q = gathered_.q = q;
    block_.past_caches = past;
    for (size_t k = 0; k < in.size(); ++k) {
      block_.repeats[k] = walk.repeats(k);
      gathered_.in[k] = buffer_[k];
    }
    gathered_.out = result_;
    direct_ = direct_function(functions, out, in, block_.repeats);
  }

  void run(int64_t begin, int64_t end) {
    walk_.run(begin, end, [&](const Offsets& at, int64_t n) {
      int64_t done = 0;
      if (direct_ != nullptr && n >= kMostLanes) {
        done = n / kMostLanes * kMostLanes;
        run_direct(at, done);
      }
      while (done < n) {
        const int64_t part = std::min(n - done, kElementBlock - filled_);
        gather(at, done, part);
        done += part;
        if (filled_ == kElementBlock) flush();
      }
    });
    flush();
    if (block_.past_caches) flush_past_caches();
  }

 private:
  struct Piece {
    int64_t out;
    int64_t count;
  };

  const std::byte* input_at(size_t k, int64_t element) const {
    return static_cast<const std::byte*>(in_[k].data()) + element * size_of(in_[k].dtype());
  }
  std::byte* output_at(int64_t element) const {
    return static_cast<std::byte*>(out_.data()) + element * size_of(out_.dtype());
  }

  void run_direct(const Offsets& at, int64_t n) {
    for (size_t k = 0; k < in_.size(); ++k) {
      block_.in[k] = input_at(k, at[k]);
      if (!block_.repeats[k]) continue;
      HWY_DYNAMIC_DISPATCH(widen_elements)(block_.in[k], in_[k].dtype(), 1, &block_.value[k]);
    }
    block_.out = output_at(at[kBlockInputs]);
    block_.count = n;
    direct_(block_);
  }

  void gather(const Offsets& at, int64_t done, int64_t n) {
    for (size_t k = 0; k < in_.size(); ++k) {
      float* to = buffer_[k] + filled_;
      if (walk_.repeats(k)) {
        HWY_DYNAMIC_DISPATCH(widen_elements)(input_at(k, at[k]), in_[k].dtype(), 1, to);
        std::fill_n(to + 1, n - 1, *to);
      } else {
        HWY_DYNAMIC_DISPATCH(widen_elements)(input_at(k, at[k] + done), in_[k].dtype(), n, to);
      }
    }
    pieces_[num_pieces_++] = {at[kBlockInputs] + done, n};
    filled_ += n;
  }

  void flush() {
    if (filled_ == 0) return;
    gathered_.count = (filled_ + kMostLanes - 1) / kMostLanes * kMostLanes;
    // Masks come out of f32 functions as u8.
    block_function_(gathered_);
    const std::byte* from = reinterpret_cast<const std::byte*>(result_);
    for (int64_t i = 0; i < num_pieces_; ++i) {
      const auto [to, n] = pieces_[i];
      if (out_.dtype() == DType::u8) {
        std::copy_n(from, n, output_at(to));
        from += n;
      } else {
        HWY_DYNAMIC_DISPATCH(narrow_elements)
        (reinterpret_cast<const float*>(from), n, output_at(to), out_.dtype(), block_.past_caches);
        from += n * static_cast<int64_t>(sizeof(float));
      }
    }
    filled_ = 0;
    num_pieces_ = 0;
  }

  BlockFunction block_function_;
  BlockFunction direct_ = nullptr;
  const View& out_;
  std::span<const ConstView> in_;
  const Walk& walk_;
  ElementBlock block_;     // block of the direct function
  ElementBlock gathered_;  // block of the buffers
  int64_t filled_ = 0;
  int64_t num_pieces_ = 0;
  Piece pieces_[kElementBlock];
  // Lanes beyond `filled_` are computed too.
  alignas(64) float buffer_[kBlockInputs][kElementBlock] = {};
  alignas(64) float result_[kElementBlock];
};

}  // namespace

void map_blocks(const BlockFunctions& functions, const View& out,
                std::initializer_list<ConstView> in, double p, double q) {
  std::array<Strides, kBlockInputs + 1> strides{};
  size_t k = 0;
  bool past = past_caches(out.bytes());
  for (const ConstView& view : in) {
    strides[k++] = broadcast_strides(view, out.shape());
    past = past && view.data() != out.data();
  }
  strides[kBlockInputs] = out.strides();
  const BlockMap::Walk walk(out.shape(), strides);
  const std::span<const ConstView> views(in.begin(), in.size());
  const auto first = static_cast<float>(p);
  const auto second = static_cast<float>(q);
  parallel_for(walk.total(), past_caches_grain(kElementGrain, past),
               [&](int64_t begin, int64_t end) {
                 BlockMap(functions, out, views, walk, first, second, past).run(begin, end);
               });
}

}  // namespace zinc::kernels::cpu
#endif
