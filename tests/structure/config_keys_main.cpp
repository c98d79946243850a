// zinc_config_keys: the table of configuration keys as `zinc config keys` prints it, without the
// rest of the command: .ci/quick compares it with docs/config.md.
#include <cstdio>

#include "train/config/key.h"

int main() {
  const std::string table = zinc::train::config_keys_markdown();
  return std::fwrite(table.data(), 1, table.size(), stdout) == table.size() ? 0 : 1;
}
