// The start-up check of a library's attention. kernels/attention_library.h says what for.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "core/context.h"
#include "core/cuda_backend.h"
#include "core/error.h"
#include "core/float16.h"
#include "kernels/cuda/attention.h"
#include "kernels/fill.h"

namespace zinc::kernels::cuda {
namespace {

constexpr int64_t kAlignment = 256;

// Arrays one behind the other in the part of the workspace that belongs to the check.
class Arena {
 public:
  explicit Arena(std::byte* begin) : next_(begin), end_(begin + kAttentionCheckBytes) {}
  std::byte* take(int64_t bytes) {
    std::byte* taken = next_;
    next_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    bug_check(next_ <= end_, "attention: the check does not fit into its workspace");
    return taken;
  }

 private:
  std::byte* next_;
  std::byte* end_;
};

// In [-2, 2), of a 16-bit format; a fixed sequence (Numerical Recipes' multiplier and increment).
std::vector<uint16_t> numbers(int64_t count, DType dtype) {
  std::vector<uint16_t> made(static_cast<size_t>(count));
  uint32_t state = 1;
  for (uint16_t& bits : made) {
    state = state * 1664525u + 1013904223u;
    const float value = static_cast<float>(state >> 8) * 0x1p-22f - 2.0f;
    bits = dtype == DType::bf16 ? bf16(value).bits : f16(value).bits;
  }
  return made;
}

struct Result {
  std::vector<uint16_t> out;
  std::vector<float> lse;

  explicit Result(const AttentionKey& k)
      : out(static_cast<size_t>(k.B * k.Tq * k.H * k.D)),
        lse(static_cast<size_t>(k.B * k.H * k.Tq)) {}
};
template <class T>
int64_t bytes_of(const std::vector<T>& values) {
  return static_cast<int64_t>(values.size() * sizeof(T));
}

float value_of(uint16_t bits, DType dtype) {
  return dtype == DType::bf16 ? static_cast<float>(std::bit_cast<bf16>(bits))
                              : static_cast<float>(std::bit_cast<f16>(bits));
}

// Each side is at most 2 epsilons of the dtype (probabilities and the output are rounded) and
// 16 f32 epsilons x sqrt(D + Tk) (sums of scores up to 16) away from the exact result, as in the
// kernels' own test: so they are twice that apart. Every query by itself, so that one that is wrong
// does not drown; of its own size or of the usual one, whichever is larger, as some see no key.
std::string difference(const Result& own, const Result& library, const AttentionKey& k) {
  const double scores = 16 * 0x1p-23 * std::sqrt(static_cast<double>(k.D + k.Tk));
  const double epsilon = k.dtype == DType::bf16 ? 0x1p-8 : 0x1p-11;
  const double allowed = 2 * (2 * epsilon + scores);
  const auto size = static_cast<size_t>(k.D);
  std::vector<double> sizes, distances;  // squares
  for (size_t i = 0; i < own.out.size(); ++i) {
    if (i % size == 0) {
      sizes.push_back(0.0);
      distances.push_back(0.0);
    }
    const double expected = value_of(own.out[i], k.dtype);
    const double apart = value_of(library.out[i], k.dtype) - expected;
    sizes.back() += expected * expected;
    distances.back() += apart * apart;
  }
  const double usual =
      std::accumulate(sizes.begin(), sizes.end(), 0.0) / static_cast<double>(sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    const double apart = std::sqrt(distances[i] / std::max(sizes[i], usual));
    if (apart <= allowed) continue;
    const auto row = static_cast<int64_t>(i) / k.H;
    return concat("out of query ", row % k.Tq, " is ", apart, " apart, ", allowed, " are allowed");
  }
  for (size_t i = 0; i < own.lse.size(); ++i) {
    const double expected = own.lse[i];
    const double apart = std::abs(library.lse[i] - expected);
    const double tolerance = 2 * scores * std::max(1.0, std::abs(expected));
    const bool same = own.lse[i] == library.lse[i];  // infinities too
    if (!same && !(apart <= tolerance)) {
      return concat("lse[", i, "] is ", library.lse[i], ", not ", own.lse[i]);
    }
  }
  return "";
}

// One problem, in the part of the workspace that belongs to the check.
class SmallProblem {
 public:
  SmallProblem(const AttentionKey& key, std::byte* place, StreamRef stream)
      : key_(key), arena_(place), stream_(stream) {
    const auto qkv = numbers(key.B * key.strides[0], key.dtype);
    const auto* inputs = upload(qkv);
    const auto part = [&](int64_t head, size_t at) {
      return view(inputs + head * key.D * int64_t{sizeof(uint16_t)}, at);
    };
    p_.q = part(0, 0);
    p_.k = part(key.H, 3);
    p_.v = part(key.H + key.G, 6);
    p_.mask.causal = key.causal;
    if (key.lengths) {
      std::vector<int32_t> lengths(static_cast<size_t>(key.B));  // the second sees no key
      lengths[0] = static_cast<int32_t>(key.Tk / 3);
      p_.mask.key_lengths =
          ConstView(upload(lengths), DType::i32, {key.B}, p_.device, Tier::device);
    }
    const Result result(key);
    out_ = view(arena_.take(bytes_of(result.out)), 9);
    lse_ = arena_.take(bytes_of(result.lse));
  }

  // Waits for the stream. What `run` does not write is not a number.
  template <class Run>
  Result compute(Run&& run) {
    Result result(key_);
    clear(const_cast<void*>(out_.data), key_.dtype, result.out.size());
    clear(lse_, DType::f32, result.lse.size());
    run(p_, out_, reinterpret_cast<float*>(lse_));
    cuda_copy(result.out.data(), out_.data, bytes_of(result.out), stream_);
    cuda_copy(result.lse.data(), lse_, bytes_of(result.lse), stream_);
    stream_->synchronize();
    return result;
  }

 private:
  template <class T>
  const std::byte* upload(const std::vector<T>& values) {
    std::byte* at = arena_.take(bytes_of(values));
    cuda_copy(at, values.data(), bytes_of(values), stream_);
    return at;
  }
  HeadsView view(const std::byte* data, size_t at) const {
    HeadsView made;
    made.data = data;
    made.batch = key_.strides[at];
    made.row = key_.strides[at + 1];
    made.head = key_.strides[at + 2];
    return made;
  }
  void clear(void* data, DType dtype, size_t count) {
    const View whole(data, dtype, {static_cast<int64_t>(count)}, p_.device, Tier::device);
    fill({.y = whole, .value = std::numeric_limits<double>::quiet_NaN()}, stream_);
  }

  const AttentionKey& key_;
  Arena arena_;
  StreamRef stream_;
  AttentionProblem p_{.B = key_.B,
                      .Tq = key_.Tq,
                      .Tk = key_.Tk,
                      .H = key_.H,
                      .G = key_.G,
                      .D = key_.D,
                      .dtype = key_.dtype,
                      .device = Context::current().device(),
                      .scale = 1.0 / std::sqrt(static_cast<double>(key_.D))};
  HeadsView out_;
  std::byte* lse_ = nullptr;
};

}  // namespace

std::string check_attention_library(AttentionLibrary& library, const AttentionKey& small,
                                    std::byte* workspace, StreamRef stream) {
  AttentionLibrary::MadePlan made = library.make_plan(small);
  if (made.plan == nullptr) return concat("it refuses the small problem: ", made.why_not);
  SmallProblem problem(small, workspace + kAttentionPlanBytes, stream);
  const auto by_library = [&](const AttentionProblem& p, const HeadsView& out, float* lse) {
    made.plan->run(p, out, lse, workspace, stream);
  };
  const Result own =
      problem.compute([&](const AttentionProblem& p, const HeadsView& out, float* lse) {
        run_attention_forward(p, out, lse, stream);
      });
  const Result first = problem.compute(by_library);
  const Result second = problem.compute(by_library);
  if (first.out != second.out ||
      std::memcmp(first.lse.data(), second.lse.data(), first.lse.size() * sizeof(float)) != 0) {
    return "two runs of it give other bits";
  }
  return difference(own, first, small);
}

}  // namespace zinc::kernels::cuda
