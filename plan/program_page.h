// plan/program_page.h: the page of a step program without its data (planned_program.h, html_of).
//
// The data are JSON, {"programs": [{"name", "program"}, ...]}: one or two programs as json_of()
// writes them. The address of the page chooses the view:
//
//   address#axis=time       time down the page; `order` (default): events
//   address#tier=host       whose memory; default `device`
//   address#rewrite=prefetch   marks what this rewrite changed
//   address#from=100&to=130 events, or seconds
#pragma once

#include <string_view>

namespace zinc::plan {

std::string_view program_page_html();    // program_page.html, with the marks @data@ and @script@
std::string_view program_page_script();  // program_page.js

}  // namespace zinc::plan
