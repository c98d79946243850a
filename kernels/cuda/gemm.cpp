#include "kernels/cuda/gemm.h"

namespace zinc::kernels::cuda {

void run_product(const MatrixProduct& p, std::byte* workspace, StreamRef stream) {
  LibraryProduct product{.p = p, .workspace = workspace};
  product.p.activation = Activation::none;
  product.p.x = nullptr;
  product.p.pre = nullptr;
  if (needs_f32_product(p)) {
    auto* sum = reinterpret_cast<float*>(workspace + kLibraryWorkspaceBytes);
    product.p.c = product.d = sum;
    product.p.ldc = product.d_stride = p.n;
    product.p.c_dtype = DType::f32;
    product.p.beta = 0.0;
    product.p.bias = nullptr;
    if (run_library_product(product, stream)) return run_epilogue(p, sum, stream);
  } else {
    product.d = p.pre != nullptr ? p.pre : p.c;
    product.d_stride = p.pre != nullptr ? p.pre_stride : p.ldc;
    if (run_library_product(product, stream)) {
      if (p.activation != Activation::none) run_epilogue(p, nullptr, stream);
      return;
    }
  }
  run_own_product(p, stream);
}

}  // namespace zinc::kernels::cuda
