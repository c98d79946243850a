// bench/comm/comm_bench.h: how fast the collectives of a world are.
//
// Figures as nccl-tests has them: algorithm bandwidth is the bytes of the larger buffer over the
// time; bus bandwidth is that times the part of the bytes that has to cross between ranks, so it
// compares with the speed of the links, whatever the collective and the world.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/world.h"
#include "core/dtype.h"

namespace zinc::bench {

struct CommBenchOptions {
  int64_t min_bytes = int64_t{1} << 10;  // of the larger buffer; sizes grow by 4
  int64_t max_bytes = int64_t{64} << 20;
  double seconds = 0.3;  // of measuring, for each collective and size
  DType dtype = DType::f32;
};

struct CommBenchRow {
  std::string collective;
  int64_t bytes = 0;
  int64_t runs = 0;
  double median_seconds = 0;
  double algorithm_bandwidth = 0;  // bytes per second
  double bus_bandwidth = 0;
  // Bus bandwidth over that of a memcpy of as many bytes, by all ranks at once in the same process.
  double of_memcpy = 0;
};

// Called by every rank of the world. Checks each collective's result before it times it (throws
// InternalError). Times are from rank 0's clock, between barriers; memory is touched before.
std::vector<CommBenchRow> run_comm_bench(comm::World& world, const CommBenchOptions& options);

// A table for people: a heading and a line per row.
std::string to_table(const std::vector<CommBenchRow>& rows);
// A JSON array of objects with the fields' names.
std::string to_json(const std::vector<CommBenchRow>& rows);

}  // namespace zinc::bench
