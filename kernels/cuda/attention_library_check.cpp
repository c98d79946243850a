// The start-up check of a library's attention. kernels/attention_library.h says what for.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <tuple>
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

// Numbers in [-2, 2) of a 16-bit format; a fixed sequence (Numerical Recipes' multiplier and
// increment).
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

// The result of one side: forward out [B, Tq, H, D] and lse, backward dq, dk and dv beside each
// other, [B, T, H + 2 G, D].
struct Result {
  std::vector<uint16_t> rows;
  std::vector<float> lse;
};
template <class T>
int64_t bytes_of(const std::vector<T>& values) {
  return static_cast<int64_t>(values.size() * sizeof(T));
}

// Heads of a token's rows that make one tensor.
struct Part {
  const char* name;
  const char* token;
  int64_t first, count;
};
std::vector<Part> parts_of(const AttentionKey& k) {
  if (k.pass == AttentionPass::forward) return {{"out", "query", 0, k.H}};
  return {{"dq", "query", 0, k.H}, {"dk", "key", k.H, k.G}, {"dv", "key", k.H + k.G, k.G}};
}
int64_t rows_of_token(const AttentionKey& k) {
  return k.pass == AttentionPass::forward ? k.H : k.H + 2 * k.G;
}

float value_of(uint16_t bits, DType dtype) {
  return dtype == DType::bf16 ? static_cast<float>(std::bit_cast<bf16>(bits))
                              : static_cast<float>(std::bit_cast<f16>(bits));
}

// The error allowed to sums of scores up to 16: 16 f32 epsilons x sqrt(D + Tk).
double allowed_of_scores(const AttentionKey& k) {
  return 16 * 0x1p-23 * std::sqrt(static_cast<double>(k.D + k.Tk));
}

// Each side is at most 2 epsilons of the dtype (probabilities and the output are rounded; backward
// 4: probabilities, their gradients, the sums of a group, the result) and the sums of scores
// (backward twice) away from the exact result, as in the kernels' own test: so they are twice that
// apart. Every row is compared by itself, so that a single wrong row is found. Its error is
// relative to its own size or the usual size, whichever is larger, since some queries see no key.
std::string difference(const Part& part, const Result& own, const Result& library,
                       const AttentionKey& k) {
  const double epsilon = k.dtype == DType::bf16 ? 0x1p-8 : 0x1p-11;
  const double steps = k.pass == AttentionPass::forward ? 1 : 2;
  const double allowed = 2 * steps * (2 * epsilon + allowed_of_scores(k));
  const int64_t of_token = rows_of_token(k), tokens = k.B * k.Tq;
  std::vector<double> sizes, distances;  // squares
  for (int64_t row = 0; row < tokens * part.count; ++row) {
    const int64_t head = part.first + row % part.count;
    const auto begin = static_cast<size_t>((row / part.count * of_token + head) * k.D);
    double size = 0.0, distance = 0.0;
    for (size_t i = begin; i < begin + static_cast<size_t>(k.D); ++i) {
      const double expected = value_of(own.rows[i], k.dtype);
      const double apart = value_of(library.rows[i], k.dtype) - expected;
      size += expected * expected;
      distance += apart * apart;
    }
    sizes.push_back(size);
    distances.push_back(distance);
  }
  const double usual =
      std::accumulate(sizes.begin(), sizes.end(), 0.0) / static_cast<double>(sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    const double apart = std::sqrt(distances[i] / std::max(sizes[i], usual));
    if (apart <= allowed) continue;
    const int64_t token = static_cast<int64_t>(i) / part.count % k.Tq;
    return str(part.name, " of ", part.token, " ", token, " is ", apart, " apart, ", allowed,
               " are allowed");
  }
  return "";
}

std::string difference(const Result& own, const Result& library, const AttentionKey& k) {
  for (const Part& part : parts_of(k)) {
    if (std::string found = difference(part, own, library, k); !found.empty()) return found;
  }
  for (size_t i = 0; i < own.lse.size(); ++i) {
    const double expected = own.lse[i];
    const double apart = std::abs(library.lse[i] - expected);
    const double tolerance = 2 * allowed_of_scores(k) * std::max(1.0, std::abs(expected));
    const bool same = own.lse[i] == library.lse[i];  // infinities too
    if (!same && !(apart <= tolerance)) {
      return str("lse[", i, "] is ", library.lse[i], ", not ", own.lse[i]);
    }
  }
  return "";
}

// One problem, in the part of the workspace that belongs to the check. Backward begins with what
// our own forward leaves.
class SmallProblem {
 public:
  SmallProblem(const AttentionKey& key, std::byte* place, StreamRef stream)
      : key_(key), arena_(place), stream_(stream) {
    const std::byte* inputs = upload(numbers(key.B * key.strides[0], key.dtype));
    std::tie(p_.q, p_.k, p_.v) = heads_of(inputs, 0);
    p_.mask.causal = key.causal;
    p_.mask.window = key.window;
    if (key.lengths) {
      std::vector<int32_t> lengths(static_cast<size_t>(key.B));  // the second sees no key
      lengths[0] = static_cast<int32_t>(key.Tk / 3);
      p_.mask.key_lengths = array(upload(lengths), DType::i32, key.B);
    }
    if (key.alibi) {
      std::vector<float> slopes(static_cast<size_t>(key.H));
      for (size_t h = 0; h < slopes.size(); ++h)
        slopes[h] = std::ldexp(1.0f, -1 - static_cast<int>(h));
      p_.mask.alibi_slopes = array(upload(slopes), DType::f32, key.H);
    }
    const int64_t width = size_of(key.dtype);
    arrays_.out = view(arena_.take(key.B * key.strides[9] * width), 9);
    arrays_.lse =
        reinterpret_cast<float*>(arena_.take(key.B * key.H * key.Tq * int64_t{sizeof(float)}));
    if (key.pass == AttentionPass::forward) return;
    run_attention_forward(p_, arrays_.out, arrays_.lse, stream);
    arrays_.dout = view(upload(numbers(key.B * key.strides[12], key.dtype)), 12);
    gradients_ = arena_.take(key.B * key.strides[15] * width);
    std::tie(arrays_.dq, arrays_.dk, arrays_.dv) = heads_of(gradients_, 15);
  }

  // Computes the result by our own kernels.
  Result compute() {
    if (key_.pass == AttentionPass::forward) {
      return compute([&] { run_attention_forward(p_, arrays_.out, arrays_.lse, stream_); });
    }
    auto* workspace = reinterpret_cast<float*>(arena_.take(attention_backward_workspace_bytes(p_)));
    return compute([&] {
      run_attention_backward(p_,
                             {.out = arrays_.out,
                              .dout = arrays_.dout,
                              .lse = arrays_.lse,
                              .dq = arrays_.dq,
                              .dk = arrays_.dk,
                              .dv = arrays_.dv,
                              .dbias = {}},
                             workspace, stream_);
    });
  }
  Result compute(AttentionPlan& plan, std::byte* workspace) {
    return compute([&] { plan.run(p_, arrays_, workspace, stream_); });
  }

 private:
  // Waits for the stream. Elements that `run` does not write are NaN.
  template <class Run>
  Result compute(Run&& run) {
    const bool forward = key_.pass == AttentionPass::forward;
    Result result;
    result.rows.resize(static_cast<size_t>(key_.B * key_.Tq * rows_of_token(key_) * key_.D));
    if (forward) result.lse.resize(static_cast<size_t>(key_.B * key_.H * key_.Tq));
    const void* rows = forward ? arrays_.out.data : gradients_;
    clear(rows, key_.dtype, result.rows.size());
    clear(arrays_.lse, DType::f32, result.lse.size());
    run();
    cuda_copy(result.rows.data(), rows, bytes_of(result.rows), stream_);
    if (forward) cuda_copy(result.lse.data(), arrays_.lse, bytes_of(result.lse), stream_);
    stream_->synchronize();
    return result;
  }
  template <class T>
  const std::byte* upload(const std::vector<T>& values) {
    std::byte* at = arena_.take(bytes_of(values));
    cuda_copy(at, values.data(), bytes_of(values), stream_);
    stream_->synchronize();
    return at;
  }
  // Three tensors beside each other, the first of whose strides are at `at` in the key.
  std::tuple<HeadsView, HeadsView, HeadsView> heads_of(const std::byte* buffer, size_t at) const {
    const int64_t head = key_.D * size_of(key_.dtype);
    return {view(buffer, at), view(buffer + key_.H * head, at + 3),
            view(buffer + (key_.H + key_.G) * head, at + 6)};
  }
  HeadsView view(const std::byte* data, size_t at) const {
    HeadsView made;
    made.data = data;
    made.batch = key_.strides[at];
    made.row = key_.strides[at + 1];
    made.head = key_.strides[at + 2];
    return made;
  }
  ConstView array(const std::byte* data, DType dtype, int64_t count) const {
    return ConstView(data, dtype, {count}, p_.device, Tier::device);
  }
  void clear(const void* data, DType dtype, size_t count) {
    if (count == 0) return;
    const View whole(const_cast<void*>(data), dtype, {static_cast<int64_t>(count)}, p_.device,
                     Tier::device);
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
  AttentionArrays arrays_;
  std::byte* gradients_ = nullptr;
};

}  // namespace

std::string check_attention_library(AttentionLibrary& library, const AttentionKey& small,
                                    std::byte* workspace, StreamRef stream) {
  AttentionLibrary::MadePlan made = library.make_plan(small);
  if (made.plan == nullptr) return str("it refuses the small problem: ", made.why_not);
  SmallProblem problem(small, workspace, stream);
  const Result own = problem.compute();
  std::byte* const of_plan = workspace + kAttentionCheckBytes;
  const Result first = problem.compute(*made.plan, of_plan);
  const Result second = problem.compute(*made.plan, of_plan);
  const bool same_lse = first.lse.empty() || std::memcmp(first.lse.data(), second.lse.data(),
                                                         first.lse.size() * sizeof(float)) == 0;
  if (first.rows != second.rows || !same_lse) {
    return "two runs of it give other bits";
  }
  return difference(own, first, small);
}

}  // namespace zinc::kernels::cuda
