// files/other_content.h: what a file holds in place of what was meant to be downloaded.
#pragma once

#include <string>
#include <string_view>

#include "files/input_file.h"

namespace zinc::files {

// What the first bytes say the content is, and the cure: a pointer of Git LFS, an HTML page. Empty
// for anything else.
std::string_view other_content(std::string_view first_bytes);
// DataError where a file of weights is such a one.
void require_downloaded(const InputFile& file);

}  // namespace zinc::files
