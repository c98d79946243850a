#include "comm/agreement.h"

#include <vector>

#include "comm/gather_values.h"
#include "core/error.h"

namespace zinc::comm {

void require_agreement(World& world, std::span<const Fingerprint> fingerprints) {
  if (world.size() == 1 || world.context().device().meta) return;
  std::vector<double> halves;  // of hashes: 32 bits are exact in f64
  for (const Fingerprint& fingerprint : fingerprints) {
    halves.push_back(static_cast<double>(fingerprint.hash >> 32));
    halves.push_back(static_cast<double>(fingerprint.hash & 0xffffffffu));
  }
  const std::vector<double> all = gather_values(world, halves);
  std::string problems;
  for (size_t i = 0; i < fingerprints.size(); ++i) {
    std::string ranks;
    int count = 0;
    for (int rank = 1; rank < world.size(); ++rank) {
      const size_t at = static_cast<size_t>(rank) * halves.size() + 2 * i;
      if (all[at] == all[2 * i] && all[at + 1] == all[2 * i + 1]) continue;
      ranks += str(count == 0 ? "" : ", ", rank);
      ++count;
    }
    if (count == 0) continue;
    problems += str(problems.empty() ? "" : "; ", "the ", fingerprints[i].name, " of rank",
                    count == 1 ? " " : "s ", ranks, " differs from that of rank 0");
  }
  if (!problems.empty()) {
    throw ConfigError(problems + ". Start all ranks with the same model, data and configuration");
  }
}

}  // namespace zinc::comm
