#include "kernels/cuda/gemm.h"

#include "core/error.h"
#include "kernels/device_notes.h"
#include "kernels/gemm_choice.h"

namespace zinc::kernels::cuda {
namespace {

// Our own kernel is 30 to 100 times slower than the library on large products.
void note_own_product(const MatrixProduct& p, const char* why) {
  note_of_device(str("the product ", p.m, " x ", p.k, " by ", p.k, " x ", p.n, " of ",
                     p.a_fp8 == Fp8::none ? name_of(p.dtype) : "8 bits",
                     p.c_dtype == p.dtype ? "" : str(" to ", p.c_dtype),
                     p.transpose_a ? ", the first transposed" : "",
                     p.transpose_b ? ", the second transposed" : "",
                     " runs on zinc's own kernel, which is far slower: ", why));
}

// The product, and what follows it.
LibraryAnswer run_by_library(const MatrixProduct& p, int proposal, std::byte* workspace,
                             StreamRef stream) {
  LibraryProduct product{.p = p, .workspace = workspace, .proposal = proposal};
  product.p.activation = Activation::none;
  product.p.x = nullptr;
  product.p.pre = nullptr;
  LibraryAnswer answer;
  if (needs_f32_product(p)) {
    auto* sum = reinterpret_cast<float*>(workspace + kLibraryWorkspaceBytes);
    product.p.addend = product.d = sum;
    product.p.addend_stride = product.d_stride = p.n;
    product.p.c_dtype = DType::f32;
    product.p.beta = 0.0;
    product.p.bias = nullptr;
    answer = run_library_product(product, stream);
    if (answer.done) run_epilogue(p, sum, 1, stream);
    return answer;
  }
  MatrixProduct follows = p;  // the problem of the epilogue
  if (needs_own_place(p)) {
    follows.pre = workspace + kLibraryWorkspaceBytes;
    follows.pre_stride = p.n;
  }
  product.d = follows.pre != nullptr ? follows.pre : p.c;
  product.d_stride = follows.pre != nullptr ? follows.pre_stride : p.ldc;
  answer = run_library_product(product, stream);
  if (answer.done && p.activation != Activation::none) run_epilogue(follows, nullptr, 1, stream);
  return answer;
}

}  // namespace

bool run_product(const MatrixProduct& p, std::byte* workspace, StreamRef stream) {
  const ChosenGemm chosen = choose_gemm(p);
  if (chosen.wgmma && run_wgmma_product(p, workspace, stream)) return true;
  const LibraryAnswer answer = run_by_library(p, chosen.proposal, workspace, stream);
  if (answer.done) return false;
  if (answer.why_not != nullptr) note_own_product(p, answer.why_not);
  run_own_product(p, stream);
  return false;
}

}  // namespace zinc::kernels::cuda
