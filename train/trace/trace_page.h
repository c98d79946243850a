// train/trace/trace_page.h: a trace as one page of HTML that needs nothing else: no server, no
// network, no other file.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "train/trace/trace_file.h"

namespace zinc::train {

struct TracePageOptions {
  // The steps that are drawn, of those that the trace has.
  int64_t first_step = 0;
  int64_t last_step = std::numeric_limits<int64_t>::max();
  // Of these the last whole ones that have so few slices, but one at least: a browser draws no more
  // without a wait.
  int64_t most_slices = 200'000;
};

struct TracePage {
  std::string html;
  int64_t slices = 0;
  int64_t first_step = 0, last_step = 0;  // drawn
  int64_t steps_left_out = 0;             // for most_slices
};

// Throws DataError if the trace has none of the steps. Names of a trace are text on the page.
//   address#from=..&to=..   microseconds behind the first slice
//   address#find=..         slices with that in their name stand out, and are counted
TracePage trace_page(const TraceFile& trace, const std::string& name,
                     const TracePageOptions& options = {});

std::string_view trace_page_html();    // trace_page.html, with the marks @data@ and @script@
std::string_view trace_page_script();  // trace_page.js

}  // namespace zinc::train
