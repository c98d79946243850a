// bench/kernel_report.h: the results of a kernel bench, for people and for programs.
#pragma once

#include <string>

#include "bench/kernel_bench.h"

namespace zinc::bench {

std::string table_header();
std::string table_row(const KernelResult& result);

std::string json_of(const KernelReport& report);
std::string csv_of(const KernelReport& report);       // a heading, one line per result
std::string markdown_of(const KernelReport& report);  // the machine, then a table

// Reads the output of json_of(). Throws DataError with file, line and column.
KernelReport read_kernel_report(const std::string& path);

}  // namespace zinc::bench
