// bench/imported_results.h: figures of others for the kernel bench, read from a CSV file.
#pragma once

#include <map>
#include <string>

namespace zinc::bench {

// What somebody else's kernel takes for the same work.
struct Baseline {
  std::string name;  // as in "cuDNN" or the file's own name
  double median_us = 0.0;
};

// By the name of a result: "op pass dtype shape".
using Baselines = std::map<std::string, Baseline>;

// A heading with at least op, pass, dtype, shape and median_us, in any order, then a line per
// figure; a column `name` says whose it is, else the file's name does. Fields with commas in double
// quotes: what `zinc bench kernels --csv` writes is read too. Of several lines for one kernel the
// fastest counts. Throws DataError with file and line.
Baselines read_baselines(const std::string& path);

}  // namespace zinc::bench
