// cuBLASLt behind the door of matrix products. Its matrices are column-major: a row-major C = A B
// is, read that way, C^T = B^T A^T, so that the library's first operand is b, its m is our n, and
// its bias, one number per row, is ours, one per column.
//
// An algorithm is the heuristic's first choice within kLibraryWorkspaceBytes, or another of its
// proposals by table (kernels/gemm_choice.h), asked once per kind of product and kept: the same in
// every run with this GPU and library. Split sums are allowed in f32 alone, so that a result is
// rounded once.
#include <cublasLt.h>

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "core/context.h"
#include "core/error.h"
#include "core/launch_times.h"
#include "kernels/cuda/capability.h"
#include "kernels/cuda/gemm.h"

namespace zinc::kernels::cuda {
namespace {

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw CudaError(str("cuBLASLt: ", what, ": ", cublasLtGetStatusString(status)));
}

template <class Handle, cublasStatus_t (*Destroy)(Handle)>
struct Destroyer {
  using pointer = Handle;
  void operator()(Handle handle) const { Destroy(handle); }
};
using Operation = std::unique_ptr<cublasLtMatmulDesc_t,
                                  Destroyer<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>>;
using Layout = std::unique_ptr<cublasLtMatrixLayout_t,
                               Destroyer<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>>;
using Preference =
    std::unique_ptr<cublasLtMatmulPreference_t,
                    Destroyer<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>>;
using Handle = std::unique_ptr<cublasLtHandle_t, Destroyer<cublasLtHandle_t, cublasLtDestroy>>;

// All that the choice of an algorithm may depend on.
using Key = std::tuple<int64_t, int64_t, int64_t, DType, DType, Fp8, Fp8, bool, bool,
                       std::array<int64_t, 8>, bool, bool, std::array<uint32_t, 4>, int>;

struct Choice {
  std::unique_ptr<cublasLtMatmulAlgo_t> algorithm;
  const char* why_not = nullptr;  // the reason where there is no algorithm
};

// The context's handle and choices.
struct Library {
  Handle handle;
  std::map<Key, Choice> chosen;

  Library() {
    cublasLtHandle_t made = nullptr;
    check(cublasLtCreate(&made), "cublasLtCreate");
    handle.reset(made);
  }
};

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::f16:
      return CUDA_R_16F;
    default:
      return CUDA_R_32F;
  }
}

cudaDataType_t type_of(DType dtype, Fp8 format) {
  switch (format) {
    case Fp8::e4m3:
      return CUDA_R_8F_E4M3;
    case Fp8::e5m2:
      return CUDA_R_8F_E5M2;
    case Fp8::none:
      break;
  }
  return type_of(dtype);
}

template <class Value>
void set(const Operation& operation, cublasLtMatmulDescAttributes_t attribute, Value value) {
  check(cublasLtMatmulDescSetAttribute(operation.get(), attribute, &value, sizeof(value)),
        "cublasLtMatmulDescSetAttribute");
}
template <class Value>
void set(const Layout& layout, cublasLtMatrixLayoutAttribute_t attribute, Value value) {
  check(cublasLtMatrixLayoutSetAttribute(layout.get(), attribute, &value, sizeof(value)),
        "cublasLtMatrixLayoutSetAttribute");
}
template <class Value>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute,
         Value value) {
  check(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value)),
        "cublasLtMatmulPreferenceSetAttribute");
}

// A stored row-major [rows, cols]: column-major [cols, rows].
Layout layout_of(cudaDataType_t type, int64_t rows, int64_t cols, int64_t stride, int64_t batch,
                 int64_t batch_stride) {
  cublasLtMatrixLayout_t made = nullptr;
  check(cublasLtMatrixLayoutCreate(&made, type, static_cast<uint64_t>(cols),
                                   static_cast<uint64_t>(rows), std::max(stride, cols)),
        "cublasLtMatrixLayoutCreate");
  Layout layout(made);
  if (batch > 1) {
    set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(batch));
    set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, batch_stride);
  }
  return layout;
}

// The batch as `outer` calls of `inner` products that lie a constant stride apart.
struct Batches {
  int64_t outer = 1, inner = 1;
  int64_t a_step = 0, b_step = 0, c_step = 0;  // steps of the inner dimension
};

Batches batches_of(const MatrixProduct& p) {
  Batches batches;
  int d = p.batch_rank - 1;
  for (; d >= 0; --d) {
    const auto at = static_cast<size_t>(d);
    const int64_t extent = p.batch_extent[at];
    if (extent == 1) continue;
    const bool first = batches.inner == 1;
    const auto joins = [&](int64_t step, int64_t inner_step) {
      return step == inner_step * batches.inner;
    };
    if (first) {
      batches.a_step = p.a_step[at];
      batches.b_step = p.b_step[at];
      batches.c_step = p.c_step[at];
    } else if (!joins(p.a_step[at], batches.a_step) || !joins(p.b_step[at], batches.b_step) ||
               !joins(p.c_step[at], batches.c_step)) {
      break;
    }
    batches.inner *= extent;
  }
  for (; d >= 0; --d) batches.outer *= p.batch_extent[static_cast<size_t>(d)];
  return batches;
}

// Bytes, at most 16, that the address is a multiple of. Blocks of the allocator are aligned to 256,
// so this follows from where a view begins in its block.
uint32_t alignment_of(const void* data) {
  uint32_t alignment = 16;
  while (reinterpret_cast<uintptr_t>(data) % alignment != 0) alignment /= 2;
  return alignment;
}

struct Call {
  Operation operation;
  Layout a, b, c, d;  // ours: the library's first operand is b
};

Call make_call(const LibraryProduct& product, const Batches& batches) {
  const MatrixProduct& p = product.p;
  Call call;
  cublasLtMatmulDesc_t made = nullptr;
  check(cublasLtMatmulDescCreate(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F),
        "cublasLtMatmulDescCreate");
  call.operation.reset(made);
  set(call.operation, CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(call.operation, CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (p.bias != nullptr) {
    set(call.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(call.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
    set(call.operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(p.bias_dtype));
  }
  if (p.a_fp8 != Fp8::none) {
    set(call.operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p.b_unscale);
    set(call.operation, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p.a_unscale);
  }
  const auto operand = [&](Fp8 format, bool transposed, int64_t rows, int64_t cols, int64_t stride,
                           int64_t step) {
    return layout_of(type_of(p.dtype, format), transposed ? cols : rows, transposed ? rows : cols,
                     stride, batches.inner, step);
  };
  call.a = operand(p.a_fp8, p.transpose_a, p.m, p.k, p.lda, batches.a_step);
  call.b = operand(p.b_fp8, p.transpose_b, p.k, p.n, p.ldb, batches.b_step);
  const cudaDataType_t type = type_of(p.c_dtype);
  call.c = layout_of(type, p.m, p.n, p.addend_stride, batches.inner, batches.c_step);
  call.d = layout_of(type, p.m, p.n, product.d_stride, batches.inner, batches.c_step);
  return call;
}

// The heuristic's last proposal, where it has fewer than `proposal` + 1.
Choice choose(const Library& library, const Call& call, const std::array<uint32_t, 4>& alignment,
              int proposal) {
  cublasLtMatmulPreference_t made = nullptr;
  check(cublasLtMatmulPreferenceCreate(&made), "cublasLtMatmulPreferenceCreate");
  const Preference preference(made);
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
      static_cast<uint64_t>(kLibraryWorkspaceBytes));
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment[1]);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment[0]);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment[2]);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment[3]);
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(proposal) + 1);
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      library.handle.get(), call.operation.get(), call.b.get(), call.a.get(), call.c.get(),
      call.d.get(), preference.get(), proposal + 1, results.data(), &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) {
    return {.algorithm = nullptr, .why_not = cublasLtGetStatusString(status)};
  }
  check(status, "cublasLtMatmulAlgoGetHeuristic");
  while (found > 0 && results[static_cast<size_t>(found) - 1].state != CUBLAS_STATUS_SUCCESS) {
    --found;
  }
  if (found == 0) {
    return {.algorithm = nullptr, .why_not = "cuBLASLt proposes no algorithm within 32 MiB"};
  }
  const cublasLtMatmulHeuristicResult_t& result = results[static_cast<size_t>(found) - 1];
  return {.algorithm = std::make_unique<cublasLtMatmulAlgo_t>(result.algo), .why_not = nullptr};
}

const void* moved(const void* from, int64_t elements, DType dtype) {
  return static_cast<const std::byte*>(from) + elements * size_of(dtype);
}

// The alignment that a, b, c and d have in every call: outer batches begin at other addresses than
// the first. The library has no such attribute for a bias, which it reads as it writes d.
using Alignment = std::array<uint32_t, 4>;
Alignment alignment_of_all(const LibraryProduct& product, const Batches& batches) {
  const MatrixProduct& p = product.p;
  Alignment least{16, 16, 16, 16};
  for (int64_t i = 0; i < batches.outer; ++i) {
    const int64_t index = i * batches.inner;
    const int64_t c_at = p.offset(index, p.c_step);
    const Alignment here{alignment_of(moved(p.a, p.offset(index, p.a_step), p.dtype)),
                         alignment_of(moved(p.b, p.offset(index, p.b_step), p.dtype)),
                         alignment_of(moved(p.addend, c_at, p.c_dtype)),
                         alignment_of(moved(product.d, c_at, p.c_dtype))};
    for (size_t k = 0; k < least.size(); ++k) least[k] = std::min(least[k], here[k]);
  }
  if (p.bias != nullptr) least[3] = std::min(least[3], alignment_of(p.bias));
  return least;
}

}  // namespace

LibraryAnswer run_library_product(const LibraryProduct& product, StreamRef stream) {
  const MatrixProduct& p = product.p;
  if (p.k == 0 || stream->kind() != StreamKind::cuda) return {};
  if (p.a_fp8 != Fp8::none && compute_capability() < 89) {
    return {.why_not = "tensor cores of 8 bits begin with compute capability 8.9"};
  }
  auto& library = Context::current().slot<Library>();
  const Batches batches = batches_of(p);
  const bool in_place = product.d == p.addend;
  const Alignment alignment = alignment_of_all(product, batches);
  const Key key{p.m,
                p.n,
                p.k,
                p.dtype,
                p.c_dtype,
                p.a_fp8,
                p.b_fp8,
                p.transpose_a,
                p.transpose_b,
                {p.lda, p.ldb, p.addend_stride, product.d_stride, batches.inner, batches.a_step,
                 batches.b_step, batches.c_step},
                p.bias != nullptr,
                in_place,
                alignment,
                product.proposal};
  const Call call = make_call(product, batches);
  auto found = library.chosen.find(key);
  if (found == library.chosen.end()) {
    found = library.chosen.emplace(key, choose(library, call, alignment, product.proposal)).first;
  }
  const Choice& choice = found->second;
  if (choice.algorithm == nullptr) return {.done = false, .why_not = choice.why_not};
  const auto alpha = static_cast<float>(p.alpha);
  const auto beta = static_cast<float>(p.beta);
  for (int64_t i = 0; i < batches.outer; ++i) {
    const int64_t index = i * batches.inner;
    auto* d = const_cast<void*>(moved(product.d, p.offset(index, p.c_step), p.c_dtype));
    const auto name = [&] { return str("cublasLtMatmul ", p.m, " x ", p.n, " x ", p.k); };
    timed_launch(stream, name, [&] {
      check(cublasLtMatmul(library.handle.get(), call.operation.get(), &alpha,
                           moved(p.b, p.offset(index, p.b_step), p.dtype), call.b.get(),
                           moved(p.a, p.offset(index, p.a_step), p.dtype), call.a.get(), &beta,
                           moved(p.addend, p.offset(index, p.c_step), p.c_dtype), call.c.get(), d,
                           call.d.get(), choice.algorithm.get(), product.workspace,
                           static_cast<size_t>(kLibraryWorkspaceBytes),
                           static_cast<cudaStream_t>(stream->native())),
            "cublasLtMatmul");
    });
  }
  return {.done = true};
}

}  // namespace zinc::kernels::cuda
