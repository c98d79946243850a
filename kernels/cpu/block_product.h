// kernels/cpu/block_product.h: the GEMM door: one block of a matrix product on the calling thread.
//
// Everything on the CPU that multiplies matrices of f32, bf16 or f16 (gemm, attention, the head) is
// cut into blocks by the shape (where bits_hang_on_k_alone() by the threads too) and computes each
// block by a BlockProduct. A product is made by the issuing thread and may then run on any number
// of threads at once. It never spawns threads, so a block's bits depend on its shape, strides,
// dtype, the ISA and the library version alone. Implementations: of gemm with a few rows
// narrow_product.cpp; else for bf16, where the CPU has them, tiles of AMX (bf16_tiles.cpp) or dot
// products of AVX512-BF16 (bf16_product.cpp); else oneDNN (gemm_onednn.cpp) or, in a build without
// it, Highway loops (gemm_no_onednn.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/context.h"
#include "core/dtype.h"
#include "core/error.h"

namespace zinc::kernels::cpu {

// c[m, n] = op(a) op(b), or c += op(a) op(b). All extents > 0.
struct BlockShape {
  int64_t m = 0, n = 0, k = 0;
  int64_t lda = 0;  // elements from one stored row of a ([m, k], or [k, m] transposed) to the next
  int64_t ldb = 0;  // the same of b ([k, n], or [n, k] transposed)
  int64_t ldc = 0;
  DType dtype = DType::f32;  // of a and b: f32, bf16 or f16; c is f32
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;

  friend bool operator==(const BlockShape&, const BlockShape&) = default;
};

// The output of a product that leaves its sums as bf16: c[i, j] = round(sum + bias[j]).
struct RoundedOutput {
  void* c = nullptr;
  int64_t ldc = 0;
  const void* bias = nullptr;  // [n] of bias_dtype: f32 or bf16; null: none
  DType bias_dtype = DType::f32;
};

// A plane of the product, queries by keys, of which query r sees the keys up to r + diagonal (which
// may be negative). Products with unseen keys are left out where that saves time; the values are
// the same as long as b is finite. Unseen elements of c hold whatever was there before; unseen
// elements of a are zeros.
struct CausalCut {
  enum class Plane : uint8_t {
    none,
    c,  // [m queries, n keys]
    a,  // [m queries, k keys]; transposed, [k queries, m keys] as stored
  } plane = Plane::none;
  int64_t diagonal = 0;
};

class BlockProduct {
 public:
  virtual ~BlockProduct() = default;
  // Bytes of scratch that one running call needs, aligned to 64.
  virtual int64_t scratch_bytes() const = 0;
  // Thread-safe. `same_b`: the last product that ran on this scratch had the same b, n and k, and
  // differed from this one in a and m at most; the copy of b there may be used again.
  virtual void run(const void* a, const void* b, float* c, std::byte* scratch,
                   bool same_b) const = 0;
  void run(const void* a, const void* b, float* c, std::byte* scratch) const {
    run(a, b, c, scratch, false);
  }
  virtual void run_causal(const void* a, const void* b, float* c, std::byte* scratch,
                          const CausalCut& /*cut*/) const {
    run(a, b, c, scratch);
  }
  // As run(), not accumulating, with the output rounded from registers. `sums`, with stride ldc, is
  // scratch. Only where rounds_its_output().
  virtual void run_rounded(const void* /*a*/, const void* /*b*/, float* /*sums*/,
                           std::byte* /*scratch*/, bool /*same_b*/,
                           const RoundedOutput& /*to*/) const {
    bug_check(false, "block product: this kind does not round its output");
  }
};

using BlockProductPtr = std::shared_ptr<const BlockProduct>;

// The product from the context's cache (a Context slot), or made now. Call it on the issuing
// thread.
BlockProductPtr block_product(Context& context, const BlockShape& shape);

// Whether products of this dtype are those of bf16_product.h: the bits of an element depend on its
// slice of k alone, not on the extents of its block.
bool bits_hang_on_k_alone(DType dtype);
inline bool rounds_its_output(DType dtype) { return bits_hang_on_k_alone(dtype); }

// The libraries that multiply, as in "oneDNN 2.6.3, bf16: own AMX" or "Highway".
std::string block_product_library();

}  // namespace zinc::kernels::cpu
