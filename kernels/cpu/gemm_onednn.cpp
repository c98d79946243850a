// Block products by oneDNN's matmul.
//
// Note [One implementation per ISA]
// oneDNN offers several implementations of one matmul and takes the first that fits, where "fits"
// asks, among other things, whether the strides happen to be dense. kImplementations says which
// one zinc takes, by ISA and dtype, so that the choice hangs on neither strides nor a stopwatch.
//
// "gemm:jit" packs operands into buffers that it takes from malloc inside a call and gives back
// before it returns (below 2 MiB a thread); it has no scratchpad to be handed to it. It is the one
// workspace that zinc's allocator does not see.
#include <omp.h>

#include <array>
#include <cstring>
#include <dnnl.hpp>
#include <string_view>
#include <unordered_map>

#include "core/error.h"
#include "kernels/cpu/bf16_product.h"
#include "kernels/cpu/block_convert.h"
#include "kernels/cpu/block_product.h"

namespace zinc::kernels::cpu {
namespace {

using Isa = dnnl::cpu_isa;

// The first row that fits decides.
struct Implementation {
  Isa at_least;
  DType operands;         // dtype of the operands as stored
  DType computed_in;      // f32: blocks are widened first
  std::string_view name;  // prefix of the implementation's name; empty: oneDNN's choice
};

// Measured with oneDNN 2.6.3, one thread, blocks of 512 x 384 x 768 (zinc_bench_kernels --filter
// gemm). AVX-512 with BF16, Zen 4: gemm:jit 207 GFLOP/s in bf16 and 105 in f32, brg the same where
// it takes the strides at all. Without AVX512-BF16 oneDNN emulates bf16 at a quarter of the speed
// of f32. There is no f16 matmul before oneDNN 3.
constexpr std::array kImplementations{
    Implementation{Isa::avx512_core_bf16, DType::bf16, DType::bf16, "gemm"},
    Implementation{Isa::all, DType::bf16, DType::f32, "gemm"},
    Implementation{Isa::all, DType::f16, DType::f32, "gemm"},
    Implementation{Isa::all, DType::f32, DType::f32, "gemm"},
};

bool has(Isa effective, Isa needed) {
  return (static_cast<int>(effective) & static_cast<int>(needed)) == static_cast<int>(needed);
}

const Implementation& implementation_for(DType dtype) {
  const Isa effective = dnnl::get_effective_cpu_isa();
  for (const Implementation& row : kImplementations) {
    if (row.operands == dtype && has(effective, row.at_least)) return row;
  }
  bug_check(false, "block product of ", dtype);
  return kImplementations.back();
}

// oneDNN divides work among as many threads as OpenMP would give the caller, both when a primitive
// is made and when it runs, and the division decides the bits.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) {
    if (before_ != 1) omp_set_num_threads(1);
  }
  ~OneThread() {
    if (before_ != 1) omp_set_num_threads(before_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

dnnl::memory::data_type type_of(DType dtype) {
  return dtype == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

dnnl::memory::desc matrix(int64_t rows, int64_t cols, int64_t stride, bool transposed,
                          DType dtype) {
  const dnnl::memory::dims strides =
      transposed ? dnnl::memory::dims{1, stride} : dnnl::memory::dims{stride, 1};
  return dnnl::memory::desc({rows, cols}, type_of(dtype), strides);
}

// The first implementation of this matmul whose name begins with `name`; where there is none (the
// library has another set of names) the first of all.
dnnl::matmul::primitive_desc choose(const dnnl::engine& engine, const dnnl::memory::desc& a,
                                    const dnnl::memory::desc& b, const dnnl::memory::desc& c,
                                    const dnnl::primitive_attr& attributes, std::string_view name) {
#if DNNL_VERSION_MAJOR >= 3
  const auto first = [&] { return dnnl::matmul::primitive_desc(engine, a, b, c, attributes); };
#else
  // Walking on to the next implementation reads this description again: it has to outlive that.
  const dnnl::matmul::desc description(a, b, c);
  const auto first = [&] { return dnnl::matmul::primitive_desc(description, attributes, engine); };
#endif
  dnnl::matmul::primitive_desc chosen = first();
  while (std::string_view(chosen.impl_info_str()).substr(0, name.size()) != name) {
    if (!chosen.next_impl()) return first();
  }
  return chosen;
}

class OneDnnProduct final : public BlockProduct {
 public:
  OneDnnProduct(const dnnl::engine& engine, const BlockShape& shape)
      : engine_(engine), shape_(shape), row_(implementation_for(shape.dtype)) {
    // A widened block is dense, in the orientation in which it is stored.
    const int64_t lda = widens() ? a_cols() : shape.lda;
    const int64_t ldb = widens() ? b_cols() : shape.ldb;
    a_ = matrix(shape.m, shape.k, lda, shape.transpose_a, row_.computed_in);
    b_ = matrix(shape.k, shape.n, ldb, shape.transpose_b, row_.computed_in);
    c_ = matrix(shape.m, shape.n, shape.ldc, false, DType::f32);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (shape.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1.0f);
      attributes.set_post_ops(sum);
    }
    const OneThread one_thread;
    const dnnl::matmul::primitive_desc chosen = choose(engine, a_, b_, c_, attributes, row_.name);
    scratchpad_ = chosen.scratchpad_desc();
    primitive_ = dnnl::matmul(chosen);
  }

  int64_t scratch_bytes() const override {
    return round_up(static_cast<int64_t>(scratchpad_.get_size())) + widened_a_bytes() +
           widened_b_bytes();
  }

  void run(const void* a, const void* b, float* c, std::byte* scratch, bool) const override {
    if (widens()) {
      auto* wide_a = reinterpret_cast<float*>(scratch);
      auto* wide_b = reinterpret_cast<float*>(scratch + widened_a_bytes());
      widen_block(a, shape_.dtype, a_rows(), a_cols(), shape_.lda, wide_a, a_cols());
      widen_block(b, shape_.dtype, b_rows(), b_cols(), shape_.ldb, wide_b, b_cols());
      execute(wide_a, wide_b, c, scratch + widened_a_bytes() + widened_b_bytes());
    } else {
      execute(a, b, c, scratch);
    }
  }

 private:
  static int64_t round_up(int64_t bytes) { return (bytes + 63) / 64 * 64; }
  bool widens() const { return row_.computed_in != shape_.dtype; }
  int64_t a_rows() const { return shape_.transpose_a ? shape_.k : shape_.m; }
  int64_t a_cols() const { return shape_.transpose_a ? shape_.m : shape_.k; }
  int64_t b_rows() const { return shape_.transpose_b ? shape_.n : shape_.k; }
  int64_t b_cols() const { return shape_.transpose_b ? shape_.k : shape_.n; }
  int64_t widened_a_bytes() const { return widens() ? round_up(shape_.m * shape_.k * 4) : 0; }
  int64_t widened_b_bytes() const { return widens() ? round_up(shape_.k * shape_.n * 4) : 0; }

  void execute(const void* a, const void* b, float* c, std::byte* scratch) const {
    const OneThread one_thread;
    dnnl::stream stream(engine_);
    const auto bind = [&](const dnnl::memory::desc& desc, const void* data) {
      return dnnl::memory(desc, engine_, const_cast<void*>(data));
    };
    primitive_.execute(stream, {{DNNL_ARG_SRC, bind(a_, a)},
                                {DNNL_ARG_WEIGHTS, bind(b_, b)},
                                {DNNL_ARG_DST, bind(c_, c)},
                                {DNNL_ARG_SCRATCHPAD, bind(scratchpad_, scratch)}});
    stream.wait();
  }

  dnnl::engine engine_;
  BlockShape shape_;
  const Implementation& row_;
  dnnl::memory::desc a_, b_, c_, scratchpad_;
  dnnl::matmul primitive_;
};

struct ShapeHash {
  size_t operator()(const BlockShape& s) const {
    size_t hash = static_cast<size_t>(s.dtype) * 8 + static_cast<size_t>(s.transpose_a) * 4 +
                  static_cast<size_t>(s.transpose_b) * 2 + static_cast<size_t>(s.accumulate);
    for (const int64_t x : {s.m, s.n, s.k, s.lda, s.ldb, s.ldc}) {
      hash = hash * 0x9E3779B97F4A7C15u + static_cast<size_t>(x);
      hash ^= hash >> 29;
    }
    return hash;
  }
};

// The cache of a context. Products that are in use when the cache is emptied live on by their
// pointers.
struct OneDnnSlot {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  std::unordered_map<BlockShape, BlockProductPtr, ShapeHash> products;
};

constexpr size_t kMaxCachedProducts = 4096;

}  // namespace

bool bits_hang_on_k_alone(DType dtype) { return is_bf16_product(dtype); }

BlockProductPtr block_product(Context& context, const BlockShape& shape) {
  auto& slot = context.slot<OneDnnSlot>();
  const auto found = slot.products.find(shape);
  if (found != slot.products.end()) return found->second;
  if (slot.products.size() >= kMaxCachedProducts) slot.products.clear();
  // Our own against oneDNN, blocks of GPT-2 124M: with tiles 1.06 to 1.3 x; without, 1.02 to 1.08 x
  // on blocks of 512 x 384 and 1.7 x on those of attention.
  const bool is_own = bits_hang_on_k_alone(shape.dtype);
  BlockProductPtr made =
      is_own ? make_bf16_product(shape) : std::make_shared<const OneDnnProduct>(slot.engine, shape);
  slot.products.emplace(shape, made);
  return made;
}

std::string block_product_library() {
  const dnnl_version_t* version = dnnl_version();
  return str("oneDNN ", version->major, ".", version->minor, ".", version->patch,
             own_bf16_product());
}

}  // namespace zinc::kernels::cpu
