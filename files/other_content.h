// files/other_content.h: recognises a file that is not the one that was meant to be downloaded.
#pragma once

#include <string>
#include <string_view>

#include "files/input_file.h"

namespace zinc::files {

// The kind of content that the first bytes show, and the cure: a pointer of Git LFS, an HTML page.
// Empty for anything else.
std::string_view other_content(std::string_view first_bytes);
// A pointer of Git LFS among such contents. An HTML page may be a text that was meant.
std::string_view lfs_pointer(std::string_view first_bytes);
// DataError where a file of weights has such content.
void require_downloaded(const InputFile& file);

}  // namespace zinc::files
