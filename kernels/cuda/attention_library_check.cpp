// The start-up check of a library's attention. kernels/attention_library.h says what for.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/context.h"
#include "core/cuda_backend.h"
#include "core/error.h"
#include "core/float16.h"
#include "kernels/cuda/attention.h"

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
  int64_t out_bytes() const { return static_cast<int64_t>(out.size() * sizeof(uint16_t)); }
  int64_t lse_bytes() const { return static_cast<int64_t>(lse.size() * sizeof(float)); }
};

float value_of(uint16_t bits, DType dtype) {
  return dtype == DType::bf16 ? static_cast<float>(std::bit_cast<bf16>(bits))
                              : static_cast<float>(std::bit_cast<f16>(bits));
}

// Each side is at most 2 epsilons of the dtype (probabilities and the output are rounded) and
// 16 f32 epsilons x sqrt(D + Tk) (sums of scores up to 16) away from the exact result, as in the
// kernels' own test: so they are twice that apart.
std::string difference(const Result& own, const Result& library, const AttentionKey& kind) {
  const double scores = 16 * 0x1p-23 * std::sqrt(static_cast<double>(kind.D + kind.Tk));
  const double epsilon = kind.dtype == DType::bf16 ? 0x1p-8 : 0x1p-11;
  double square = 0.0, size = 0.0;
  for (size_t i = 0; i < own.out.size(); ++i) {
    const double expected = value_of(own.out[i], kind.dtype);
    const double apart = value_of(library.out[i], kind.dtype) - expected;
    square += apart * apart;
    size += expected * expected;
  }
  const double of_out = std::sqrt(square / size), allowed = 2 * (2 * epsilon + scores);
  if (!(of_out <= allowed)) {
    return concat("out is ", of_out, " apart, ", allowed, " are allowed");
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

}  // namespace

std::string check_attention_library(AttentionLibrary& library, const AttentionKey& kind,
                                    std::byte* workspace, StreamRef stream) {
  AttentionLibrary::MadePlan made = library.make_plan(kind);
  if (made.plan == nullptr) return concat("it refuses the small problem: ", made.why_not);
  Arena arena(workspace + kAttentionPlanBytes);
  const Device device = Context::current().device();
  AttentionProblem p{.B = kind.B,
                     .Tq = kind.Tq,
                     .Tk = kind.Tk,
                     .H = kind.H,
                     .G = kind.G,
                     .D = kind.D,
                     .dtype = kind.dtype,
                     .device = device,
                     .scale = 1.0 / std::sqrt(static_cast<double>(kind.D))};
  p.mask.causal = kind.causal;
  const auto qkv = numbers(kind.B * kind.strides[0], kind.dtype);
  const auto qkv_bytes = static_cast<int64_t>(qkv.size() * sizeof(uint16_t));
  std::byte* inputs = arena.take(qkv_bytes);
  cuda_copy(inputs, qkv.data(), qkv_bytes, stream);
  const auto part = [&](int64_t head, size_t at) {
    HeadsView view;
    view.data = inputs + head * kind.D * int64_t{sizeof(uint16_t)};
    view.batch = kind.strides[at];
    view.row = kind.strides[at + 1];
    view.head = kind.strides[at + 2];
    return view;
  };
  p.q = part(0, 0);
  p.k = part(kind.H, 3);
  p.v = part(kind.H + kind.G, 6);
  std::vector<int32_t> lengths;
  if (kind.lengths) {
    for (int64_t b = 0; b < kind.B; ++b) {  // the second sees no key
      lengths.push_back(static_cast<int32_t>(b == 0 ? kind.Tk / 3 : 0));
    }
    const auto bytes = static_cast<int64_t>(lengths.size() * sizeof(int32_t));
    std::byte* at = arena.take(bytes);
    cuda_copy(at, lengths.data(), bytes, stream);
    p.mask.key_lengths = ConstView(at, DType::i32, {kind.B}, device, Tier::device);
  }
  const auto compute = [&](auto&& run) {
    Result result(kind);
    HeadsView out;
    out.data = arena.take(result.out_bytes());
    out.batch = kind.strides[9];
    out.row = kind.strides[10];
    out.head = kind.strides[11];
    std::byte* lse = arena.take(result.lse_bytes());
    run(out, reinterpret_cast<float*>(lse));
    cuda_copy(result.out.data(), out.data, result.out_bytes(), stream);
    cuda_copy(result.lse.data(), lse, result.lse_bytes(), stream);
    stream->synchronize();
    return result;
  };
  const auto by_library = [&](const HeadsView& out, float* lse) {
    made.plan->run(p, out, lse, workspace, stream);
  };
  const Result own = compute(
      [&](const HeadsView& out, float* lse) { run_attention_forward(p, out, lse, stream); });
  const Result first = compute(by_library);
  const Result second = compute(by_library);
  if (first.out != second.out ||
      std::memcmp(first.lse.data(), second.lse.data(), first.lse.size() * sizeof(float)) != 0) {
    return "two runs of it give other bits";
  }
  return difference(own, first, kind);
}

}  // namespace zinc::kernels::cuda
