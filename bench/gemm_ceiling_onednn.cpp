#include <algorithm>
#include <chrono>
#include <dnnl.hpp>

#include "bench/arrays.h"
#include "bench/ceilings.h"

namespace zinc::bench {
namespace {

dnnl::memory::desc matrix(int64_t rows, int64_t cols, bool transposed, DType dtype) {
  const auto type =
      dtype == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
  const dnnl::memory::dims strides =
      transposed ? dnnl::memory::dims{1, rows} : dnnl::memory::dims{cols, 1};
  return dnnl::memory::desc({rows, cols}, type, strides);
}

// One matmul primitive as the library makes it for the threads it has. Operands are rotated.
class GemmProbe final : public Probe {
 public:
  GemmProbe(const Ceiling& c, DType dtype) : flops_(2.0 * double(c.m) * double(c.n) * double(c.k)) {
    const auto a = matrix(c.m, c.k, c.transpose_a, dtype);
    const auto b = matrix(c.k, c.n, c.transpose_b, dtype);
    const auto to = matrix(c.m, c.n, false, dtype);
#if DNNL_VERSION_MAJOR >= 3
    primitive_ = dnnl::matmul({engine_, a, b, to});
#else
    primitive_ = dnnl::matmul(dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, to), engine_));
#endif
    const int64_t bytes = (c.m * c.k + c.k * c.n + c.m * c.n) * size_of(dtype);
    const int64_t sets = std::clamp<int64_t>(2 * last_level_cache_bytes() / bytes + 1, 1, 8);
    for (int64_t s = 0; s < sets; ++s) {
      if (s == 0) {
        arrays_.push_back(Array::uniform({c.m, c.k}, dtype, -1, 1, 1));
        arrays_.push_back(Array::uniform({c.k, c.n}, dtype, -1, 1, 2));
      } else {
        arrays_.push_back(Array::copy_of(arrays_[0]));
        arrays_.push_back(Array::copy_of(arrays_[1]));
      }
      arrays_.push_back(Array({c.m, c.n}, dtype));
      const auto bind = [&](const dnnl::memory::desc& desc, const Array& array) {
        return dnnl::memory(desc, engine_, array.view().data());
      };
      const size_t at = arrays_.size() - 3;
      arguments_.push_back({{DNNL_ARG_SRC, bind(a, arrays_[at])},
                            {DNNL_ARG_WEIGHTS, bind(b, arrays_[at + 1])},
                            {DNNL_ARG_DST, bind(to, arrays_[at + 2])}});
    }
  }
  void run() override {
    primitive_.execute(stream_, arguments_[next_++ % arguments_.size()]);
    stream_.wait();
  }
  double work_per_run() const override { return flops_; }

 private:
  double flops_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  dnnl::matmul primitive_;
  std::vector<Array> arrays_;
  std::vector<std::unordered_map<int, dnnl::memory>> arguments_;
  size_t next_ = 0;
};

double best_seconds(Probe& probe) {
  double best = 1e30;
  for (int i = 0; i < 4; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    probe.run();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    best = std::min(best, took.count());
  }
  return best;
}

}  // namespace

std::unique_ptr<Probe> make_gemm_probe(const Ceiling& ceiling) {
  if (ceiling.dtype == DType::f64 || ceiling.m * ceiling.n * ceiling.k == 0) return nullptr;
  auto wide = std::make_unique<GemmProbe>(ceiling, DType::f32);
  if (ceiling.dtype != DType::bf16) return wide;
  std::unique_ptr<GemmProbe> narrow;
  try {
    narrow = std::make_unique<GemmProbe>(ceiling, DType::bf16);
  } catch (const dnnl::error& error) {
    if (error.status != dnnl_unimplemented) throw;
    return wide;  // a processor without products in bf16
  }
  return best_seconds(*narrow) <= best_seconds(*wide) ? std::move(narrow) : std::move(wide);
}

}  // namespace zinc::bench
