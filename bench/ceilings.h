// bench/ceilings.h: what this machine can do at best, measured by probes in the same process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/registry.h"

namespace zinc::bench {

// Something that can be run again and again beside a kernel.
class Probe {
 public:
  virtual ~Probe() = default;
  // Once: on the CPU with the calling thread's num_parallel_threads(), on a GPU queued on the
  // compute stream of the context in which the probe was made.
  virtual void run() = 0;
  virtual double work_per_run() const = 0;  // bytes (stream) or flops (gemm)
};

// Reads, writes and updates the given numbers of f32 arrays in one pass, `bytes` in all (an updated
// array counts twice); arrays are rotated so that none is in a cache. Stores bypass the cache where
// that is faster, which is tried once when the probe is made.
std::unique_ptr<Probe> make_stream_probe(int reads, int writes, int updates, int64_t bytes);

// The vendor library called directly with this shape, contiguous operands and its own threading, in
// `dtype` or, where that is faster (tried once), in f32. Null for f64 and where the library is not
// built in.
std::unique_ptr<Probe> make_gemm_probe(const Ceiling& ceiling);

// The same on the current context's GPU. The product is a bare cuBLASLt call by the fastest of the
// algorithms that the library names (tried once).
std::unique_ptr<Probe> make_cuda_stream_probe(int reads, int writes, int updates, int64_t bytes);
std::unique_ptr<Probe> make_cuda_gemm_probe(const Ceiling& ceiling);

// The probe of an entry's ceiling on the current context's device; null for Kind::none.
std::unique_ptr<Probe> make_probe(const Entry& entry);

// Figures of the machine for `zinc bench ceilings`.
struct CeilingFigure {
  std::string name;  // "stream 1 read 1 write", "gemm bf16 M=2048 N=2304 K=768 NT"
  std::string unit;  // "GB/s" or "GFLOP/s"
  double median = 0.0;
  double best = 0.0;
};
// Measures stream patterns and the GEMM shapes of a gpt2-124m training step, on the context's
// device. Takes about `seconds`.
std::vector<CeilingFigure> measure_ceilings(Context& context, double seconds = 5.0);
std::string table_of(const std::vector<CeilingFigure>& figures);

// Bytes of the largest cache that a core reaches; 64 MiB where the system does not tell.
int64_t last_level_cache_bytes();
// Bytes of the GPU's second-level cache.
int64_t last_level_cache_bytes(const Device& device);

}  // namespace zinc::bench
