#include "core/edit_distance.h"

#include <algorithm>
#include <vector>

namespace zinc {

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> before(b.size() + 1);
  std::vector<int> previous(b.size() + 1);
  std::vector<int> current(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) previous[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    current[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replaced = previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      current[j] = std::min({replaced, previous[j] + 1, current[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        current[j] = std::min(current[j], before[j - 2] + 1);
      }
    }
    std::swap(before, previous);
    std::swap(previous, current);
  }
  return previous[b.size()];
}

std::string nearest_name(std::string_view name, std::span<const std::string> candidates) {
  const std::string* nearest = nullptr;
  int smallest = 0;
  for (const std::string& candidate : candidates) {
    const int distance = edit_distance(name, candidate);
    const auto longer = static_cast<int>(std::max(name.size(), candidate.size()));
    if (distance > std::max(1, longer / 3)) continue;
    if (nearest == nullptr || distance < smallest) {
      nearest = &candidate;
      smallest = distance;
    }
  }
  return nearest == nullptr ? std::string() : *nearest;
}

}  // namespace zinc
