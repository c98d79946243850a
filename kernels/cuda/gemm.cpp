#include "kernels/cuda/gemm.h"

#include "core/error.h"
#include "kernels/device_notes.h"

namespace zinc::kernels::cuda {
namespace {

// Our own kernel is 30 to 100 times slower than the library on large products.
void note_own_product(const MatrixProduct& p, const char* why) {
  note_of_device(str("the product ", p.m, " x ", p.k, " by ", p.k, " x ", p.n, " of ", p.dtype,
                     p.c_dtype == p.dtype ? "" : str(" to ", p.c_dtype),
                     p.transpose_a ? ", the first transposed" : "",
                     p.transpose_b ? ", the second transposed" : "",
                     " runs on zinc's own kernel, which is far slower: ", why));
}

}  // namespace

void run_product(const MatrixProduct& p, std::byte* workspace, StreamRef stream) {
  LibraryProduct product{.p = p, .workspace = workspace};
  product.p.activation = Activation::none;
  product.p.x = nullptr;
  product.p.pre = nullptr;
  LibraryAnswer answer;
  if (needs_f32_product(p)) {
    auto* sum = reinterpret_cast<float*>(workspace + kLibraryWorkspaceBytes);
    product.p.c = product.d = sum;
    product.p.ldc = product.d_stride = p.n;
    product.p.c_dtype = DType::f32;
    product.p.beta = 0.0;
    product.p.bias = nullptr;
    answer = run_library_product(product, stream);
    if (answer.done) return run_epilogue(p, sum, stream);
  } else {
    product.d = p.pre != nullptr ? p.pre : p.c;
    product.d_stride = p.pre != nullptr ? p.pre_stride : p.ldc;
    answer = run_library_product(product, stream);
    if (answer.done) {
      if (p.activation != Activation::none) run_epilogue(p, nullptr, stream);
      return;
    }
  }
  if (answer.why_not != nullptr) note_own_product(p, answer.why_not);
  run_own_product(p, stream);
}

}  // namespace zinc::kernels::cuda
