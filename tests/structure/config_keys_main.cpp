// zinc_config_keys [rules]: the table of configuration keys as `zinc config keys` prints it, or the
// table of keys that exclude each other, without the rest of the command: .ci/quick compares both
// with docs/config.md.
#include <cstdio>
#include <string_view>

#include "train/config/key.h"
#include "train/config/key_rules.h"

int main(int count, char** words) {
  const bool rules = count > 1 && std::string_view(words[1]) == "rules";
  const std::string table =
      rules ? zinc::train::config_rules_markdown() : zinc::train::config_keys_markdown();
  return std::fwrite(table.data(), 1, table.size(), stdout) == table.size() ? 0 : 1;
}
