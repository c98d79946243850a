// Row-major C = A B as the library's column-major C^T = B^T A^T: its first operand is b.
#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <vector>

#include "bench/arrays.h"
#include "bench/ceilings.h"
#include "bench/device_clock.h"
#include "core/error.h"

namespace zinc::bench {
namespace {

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw CudaError(str("cuBLASLt: ", what, ": ", cublasLtGetStatusString(status)));
}

cudaDataType_t type_of(DType dtype) {
  if (dtype == DType::bf16) return CUDA_R_16BF;
  return dtype == DType::f16 ? CUDA_R_16F : CUDA_R_32F;
}

class CublasProbe final : public Probe {
 public:
  CublasProbe(const Ceiling& c, Context& context)
      : flops_(2.0 * static_cast<double>(c.m) * static_cast<double>(c.n) *
               static_cast<double>(c.k)),
        stream_(context.compute()),
        workspace_({kWorkspaceBytes}, DType::u8) {
    check(cublasLtCreate(&library_), "cublasLtCreate");
    check(cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F),
          "cublasLtMatmulDescCreate");
    const auto set = [&](cublasLtMatmulDescAttributes_t which, bool transposed) {
      const cublasOperation_t value = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
      check(cublasLtMatmulDescSetAttribute(operation_, which, &value, sizeof(value)),
            "cublasLtMatmulDescSetAttribute");
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, c.transpose_b);
    set(CUBLASLT_MATMUL_DESC_TRANSB, c.transpose_a);
    const auto stored = [&](int64_t rows, int64_t cols, bool transposed) {
      return transposed ? Shape{cols, rows} : Shape{rows, cols};
    };
    const Shape a = stored(c.m, c.k, c.transpose_a), b = stored(c.k, c.n, c.transpose_b);
    layouts_ = {layout(c.dtype, b), layout(c.dtype, a), layout(c.dtype, {c.m, c.n})};
    const int64_t bytes = (c.m * c.k + c.k * c.n + c.m * c.n) * size_of(c.dtype);
    const int64_t sets =
        std::clamp<int64_t>(2 * last_level_cache_bytes(context.device()) / bytes + 1, 1, 8);
    for (int64_t s = 0; s < sets; ++s) {
      operands_.push_back({Array::uniform(b, c.dtype, -1, 1, 1),
                           Array::uniform(a, c.dtype, -1, 1, 2), Array({c.m, c.n}, c.dtype)});
    }
    choose(context);
  }
  ~CublasProbe() override {
    for (const cublasLtMatrixLayout_t one : layouts_) cublasLtMatrixLayoutDestroy(one);
    cublasLtMatmulDescDestroy(operation_);
    cublasLtDestroy(library_);
  }
  CublasProbe(const CublasProbe&) = delete;
  CublasProbe& operator=(const CublasProbe&) = delete;

  void run() override { check(launch(), "cublasLtMatmul"); }
  double work_per_run() const override { return flops_; }

 private:
  static constexpr int64_t kWorkspaceBytes = int64_t{64} << 20;

  static cublasLtMatrixLayout_t layout(DType dtype, const Shape& shape) {
    cublasLtMatrixLayout_t made = nullptr;
    check(cublasLtMatrixLayoutCreate(&made, type_of(dtype), static_cast<uint64_t>(shape[1]),
                                     static_cast<uint64_t>(shape[0]), shape[1]),
          "cublasLtMatrixLayoutCreate");
    return made;
  }

  cublasStatus_t launch() {
    const auto& [b, a, c] = operands_[next_++ % operands_.size()];
    const float one = 1.0f, zero = 0.0f;
    return cublasLtMatmul(library_, operation_, &one, b.view().data(), layouts_[0], a.view().data(),
                          layouts_[1], &zero, c.view().data(), layouts_[2], c.view().data(),
                          layouts_[2], &algorithm_, workspace_.view().data(),
                          static_cast<size_t>(kWorkspaceBytes),
                          static_cast<cudaStream_t>(stream_->native()));
  }

  void choose(Context& context) {
    constexpr int kCandidates = 8;
    cublasLtMatmulPreference_t preference = nullptr;
    check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    const auto cap = static_cast<uint64_t>(kWorkspaceBytes);
    check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                               &cap, sizeof(cap)),
          "cublasLtMatmulPreferenceSetAttribute");
    std::array<cublasLtMatmulHeuristicResult_t, kCandidates> results{};
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        library_, operation_, layouts_[0], layouts_[1], layouts_[2], layouts_[2], preference,
        kCandidates, results.data(), &found);
    cublasLtMatmulPreferenceDestroy(preference);
    check(status, "cublasLtMatmulAlgoGetHeuristic");
    DeviceClock clock(context);
    double best = 0.0;
    cublasLtMatmulAlgo_t fastest{};
    for (int i = 0; i < found; ++i) {
      algorithm_ = results[static_cast<size_t>(i)].algo;
      if (launch() != CUBLAS_STATUS_SUCCESS) continue;
      const double seconds = clock.seconds_of([&] {
        for (int run = 0; run < 4; ++run) check(launch(), "cublasLtMatmul");
      });
      if (best != 0.0 && seconds >= best) continue;
      best = seconds;
      fastest = algorithm_;
    }
    require(best > 0.0, "bench: cuBLASLt has no algorithm for a product of this shape");
    algorithm_ = fastest;
  }

  double flops_;
  StreamRef stream_;
  Array workspace_;
  cublasLtHandle_t library_ = nullptr;
  cublasLtMatmulDesc_t operation_ = nullptr;
  std::array<cublasLtMatrixLayout_t, 3> layouts_{};  // b, a, c
  std::vector<std::array<Array, 3>> operands_;
  cublasLtMatmulAlgo_t algorithm_{};
  size_t next_ = 0;
};

}  // namespace

std::unique_ptr<Probe> make_cuda_gemm_probe(const Ceiling& ceiling) {
  if (ceiling.dtype == DType::f64 || ceiling.m * ceiling.n * ceiling.k == 0) return nullptr;
  return std::make_unique<CublasProbe>(ceiling, Context::current());
}

}  // namespace zinc::bench
