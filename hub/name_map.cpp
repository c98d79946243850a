#include "hub/name_map.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "core/error.h"

namespace zinc::hub {

RowLayout transposed() { return {.transposed = true}; }

RowLayout part_of_theirs(int64_t first, int64_t count, int64_t total) {
  return grouped_part(1, first, count, total);
}

RowLayout part_of_ours(int64_t first, int64_t count) {
  return {.blocks = {{.ours = first, .theirs = 0, .steps = {{count, 1, 1}}}}, .their_rows = count};
}

RowLayout head_part(int64_t part, int64_t parts, int64_t heads, int64_t dim) {
  return grouped_part(heads, part * dim, dim, parts * dim);
}

RowLayout grouped_part(int64_t groups, int64_t first, int64_t rows, int64_t group_rows) {
  return {.blocks = {{.theirs = first, .steps = {{groups, rows, group_rows}, {rows, 1, 1}}}},
          .their_rows = groups * group_rows};
}

RowLayout heads_outermost(int64_t parts, int64_t heads, int64_t dim) {
  RowLayout layout;
  for (int64_t part = 0; part < parts; ++part) {
    layout.blocks.push_back({.ours = part * heads * dim,
                             .theirs = part * dim,
                             .steps = {{heads, dim, parts * dim}, {dim, 1, 1}}});
  }
  return layout;
}

RowLayout rotary_pairs(int64_t heads, int64_t dim, int64_t rotary) {
  const int64_t turned = rotary == 0 ? dim : rotary;
  require(turned % 2 == 0 && turned <= dim, "name map: ", turned, " rotary rows of ", dim);
  RowLayout layout;
  for (const int64_t half : {0, 1}) {
    layout.blocks.push_back({.ours = half * turned / 2,
                             .theirs = half,
                             .steps = {{heads, dim, dim}, {turned / 2, 1, 2}}});
  }
  if (turned < dim) {
    layout.blocks.push_back(
        {.ours = turned, .theirs = turned, .steps = {{heads, dim, dim}, {dim - turned, 1, 1}}});
  }
  return layout;
}

namespace {

// The text in the place of '*' if the name matches; the name itself for a pattern without one.
std::optional<std::string_view> layer_of(std::string_view pattern, std::string_view name) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos) {
    return pattern == name ? std::optional(name) : std::nullopt;
  }
  const std::string_view before = pattern.substr(0, star), after = pattern.substr(star + 1);
  if (name.size() <= before.size() + after.size() || !name.starts_with(before) ||
      !name.ends_with(after)) {
    return std::nullopt;
  }
  const std::string_view layer = name.substr(star, name.size() - before.size() - after.size());
  return layer.find('.') == std::string_view::npos ? std::optional(layer) : std::nullopt;
}

std::string with_layer(const std::string& pattern, std::string_view layer) {
  const size_t star = pattern.find('*');
  if (star == std::string::npos) return pattern;
  return str(pattern.substr(0, star), layer, pattern.substr(star + 1));
}

Shape with_rows(const Shape& shape, int64_t rows) {
  Shape result = shape;
  result.set(0, rows);
  return result;
}

Shape shape_in_file(const Shape& ours, const RowLayout& rows, std::string_view name) {
  if (rows.transposed) {
    require(ours.rank() == 2, "name map: ", name, " ", ours, " cannot be transposed");
    return Shape{ours[1], ours[0]};
  }
  if (rows.blocks.empty()) return ours;
  require(ours.rank() > 0, "name map: ", name, " has no rows");
  return rows.their_rows == 0 ? ours : with_rows(ours, rows.their_rows);
}

}  // namespace

TensorPart::TensorPart(std::string name, Shape shape, const RowLayout& rows, const Shape& ours)
    : name_(std::move(name)), shape_(shape) {
  if (rows.transposed) {
    boxes_.push_back({0, 0, {{ours[0], ours[1], 1}, {ours[1], 1, ours[0]}}});
    return;
  }
  if (rows.blocks.empty()) {
    boxes_.push_back({0, 0, {{ours.numel(), 1, 1}}});
    return;
  }
  const int64_t width = ours[0] == 0 ? 0 : ours.numel() / ours[0];
  for (const RowLayout::Block& part : rows.blocks) {
    int64_t last_ours = part.ours, last_theirs = part.theirs;
    Box box{part.ours * width, part.theirs * width, {}};
    for (const RowLayout::Step& step : part.steps) {
      box.axes.push_back({step.count, step.ours * width, step.theirs * width});
      last_ours += (step.count - 1) * step.ours;
      last_theirs += (step.count - 1) * step.theirs;
    }
    require(last_ours < ours[0] && last_theirs < shape_[0], "name map: rows up to ", last_ours,
            " of ours ", ours, " cannot be rows up to ", last_theirs, " of ", name_, " ", shape_);
    box.axes.push_back({width, 1, 1});
    merge_axes(box.axes);
    boxes_.push_back(std::move(box));
  }
}

void TensorPart::merge_axes(std::vector<Axis>& axes) {
  std::vector<Axis> merged;
  for (const Axis& axis : axes) {
    if (axis.count == 1) continue;
    if (!merged.empty() && merged.back().ours == axis.count * axis.ours &&
        merged.back().theirs == axis.count * axis.theirs) {
      merged.back() = {merged.back().count * axis.count, axis.ours, axis.theirs};
    } else {
      merged.push_back(axis);
    }
  }
  axes = std::move(merged);
}

int64_t TensorPart::num_elements() const {
  int64_t sum = 0;
  for (const Box& box : boxes_) {
    int64_t product = 1;
    for (const Axis& axis : box.axes) product *= axis.count;
    sum += product;
  }
  return sum;
}

// Cuts a box into boxes of which every element of ours is in [begin, end). Along `axis` the indices
// whose elements are all inside stay together; the at most two that stick out are cut further.
void TensorPart::clip(Box box, size_t axis, int64_t begin, int64_t end, std::vector<Box>& inside) {
  if (axis == box.axes.size()) {
    if (begin <= box.ours && box.ours < end) inside.push_back(std::move(box));
    return;
  }
  const Axis along = box.axes[axis];
  int64_t extent = 1;
  for (size_t inner = axis + 1; inner < box.axes.size(); ++inner) {
    extent += (box.axes[inner].count - 1) * box.axes[inner].ours;
  }
  const auto indices_before = [&](int64_t offset) {  // indices i with i * along.ours < offset
    return offset <= 0 ? 0 : std::min(along.count, (offset - 1) / along.ours + 1);
  };
  const auto cut = [&](int64_t index) {
    Box one = box;
    one.ours += index * along.ours;
    one.theirs += index * along.theirs;
    one.axes.erase(one.axes.begin() + static_cast<int64_t>(axis));
    clip(std::move(one), axis, begin, end, inside);
  };
  const int64_t first = indices_before(begin - box.ours);            // starts inside
  const int64_t started = indices_before(end - box.ours);            // starts before the end
  const int64_t last = indices_before(end - extent - box.ours + 1);  // ends inside
  if (first > 0 && extent > 1) cut(first - 1);
  if (first < last) {
    Box whole = box;
    whole.ours += first * along.ours;
    whole.theirs += first * along.theirs;
    whole.axes[axis].count = last - first;
    inside.push_back(std::move(whole));
  }
  for (int64_t i = std::max(first, last); i < started; ++i) cut(i);
}

void TensorPart::runs_of(const Box& box, const std::function<void(const ElementRun&)>& visit) {
  // The longest axis along which theirs are neighbours; without one, runs have one element.
  auto run = box.axes.end();
  for (auto axis = box.axes.begin(); axis != box.axes.end(); ++axis) {
    const bool is_longer = run == box.axes.end() || axis->count > run->count;
    if (axis->theirs == 1 && is_longer) run = axis;
  }
  std::vector<Axis> outer;
  for (auto axis = box.axes.begin(); axis != box.axes.end(); ++axis) {
    if (axis != run) outer.push_back(*axis);
  }
  std::vector<int64_t> index(outer.size(), 0);
  ElementRun at{box.ours, 1, box.theirs, 1};
  if (run != box.axes.end()) {
    at.ours_step = run->ours;
    at.count = run->count;
  }
  for (;;) {
    visit(at);
    size_t axis = outer.size();
    while (axis > 0 && index[axis - 1] + 1 == outer[axis - 1].count) {
      --axis;
      at.ours -= index[axis] * outer[axis].ours;
      at.theirs -= index[axis] * outer[axis].theirs;
      index[axis] = 0;
    }
    if (axis == 0) return;
    ++index[axis - 1];
    at.ours += outer[axis - 1].ours;
    at.theirs += outer[axis - 1].theirs;
  }
}

void TensorPart::for_each_run(int64_t begin, int64_t end,
                              const std::function<void(const ElementRun&)>& visit) const {
  if (begin >= end) return;
  std::vector<Box> inside;
  for (const Box& box : boxes_) clip(box, 0, begin, end, inside);
  for (const Box& box : inside) runs_of(box, visit);
}

std::vector<TensorPart> tensor_parts(const NameMap& map, std::string_view name,
                                     const Shape& shape) {
  std::vector<TensorPart> parts;
  int64_t covered = 0;
  for (const NameRow& row : map.rows) {
    const std::optional<std::string_view> layer = layer_of(row.ours, name);
    if (!layer) continue;
    parts.emplace_back(with_layer(row.theirs, *layer), shape_in_file(shape, row.rows, name),
                       row.rows, shape);
    covered += parts.back().num_elements();
  }
  if (parts.empty()) {
    parts.emplace_back(std::string(name), shape, RowLayout{}, shape);
    return parts;
  }
  require(covered == shape.numel(), "name map: the rows of ", name, " ", shape, " cover ", covered,
          " of its ", shape.numel(), " elements");
  return parts;
}

void read_parts(std::span<const TensorPart> parts, int64_t begin, View out, const ReadPart& read) {
  const auto size = static_cast<size_t>(size_of(out.dtype()));
  std::vector<std::byte> room;
  for (const TensorPart& part : parts) {
    part.for_each_run(begin, begin + out.numel(), [&](const ElementRun& run) {
      auto* target =
          static_cast<std::byte*>(out.data()) + static_cast<size_t>(run.ours - begin) * size;
      const auto count = static_cast<size_t>(run.count), step = static_cast<size_t>(run.ours_step);
      const bool direct = step == 1 || count == 1;
      if (!direct) room.resize(count * size);
      read(part, run.theirs, View(direct ? target : room.data(), out.dtype(), Shape{run.count}));
      if (direct) return;
      for (size_t i = 0; i < count; ++i) {
        std::memcpy(target + i * step * size, &room[i * size], size);
      }
    });
  }
}

void write_parts(std::span<const TensorPart> parts, int64_t begin, ConstView values,
                 const WritePart& write) {
  const auto size = static_cast<size_t>(size_of(values.dtype()));
  std::vector<std::byte> room;
  for (const TensorPart& part : parts) {
    part.for_each_run(begin, begin + values.numel(), [&](const ElementRun& run) {
      const auto* from = static_cast<const std::byte*>(values.data()) +
                         static_cast<size_t>(run.ours - begin) * size;
      const auto count = static_cast<size_t>(run.count), step = static_cast<size_t>(run.ours_step);
      if (step != 1 && count > 1) {
        room.resize(count * size);
        for (size_t i = 0; i < count; ++i) {
          std::memcpy(&room[i * size], from + i * step * size, size);
        }
        from = room.data();
      }
      write(part, run.theirs, ConstView(from, values.dtype(), Shape{run.count}));
    });
  }
}

std::vector<WeightSpec> stored_tensors(const NameMap& map, std::span<const WeightSpec> parameters) {
  std::vector<WeightSpec> tensors;
  std::map<std::string, std::pair<size_t, int64_t>, std::less<>> found;  // place, elements
  for (const WeightSpec& parameter : parameters) {
    for (const TensorPart& part : tensor_parts(map, parameter.name, parameter.shape)) {
      const auto [at, is_new] = found.emplace(part.name(), std::pair(tensors.size(), int64_t{0}));
      if (is_new) tensors.push_back({part.name(), part.shape()});
      const WeightSpec& tensor = tensors[at->second.first];
      require(tensor.shape == part.shape(), "name map: ", parameter.name, " takes ", part.name(),
              " for ", part.shape(), ", another parameter for ", tensor.shape);
      at->second.second += part.num_elements();
    }
  }
  for (const auto& [name, tensor] : found) {
    require(tensor.second == tensors[tensor.first].shape.numel(), "name map: the parameters have ",
            tensor.second, " elements of ", name, " ", tensors[tensor.first].shape);
  }
  return tensors;
}

}  // namespace zinc::hub
