#include "bench/free_shape.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/error.h"

namespace zinc::bench {
namespace {

constexpr size_t kMaxShapes = 256;
constexpr int64_t kMaxExtent = int64_t{1} << 40;

std::vector<std::string_view> parts_of(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// 0 where it is no number from 1 on.
int64_t number_of(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && value > 0 && value <= kMaxExtent ? value : 0;
}

void add(FreeShape& shape, std::string_view name, int64_t value) {
  if (!shape.emplace(name, value).second) {
    throw ConfigError(str("bench: \"", name, "\" is given twice"));
  }
}

struct Sweep {
  std::string name;
  std::vector<int64_t> values;
};

Sweep sweep_of(std::string_view text) {
  const auto wrong = [&] {
    return ConfigError(
        str("--sweep takes NAME=FIRST:LAST:xFACTOR or NAME=FIRST:LAST:+STEP, as in "
            "cols=1024:16384:x2, not \"",
            text, "\""));
  };
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0) throw wrong();
  const auto range = parts_of(text.substr(equals + 1), ':');
  if (range.size() != 3 || range[2].size() < 2) throw wrong();
  const int64_t first = number_of(range[0]), last = number_of(range[1]);
  const int64_t by = number_of(range[2].substr(1));
  const bool grows = range[2][0] == 'x' ? by > 1 : range[2][0] == '+' && by > 0;
  if (first == 0 || last < first || !grows) throw wrong();
  Sweep sweep{.name = std::string(text.substr(0, equals)), .values = {}};
  for (int64_t value = first; value <= last; value = range[2][0] == 'x' ? value * by : value + by) {
    sweep.values.push_back(value);
    if (range[2][0] == 'x' && value > last / by) break;
    if (sweep.values.size() > kMaxShapes) {
      throw ConfigError(str("bench: the sweep \"", text, "\" has more than 256 shapes"));
    }
  }
  return sweep;
}

}  // namespace

std::vector<FreeShape> free_shapes(std::string_view shape, const std::vector<std::string>& sweeps) {
  FreeShape fixed;
  for (const std::string_view part : parts_of(shape, ',')) {
    if (part.empty() && shape.empty()) continue;
    const size_t equals = part.find('=');
    const int64_t value =
        equals == std::string_view::npos || equals == 0 ? 0 : number_of(part.substr(equals + 1));
    if (value == 0) {
      throw ConfigError(
          str("--shape takes NAME=EXTENT,..., as in rows=8192,cols=4096, not \"", part, "\""));
    }
    add(fixed, part.substr(0, equals), value);
  }
  std::vector<FreeShape> shapes{std::move(fixed)};
  for (const std::string& text : sweeps) {
    const Sweep sweep = sweep_of(text);
    std::vector<FreeShape> more;
    for (const FreeShape& one : shapes) {
      for (const int64_t value : sweep.values) {
        more.push_back(one);
        add(more.back(), sweep.name, value);
      }
    }
    shapes = std::move(more);
    if (shapes.size() > kMaxShapes) {
      throw ConfigError("bench: the sweeps have more than 256 shapes together");
    }
  }
  return shapes;
}

bool has_extents(std::string_view text, const FreeShape& shape) {
  size_t found = 0;
  for (const std::string_view part : parts_of(text, ',')) {
    const size_t equals = part.find('=');
    if (equals == std::string_view::npos) continue;
    const auto wanted = shape.find(std::string(part.substr(0, equals)));
    if (wanted == shape.end()) continue;
    if (number_of(part.substr(equals + 1)) != wanted->second) return false;
    ++found;
  }
  return found == shape.size();
}

}  // namespace zinc::bench
