#include "kernels/signs.h"

#include <cmath>

namespace zinc::kernels::cpu {

void sign_scales(const SignScales& args) {
  const double* sums = args.sums.data_as<double>();
  const int32_t* counts = args.counts.data_as<int32_t>();
  const int64_t* runs = args.runs ? args.runs.data_as<int64_t>() : nullptr;
  float* scales = args.scales.data_as<float>();
  const int64_t num_runs = runs != nullptr ? args.runs.numel() - 1 : args.scales.numel();
  for (int64_t run = 0; run < num_runs; ++run) {
    const int64_t begin = runs != nullptr ? runs[run] : run;
    const int64_t end = runs != nullptr ? runs[run + 1] : run + 1;
    double sum = 0.0;
    int64_t count = 0;
    for (int64_t k = begin; k < end; ++k) {
      sum += sums[k];
      count += counts[k];
    }
    const double scale = count > 0 ? std::sqrt(sum / static_cast<double>(count)) : 0.0;
    for (int64_t k = begin; k < end; ++k) scales[k] = static_cast<float>(scale);
  }
}

}  // namespace zinc::kernels::cpu
