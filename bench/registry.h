// bench/registry.h: the table of kernel benches.
//
// Each op has a file bench/kernels/<op>_bench.cpp with a function that adds its entries:
//   void add_layernorm_benches(Registry& registry);
// It is declared and called in bench/kernels/all.cpp (all.h). Nothing registers itself.
//
// An entry names a case (op, pass, dtype, shape), gives its cost and its ceiling, and makes
// instances: buffers with fixed contents and a closure that runs the op once on them. The harness
// makes several instances and goes round them, so that no run finds its data in a cache, and calls
// `verify` in the same process before it times anything.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/free_shape.h"
#include "core/context.h"
#include "core/dtype.h"
#include "kernels/cost.h"

namespace zinc::bench {

// How far a result is from that of the f64 path on the same (already rounded) inputs.
struct Deviation {
  double relative_l2 = 0.0;  // |got - expected| / |expected|, 2-norm over all outputs
  double tolerance = 0.0;    // derived by the entry: dtype epsilon x sqrt(reduction) x factor
  bool ok() const { return relative_l2 <= tolerance; }  // false for NaN
};

// One set of buffers, kept alive by the closures.
struct Instance {
  // Queues the op once on the context's compute stream.
  std::function<void()> run;
  // Called once, after one run is done: compares the outputs with the f64 path. The current context
  // is one of the CPU. Ops that update their inputs keep a copy of them in the closure.
  std::function<Deviation()> verify;
};

// The limit of the op at its best; the harness measures it in the same process.
struct Ceiling {
  enum class Kind : uint8_t {
    stream,  // a probe that moves the same number of arrays of the case's own total size
    gemm,    // a bare oneDNN call of this shape, under oneDNN's own threading
    none,
  };
  Kind kind = Kind::none;
  // stream: arrays only read, only written, and updated in place. Big ones only: a [cols] vector
  // of weights is none.
  int reads = 0;
  int writes = 0;
  int updates = 0;
  // gemm
  int64_t m = 0, n = 0, k = 0;
  DType dtype = DType::f32;
  bool transpose_a = false;
  bool transpose_b = false;

  static Ceiling stream(int reads, int writes, int updates = 0) {
    return {.kind = Kind::stream, .reads = reads, .writes = writes, .updates = updates};
  }
  static Ceiling gemm(int64_t m, int64_t n, int64_t k, DType dtype, bool transpose_a = false,
                      bool transpose_b = false) {
    return {.kind = Kind::gemm,
            .m = m,
            .n = n,
            .k = k,
            .dtype = dtype,
            .transpose_a = transpose_a,
            .transpose_b = transpose_b};
  }
};

struct Entry {
  std::string op;    // "layernorm"
  std::string pass;  // "forward", "backward", "forward+backward"
  DType dtype = DType::f32;
  std::string shape;  // "rows=8192,cols=768"; of a shape that training meets
  kernels::Cost cost;
  Ceiling ceiling;
  std::function<Instance(Context&)> make;
  double scratch_bytes = 0.0;  // beside cost.bytes(), for choosing the number of instances
  // Another program's kernel on the same arrays; absent if there is none. Throws CudaError if this
  // machine lacks it.
  std::string baseline;  // its name, as in "cuDNN"
  std::function<Instance(Context&)> make_baseline;
};

// How large the arrays of memory-bound cases are.
enum class Extent : uint8_t {
  memory,  // an array of a case (48 MiB in bf16) is larger than the caches
  cache,   // all arrays of a case together fit into the second-level cache of one core
  gpu,     // an array of a case (96 MiB in bf16) is larger than a GPU's second-level cache
};

// The sizes of a model that shapes are made of.
struct ModelShape {
  std::string name = "gpt2-124m";
  int64_t hidden = 768, intermediate = 3072;
  int64_t heads = 12, kv_heads = 12, head_dim = 64;
  int64_t vocabulary = 50257;
  int64_t seq = 1024;
  bool gated = false;  // SwiGLU and RMSNorm
};
// The shape of a preset of `zinc train --model`; throws ConfigError for another name.
ModelShape shape_of_preset(std::string_view preset);

class Registry {
 public:
  explicit Registry(Extent extent = Extent::memory, ModelShape model = {}, FreeShape given = {})
      : extent_(extent), model_(std::move(model)), given_(std::move(given)) {}
  // The extent that the user gave, or `otherwise`. An entry's shape names every extent that it
  // takes from here, as in "rows=64", so that entries can be found by their extents.
  int64_t given(const std::string& name, int64_t otherwise) const {
    const auto found = given_.find(name);
    return found == given_.end() ? otherwise : found->second;
  }
  bool is_given(const std::string& name) const { return given_.contains(name); }
  Extent extent() const { return extent_; }
  const ModelShape& model() const { return model_; }
  // Columns of an activation.
  int64_t cols() const { return given("cols", model_.hidden); }
  // Tokens: a multiple of 64 for which an activation has about the bytes of gpt2-124m's.
  int64_t rows() const {
    const int64_t rows = extent_ == Extent::cache ? 64 : extent_ == Extent::gpu ? 65536 : 32768;
    return given("rows", std::max<int64_t>(rows * 768 / cols() / 64 * 64, 64));
  }
  // Elements of a flat range of weights or gradients.
  int64_t flat() const {
    return given("n", int64_t{1} << (extent_ == Extent::cache ? 15
                                     : extent_ == Extent::gpu ? 26
                                                              : 25));
  }

  void add(Entry entry) { entries_.push_back(std::move(entry)); }
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  Extent extent_;
  ModelShape model_;
  FreeShape given_;
  std::vector<Entry> entries_;
};

}  // namespace zinc::bench
