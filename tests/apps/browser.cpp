#include "tests/apps/browser.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/apps/command_process.h"

namespace zinc::apps {

std::string browser() {
  for (const char* path : {"/usr/bin/chromium", "/usr/bin/chromium-browser"}) {
    if (std::filesystem::exists(path)) return path;
  }
  return {};
}

std::string document_of(const files::ScratchFolder& folder, const std::string& page,
                        int milliseconds, const std::string& screenshot) {
  CommandProcess process = CommandProcess::of_program(
      {browser(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
       "--window-size=1400,900", "--user-data-dir=" + (folder / "browser"),
       "--virtual-time-budget=" + std::to_string(milliseconds),
       screenshot.empty() ? "--dump-dom" : "--screenshot=" + screenshot, page});
  const Ended ended = process.finish();
  EXPECT_EQ(ended.exit_code, 0) << to_string(ended);
  return ended.out;
}

int64_t count(const std::string& text, const std::string& part) {
  int64_t found = 0;
  for (size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++found;
  return found;
}

}  // namespace zinc::apps
