#include "bench/array_case.h"

#include <memory>

#include "bench/arrays.h"

namespace zinc::bench {
namespace {

struct Buffers {
  std::vector<Array> arrays;
  std::vector<Array> before;  // copies from before the first run
};

bool is_fixed_integer(const ArraySpec& spec) { return spec.fixed && !is_float(*spec.fixed); }

std::vector<View> views_of(const std::vector<Array>& arrays) {
  std::vector<View> views;
  for (const Array& array : arrays) views.push_back(array.view());
  return views;
}

Deviation compare(const ArrayCase& array_case, const Buffers& buffers) {
  std::vector<Array> wide;
  for (size_t i = 0; i < array_case.arrays.size(); ++i) {
    const View& before = buffers.before[i].view();
    wide.push_back(is_fixed_integer(array_case.arrays[i]) ? Array::copy_of(before)
                                                          : Array::converted(before, DType::f64));
  }
  const StreamRef stream = Context::current().compute();
  array_case.launch(views_of(wide), stream);
  stream->synchronize();
  double worst = 0.0;
  for (size_t i = 0; i < array_case.arrays.size(); ++i) {
    if (!array_case.arrays[i].compared) continue;
    const double deviation = relative_l2({{buffers.arrays[i].view(), wide[i].view()}});
    // A deviation that is no number must not pass for a small one.
    worst = deviation > worst || deviation != deviation ? deviation : worst;
  }
  return {worst, case_tolerance(array_case.dtype)};
}

Instance make_instance(const ArrayCase& array_case, Context& context) {
  auto buffers = std::make_shared<Buffers>();
  uint64_t seed = 1;
  for (const ArraySpec& spec : array_case.arrays) {
    const DType dtype = spec.fixed.value_or(array_case.dtype);
    buffers->arrays.push_back(spec.low == spec.high
                                  ? Array::full(spec.shape, dtype, spec.low)
                                  : Array::uniform(spec.shape, dtype, spec.low, spec.high, seed++));
    buffers->before.push_back(Array::copy_of(buffers->arrays.back().view()));
  }
  const StreamRef stream = context.compute();
  return {.run = [=, launch = array_case.launch] { launch(views_of(buffers->arrays), stream); },
          .verify = [=] { return compare(array_case, *buffers); }};
}

}  // namespace

double case_tolerance(DType dtype) {
  if (dtype == DType::bf16) return 0x1p-8;
  return dtype == DType::f16 ? 0x1p-11 : 0x1p-24 * 32;
}

void add_case(Registry& registry, const ArrayCase& array_case) {
  registry.add(
      {.op = array_case.op,
       .pass = array_case.pass,
       .dtype = array_case.dtype,
       .shape = array_case.shape,
       .cost = array_case.cost,
       .ceiling = array_case.ceiling,
       .make = [array_case](Context& context) { return make_instance(array_case, context); }});
}

}  // namespace zinc::bench
