#include "kernels/concat.h"

#include "kernels/checks.h"
#include "kernels/copy.h"

namespace zinc::kernels {
namespace {

int checked_dim(std::string_view op, int dim, const ConstView& whole) {
  require(static_cast<bool>(whole), op, ": whole is missing");
  const int d = dim < 0 ? dim + whole.rank() : dim;
  require(d >= 0 && d < whole.rank(), op, ": dimension ", dim, " of ", whole.shape());
  return d;
}

// Calls body(part, its place in whole) for each part, after all of them were found to fit.
template <class Part, class Whole, class Body>
void for_each_part(std::string_view op, std::span<const Part> parts, int dim, const Whole& whole,
                   Body&& body) {
  const int d = checked_dim(op, dim, whole);
  int64_t total = 0;
  for (const Part& part : parts) {
    require(static_cast<bool>(part), op, ": a part is missing");
    require_dtype(op, "a part", part, whole.dtype());
    require(part.rank() == whole.rank(), op, ": a part of ", part.shape(), " in ", whole.shape());
    Shape expected = whole.shape();
    expected.set(d, part.dim(d));
    require_shape(op, "a part", part, expected);
    total += part.dim(d);
  }
  require(total == whole.dim(d), op, ": the parts have ", total, " along dimension ", d,
          ", the whole has ", whole.dim(d));
  int64_t begin = 0;
  for (const Part& part : parts) {
    body(part, whole.narrow(d, begin, part.dim(d)));
    begin += part.dim(d);
  }
}

}  // namespace

// Every part is a strided copy: `copy` dispatches on the device.
void concat(const Concat& args, StreamRef stream) {
  for_each_part(
      "concat", args.parts, args.dim, args.whole,
      [&](const ConstView& part, const View& place) { copy({.x = part, .y = place}, stream); });
}

void split(const Split& args, StreamRef stream) {
  for_each_part(
      "split", args.parts, args.dim, args.whole,
      [&](const View& part, const ConstView& place) { copy({.x = place, .y = part}, stream); });
}

Cost cost(const Concat& args) {
  return {.bytes_read = args.whole.bytes(), .bytes_written = args.whole.bytes(), .flops = 0};
}

Cost cost(const Split& args) {
  return {.bytes_read = args.whole.bytes(), .bytes_written = args.whole.bytes(), .flops = 0};
}

}  // namespace zinc::kernels
