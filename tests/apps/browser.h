// tests/apps/browser.h: pages of the command in a real browser without a window: ./run soak.
#pragma once

#include <cstdint>
#include <string>

#include "tests/files/scratch_folder.h"

namespace zinc::apps {

// Chromium as Debian names it; empty: it is not installed.
std::string browser();

// The document of `page` after its scripts ran for `milliseconds`. `screenshot`: a file for the
// picture instead of the document.
std::string document_of(const files::ScratchFolder& folder, const std::string& page,
                        int milliseconds, const std::string& screenshot = {});

// How often `part` stands in `text`.
int64_t count(const std::string& text, const std::string& part);

}  // namespace zinc::apps
