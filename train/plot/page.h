// train/plot/page.h: curves of runs as one page of HTML that needs nothing else: no server, no
// network, no other file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "train/plot/run_series.h"

namespace zinc::train {

struct PageOptions {
  // Seconds after which the page asks for new data, while the plot is written again and again; 0:
  // never.
  int reload_seconds = 0;
};

// Charts in SVG, drawn by the page's own script from data that stand in it as JSON. Contents of
// files (names, configurations, samples) are text and can be no markup or script.
//   address#x=tokens   on the axis: step (default), tokens, seconds
//   address#log=1      logarithmic values
std::string plot_page(const std::vector<const RunSeries*>& runs, const PageOptions& options = {});

// The data alone. No '<' and no '&' is in it.
std::string plot_data(const std::vector<const RunSeries*>& runs, const PageOptions& options = {});

std::string_view page_html();    // page.html, with the marks @style@, @data@ and @script@
std::string_view page_style();   // page.css
std::string_view page_script();  // page.js

}  // namespace zinc::train
