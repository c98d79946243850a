// The f32, bf16 and f16 paths of dropout, with Philox on vectors: each lane computes one block of
// four random words.
#include "kernels/dropout.h"

#include "kernels/cpu/dropout_threshold.h"
#include "kernels/cpu/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/dropout_lanes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "core/parallel.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/past_caches.h"
#include "kernels/cpu/row_ids.h"
#include "kernels/cpu/short_float.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

constexpr int64_t kRun = 1024;  // elements whose random words are made at a time
// Room for a first element inside a block, and for two whole vectors of blocks and one of words at
// the end.
constexpr int64_t kWords = kRun + 2 * 4 * 16 + 16;

#if ZINC_PORTABLE_LANES
void fill_words(const RandomKey& key, uint64_t first_block, int64_t blocks, uint32_t* words) {
  for (int64_t i = 0; i < blocks; ++i) {
    const PhiloxBlock block =
        philox4x32(first_block + static_cast<uint64_t>(i), key.counter_high, key.key);
    std::copy_n(block.word, 4, words + 4 * i);
  }
}
#else
// The words of the blocks [first_block, first_block + blocks), rounded up to two vectors. The
// rounds are those of philox4x32 in core/philox.h. A lane of 64 bits holds one word of a block in
// its low half; the high half may hold anything, because a product reads low halves only. So a
// round is two products, two shifts and two exclusive ors of three; two vectors at a time hide
// their latency.
void fill_words(const RandomKey& key, uint64_t first_block, int64_t blocks, uint32_t* words) {
  const hn::Repartition<uint64_t, Lanes> d;
  const hn::Repartition<uint32_t, Lanes> halves;
  const auto multiply = [=](auto a, auto factor) HWY_ATTR {
    return hn::MulEven(hn::BitCast(halves, a), hn::BitCast(halves, factor));
  };
  const auto m0 = hn::Set(d, uint64_t{0xD2511F53u});
  const auto m1 = hn::Set(d, uint64_t{0xCD9E8D57u});
  const auto low = hn::Set(d, uint64_t{0xFFFFFFFFu});
  const auto step = static_cast<int64_t>(hn::Lanes(d));
  uint64_t round_keys[10][2];
  for (uint32_t round = 0; round < 10; ++round) {
    round_keys[round][0] = static_cast<uint32_t>(key.key) + round * 0x9E3779B9u;
    round_keys[round][1] = static_cast<uint32_t>(key.key >> 32) + round * 0xBB67AE85u;
  }
  const auto high = hn::Set(d, key.counter_high);
  for (int64_t i = 0; i < blocks; i += 2 * step) {
    auto a0 = hn::Iota(d, first_block + static_cast<uint64_t>(i));
    auto b0 = hn::Iota(d, first_block + static_cast<uint64_t>(i + step));
    auto a1 = hn::ShiftRight<32>(a0), b1 = hn::ShiftRight<32>(b0);
    auto a2 = high, b2 = high;
    auto a3 = hn::ShiftRight<32>(high), b3 = a3;
    for (const auto& round_key : round_keys) {
      const auto k0 = hn::Set(d, round_key[0]);
      const auto k1 = hn::Set(d, round_key[1]);
      const auto one_round = [&](auto& c0, auto& c1, auto& c2, auto& c3) HWY_ATTR {
        const auto p0 = multiply(c0, m0);
        const auto p1 = multiply(c2, m1);
        c0 = hn::Xor3(hn::ShiftRight<32>(p1), c1, k0);
        c2 = hn::Xor3(hn::ShiftRight<32>(p0), c3, k1);
        c1 = p1;
        c3 = p0;
      };
      one_round(a0, a1, a2, a3);
      one_round(b0, b1, b2, b3);
    }
    const auto put = [=](auto c0, auto c1, auto c2, auto c3, uint32_t* to) HWY_ATTR {
      const auto first_two = hn::Or(hn::And(c0, low), hn::ShiftLeft<32>(c1));
      const auto last_two = hn::Or(hn::And(c2, low), hn::ShiftLeft<32>(c3));
      hn::StoreInterleaved2(first_two, last_two, d, reinterpret_cast<uint64_t*>(to));
    };
    put(a0, a1, a2, a3, words + 4 * i);
    put(b0, b1, b2, b3, words + 4 * (i + step));
  }
}
#endif

template <class T>
struct DropoutRun {
  const T* x;
  const T* residual;  // null: none
  T* y;
  float factor;
  uint32_t threshold;
  bool past_caches;
};

// n <= kRun elements, whose words are given.
template <class T>
void drop_run(const DropoutRun<T>& run, const uint32_t* words, int64_t n) {
  const Lanes d;
  const hn::Rebind<int32_t, Lanes> di;
  const hn::Rebind<uint32_t, Lanes> du;
  const auto factor = hn::Set(d, run.factor);
  const auto threshold = hn::Set(di, static_cast<int32_t>(run.threshold));
  const auto kept = [=](int64_t i, LaneVec x) HWY_ATTR {
    const auto word = hn::BitCast(di, hn::ShiftRight<9>(hn::LoadU(du, words + i)));
    return hn::IfThenZeroElse(hn::RebindMask(d, hn::Lt(word, threshold)), hn::Mul(x, factor));
  };
  if (run.residual == nullptr) {
    for_each_vector(
        n,
        [&](int64_t i, auto load, auto store)
            HWY_ATTR { store(kept(i, load(run.x + i)), run.y + i); },
        run.past_caches);
  } else {
    for_each_vector(
        n,
        [&](int64_t i, auto load, auto store) HWY_ATTR {
          store(hn::Add(load(run.residual + i), kept(i, load(run.x + i))), run.y + i);
        },
        run.past_caches);
  }
}

template <class T>
void drop(const DropoutResidual& args) {
  const DropoutRun<T> whole{.x = args.x.data_as<T>(),
                            .residual = args.residual ? args.residual.data_as<T>() : nullptr,
                            .y = args.y.data_as<T>(),
                            .factor = dropout_factor<float>(args.p),
                            .threshold = dropout_threshold(args.p),
                            .past_caches = args.residual
                                               ? past_caches(args.y, args.x, args.residual)
                                               : past_caches(args.y, args.x)};
  parallel_for(args.x.numel(), past_caches_grain(4 * kRun, whole.past_caches),
               [&](int64_t begin, int64_t end) {
                 HWY_ALIGN uint32_t words[kWords];
                 for (int64_t i = begin; i < end; i += kRun) {
                   const int64_t n = std::min(kRun, end - i);
                   // Memory works on the elements while their words are made.
                   prefetch_row(reinterpret_cast<const std::byte*>(whole.x + i),
                                n * size_of(args.x.dtype()));
                   const auto element = static_cast<uint64_t>(args.first_element + i);
                   const auto skipped = static_cast<int64_t>(element & 3);
                   fill_words(args.key, element >> 2, (skipped + n + 3) / 4, words);
                   DropoutRun<T> run = whole;
                   run.x += i;
                   run.y += i;
                   if (run.residual != nullptr) run.residual += i;
                   drop_run(run, words + skipped, n);
                 }
                 if (whole.past_caches) flush_past_caches();
               });
}

void dropout_vectors(const DropoutResidual& args) {
  dispatch_short_float(args.x.dtype(), [&]<class T>() { drop<T>(args); });
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zinc::kernels::cpu {

HWY_EXPORT(dropout_vectors);

void dropout_lanes(const DropoutResidual& args) { HWY_DYNAMIC_DISPATCH(dropout_vectors)(args); }

}  // namespace zinc::kernels::cpu
#endif
