#include "kernels/step_verdict.h"

#include <cmath>
#include <cstring>

namespace zinc::kernels::cpu {

void decide_step(const DecideStep& args) {
  const double* gathered = args.gathered.data_as<double>();
  const int64_t* sources = args.sources.data_as<int64_t>();
  const int64_t* merges = args.merges.data_as<int64_t>();
  const int64_t* parameters = args.parameters.data_as<int64_t>();
  double* leaves = args.leaves.data_as<double>();
  int64_t first_nonfinite = -1;
  for (int64_t i = 0; i < args.sources.numel(); ++i) {
    const int64_t rank = sources[i] / args.longest;
    leaves[i] = gathered[rank * args.words + args.num_headers + sources[i] % args.longest];
    if (first_nonfinite < 0 && !is_finite_number(leaves[i])) first_nonfinite = i;
  }
  double sum = 0.0;
  for (int64_t p = 0; p + 1 < args.parameters.dim(0); ++p) {
    for (int64_t m = parameters[2 * p + 1]; m < parameters[2 * p + 3]; ++m) {
      double& left = leaves[merges[2 * m]];
      left = left + leaves[merges[2 * m + 1]];
    }
    sum += leaves[parameters[2 * p]];
  }
  const int64_t ranks = args.gathered.numel() / args.words;
  int64_t targets = 0;
  bool nonfinite_loss = false;
  auto* out = args.out.data_as<uint8_t>();
  auto* headers = out + sizeof(StepVerdict);
  const size_t header_bytes = 8 * static_cast<size_t>(args.num_headers);
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const double* from = gathered + rank * args.words;
    for (int64_t b = 0; b < args.num_batches; ++b) {
      int64_t of_batch = 0;
      std::memcpy(&of_batch, from + b, sizeof(of_batch));
      targets += of_batch;
      float loss = 0.0f;
      std::memcpy(&loss, reinterpret_cast<const float*>(from + args.num_batches) + b, sizeof(loss));
      nonfinite_loss = nonfinite_loss || is_nonfinite_loss(loss, of_batch, args.by_token);
    }
    std::memcpy(headers + static_cast<size_t>(rank) * header_bytes, from, header_bytes);
  }
  const auto count = static_cast<double>(args.by_token ? targets : args.num_batches * ranks);
  LossScaleState scale;
  std::memcpy(&scale, args.scale.data_as<uint8_t>(), sizeof(scale));
  const StepVerdict verdict = judge_step(
      std::sqrt(sum), sum, first_nonfinite, count, args.stop_at_nonfinite_loss && nonfinite_loss,
      args.rules, args.check_overflow, args.clipping, args.wire_divisor, scale);
  std::memcpy(args.scale.data_as<uint8_t>(), &scale, sizeof(scale));
  std::memcpy(out, &verdict, sizeof(verdict));
}

}  // namespace zinc::kernels::cpu
