// kernels/cuda/gemm.h: matrix products on a GPU, once checked: by the kernel that
// kernels/gemm_choice.h names, or by our own where the library does not take the product.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/stream.h"
#include "kernels/matrix_product.h"

namespace zinc::kernels::cuda {

// Cap of the library's workspace: an algorithm that needs more is not chosen. Every product takes
// it, the emulator's and a meta device's too, so that a plan does not depend on the build.
inline constexpr int64_t kLibraryWorkspaceBytes = int64_t{32} << 20;

// Whether the product is summed in f32 ahead of the epilogue: the library adds only a bias of the
// dtype of c.
inline bool needs_f32_product(const MatrixProduct& p) {
  return p.bias != nullptr && p.bias_dtype != p.c_dtype;
}
// Whether the library writes z beside c, because the epilogue reads x there.
inline bool needs_own_place(const MatrixProduct& p) { return p.x != nullptr && p.x == p.c; }
inline int64_t workspace_bytes(const MatrixProduct& p) {
  const DType place = needs_f32_product(p) ? DType::f32 : p.c_dtype;
  return kLibraryWorkspaceBytes +
         (needs_f32_product(p) || needs_own_place(p) ? p.m * p.n * size_of(place) : int64_t{0});
}

// All extents > 0 but k; f32, bf16 and f16, or codes. `workspace` holds workspace_bytes(p), aligned
// to 256. Queues the work. A product that the library does not take becomes one of the context's
// DeviceNotes. Returns whether the sums over k were made, too.
bool run_product(const MatrixProduct& p, std::byte* workspace, StreamRef stream);

// gemm_kernel.cu: every product, one pass over c. Sums in the order of k.
void run_own_product(const MatrixProduct& p, StreamRef stream);
// The epilogue of `product` ([parts, M, N] f32, whose sum is alpha op(A) op(B)), or, where that is
// null, the activation of what c or pre_activation holds.
void run_epilogue(const MatrixProduct& p, const float* product, int parts, StreamRef stream);
// gemm_wgmma.cu: products that choose_gemm() gives to wgmma. False: the GPU is not of compute
// capability 9.0, and nothing was done. Otherwise as run_product().
bool run_wgmma_product(const MatrixProduct& p, std::byte* workspace, StreamRef stream);

// The library's part of a product.
struct LibraryProduct {
  MatrixProduct p;    // no activation and no x; a bias has the dtype of c, which is not used
  void* d = nullptr;  // receives z
  int64_t d_stride = 0;
  std::byte* workspace = nullptr;  // kLibraryWorkspaceBytes
  int proposal = 0;                // index into the heuristic's proposals, the best first
};
struct LibraryAnswer {
  bool done = false;              // the work is queued; else nothing was done
  const char* why_not = nullptr;  // null: the product is none that the library would be asked for
};
// gemm_cublaslt.cpp; gemm_no_cublaslt.cpp says that this build cannot.
LibraryAnswer run_library_product(const LibraryProduct& product, StreamRef stream);

}  // namespace zinc::kernels::cuda
