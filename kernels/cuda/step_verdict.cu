// The verdict over a step by one block: leaves are fetched side by side, parameters folded side by
// side, each by one thread in the order of its merges, and the first thread adds the parameters and
// judges. Some numbers per parameter and rank: nothing beside a pass over the gradients.
#include "kernels/step_verdict.h"

#include <algorithm>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/shared.h"

namespace zinc::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr long long kNone = 0x7fffffffffffffffll;

struct Operands {
  const double* gathered;
  const int64_t* header_words;  // the same, as integers
  int64_t words, num_headers, num_batches, longest, ranks;
  const int64_t* sources;
  const int64_t* merges;
  const int64_t* parameters;
  int64_t num_leaves, num_parameters;
  double clipping, wire_divisor;
  LossScaleRules rules;
  bool by_token, check_overflow, stop_at_nonfinite_loss;
  double* leaves;
  LossScaleState* scale;
  StepVerdict* verdict;
  int64_t* headers;
};

__global__ void __launch_bounds__(kThreads) verdict_kernel(Operands at) {
  ZINC_SHARED(long long, nonfinite, [kThreads]);
  ZINC_SHARED(long long, targets, [kThreads]);
  ZINC_SHARED(int, bad_losses, [kThreads]);
  const int index = static_cast<int>(threadIdx.x);
  long long bad = kNone;
  for (int64_t i = index; i < at.num_leaves; i += kThreads) {
    const int64_t rank = at.sources[i] / at.longest;
    const int64_t place = at.sources[i] % at.longest;
    const double value = at.gathered[rank * at.words + at.num_headers + place];
    at.leaves[i] = value;
    if (bad == kNone && !is_finite_number(value)) bad = i;
  }
  long long own = 0;
  int bad_loss = 0;
  for (int64_t i = index; i < at.ranks * at.num_headers; i += kThreads) {
    const int64_t rank = i / at.num_headers;
    const int64_t place = i % at.num_headers;
    const int64_t word = at.header_words[rank * at.words + place];
    at.headers[i] = word;
    if (place >= at.num_batches) continue;
    own += word;
    const auto* losses =
        reinterpret_cast<const float*>(at.gathered + rank * at.words + at.num_batches);
    if (is_nonfinite_loss(losses[place], word, at.by_token)) bad_loss = 1;
  }
  nonfinite[index] = bad;
  targets[index] = own;
  bad_losses[index] = bad_loss;
  __syncthreads();  // also for the leaves, which other threads of the block have written
  for (int64_t p = index; p < at.num_parameters; p += kThreads) {
    for (int64_t m = at.parameters[2 * p + 1]; m < at.parameters[2 * p + 3]; ++m) {
      double& left = at.leaves[at.merges[2 * m]];
      left = left + at.leaves[at.merges[2 * m + 1]];
    }
  }
  __syncthreads();
  if (index != 0) return;
  double sum = 0.0;
  for (int64_t p = 0; p < at.num_parameters; ++p) sum += at.leaves[at.parameters[2 * p]];
  long long count = 0;
  for (int i = 0; i < kThreads; ++i) {
    bad = nonfinite[i] < bad ? nonfinite[i] : bad;
    count += targets[i];
    bad_loss |= bad_losses[i];
  }
  if (!at.by_token) count = at.num_batches * at.ranks;
  LossScaleState scale = *at.scale;
  *at.verdict = judge_step(sqrt(sum), sum, bad == kNone ? -1 : bad, static_cast<double>(count),
                           at.stop_at_nonfinite_loss && bad_loss != 0, at.rules, at.check_overflow,
                           at.clipping, at.wire_divisor, scale);
  *at.scale = scale;
}

}  // namespace

void decide_step(const DecideStep& args, StreamRef stream) {
  auto* out = args.out.data_as<uint8_t>();
  const Operands operands{.gathered = args.gathered.data_as<double>(),
                          .header_words = static_cast<const int64_t*>(args.gathered.data()),
                          .words = args.words,
                          .num_headers = args.num_headers,
                          .num_batches = args.num_batches,
                          .longest = std::max<int64_t>(args.longest, 1),
                          .ranks = args.gathered.numel() / args.words,
                          .sources = args.sources.data_as<int64_t>(),
                          .merges = args.merges.data_as<int64_t>(),
                          .parameters = args.parameters.data_as<int64_t>(),
                          .num_leaves = args.sources.numel(),
                          .num_parameters = args.parameters.dim(0) - 1,
                          .clipping = args.clipping,
                          .wire_divisor = args.wire_divisor,
                          .rules = args.rules,
                          .by_token = args.by_token,
                          .check_overflow = args.check_overflow,
                          .stop_at_nonfinite_loss = args.stop_at_nonfinite_loss,
                          .leaves = args.leaves.data_as<double>(),
                          .scale = reinterpret_cast<LossScaleState*>(args.scale.data_as<uint8_t>()),
                          .verdict = reinterpret_cast<StepVerdict*>(out),
                          .headers = reinterpret_cast<int64_t*>(out + sizeof(StepVerdict))};
  launch(verdict_kernel, dim3(1), dim3(kThreads), 0, stream, operands);
}

}  // namespace zinc::kernels::cuda
