// bench/imported_results.h: figures of others for the kernel bench, read from a CSV file.
#pragma once

#include <map>
#include <string>

namespace zinc::bench {

// The time of another program's kernel for the same work.
struct Baseline {
  std::string name;  // "cuDNN", or the file's name
  double median_us = 0.0;
};

// By the name of a result: "op pass dtype shape".
using Baselines = std::map<std::string, Baseline>;

// A heading with at least op, pass, dtype, shape and median_us, in any order, then a line per
// figure; a column `name` names the kernel's owner, else the file's name does. Fields with commas
// are in double quotes, so the output of `zinc bench kernels --csv` can be read, too. The fastest
// of several lines for one kernel counts. Throws DataError with file and line.
Baselines read_baselines(const std::string& path);

}  // namespace zinc::bench
