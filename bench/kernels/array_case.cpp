#include "bench/kernels/array_case.h"

#include <algorithm>

namespace zinc::bench {
namespace {

DType wide_dtype(const Operand& operand) {
  return is_float(operand.dtype) && !operand.exact ? DType::f64 : operand.dtype;
}

Array make_array(const Operand& operand) {
  return Array::uniform(operand.shape, operand.dtype, operand.low, operand.high, operand.seed);
}

struct Arrays {
  std::vector<Array> checked;  // updates and outputs
  Views views;
};

Arrays make_arrays(const ArrayCase& entry, bool wide) {
  Arrays arrays;
  const auto add = [&](const Array& array, bool checked) {
    if (checked) arrays.checked.push_back(array);
    arrays.views.push_back(array.view());
  };
  for (const Operand& operand : entry.inputs) {
    const Array array = make_array(operand);
    add(wide ? Array::converted(array, wide_dtype(operand)) : array, false);
  }
  for (const Operand& operand : entry.updates) {
    const Array array = make_array(operand);
    add(wide ? Array::converted(array, wide_dtype(operand)) : array, true);
  }
  for (const Operand& operand : entry.outputs) {
    add(Array(operand.shape, wide ? wide_dtype(operand) : operand.dtype), true);
  }
  if (entry.workspace) {
    const int64_t bytes = entry.workspace(wide ? DType::f64 : entry.dtype);
    add(Array(Shape{bytes}, DType::u8), false);
  }
  return arrays;
}

}  // namespace

double rounding_tolerance(DType dtype, double operations) {
  const double epsilon = dtype == DType::bf16 ? 0x1p-9 : dtype == DType::f16 ? 0x1p-12 : 0x1p-25;
  return epsilon + operations * 0x1p-24;
}

Views shape_views(const ArrayCase& entry) {
  Views views;
  const Device meta{.kind = DeviceKind::cpu, .index = 0, .meta = true};
  for (const auto* operands : {&entry.inputs, &entry.updates, &entry.outputs}) {
    for (const Operand& operand : *operands) {
      views.emplace_back(reinterpret_cast<void*>(64), operand.dtype, operand.shape, meta);
    }
  }
  if (entry.workspace) {
    views.emplace_back(reinterpret_cast<void*>(64), DType::u8, Shape{entry.workspace(entry.dtype)},
                       meta);
  }
  return views;
}

void add_array_case(Registry& registry, const ArrayCase& entry, const kernels::Cost& cost,
                    const Launch& launch) {
  registry.add({.op = entry.op,
                .pass = entry.pass,
                .dtype = entry.dtype,
                .shape = entry.shape,
                .cost = cost,
                .ceiling = entry.ceiling,
                .make = [=](Context& context) -> Instance {
                  const StreamRef stream = context.compute();
                  const Arrays arrays = make_arrays(entry, false);
                  const auto run = [=] {
                    launch(arrays.views, stream);
                    stream->synchronize();
                  };
                  const auto verify = [=] {
                    const Arrays wide = make_arrays(entry, true);
                    launch(wide.views, stream);
                    stream->synchronize();
                    double worst = 0.0;
                    for (size_t i = 0; i < wide.checked.size(); ++i) {
                      worst = std::max(
                          worst, relative_l2({{arrays.checked[i].view(), wide.checked[i].view()}}));
                    }
                    return Deviation{.relative_l2 = worst, .tolerance = entry.tolerance};
                  };
                  return {.run = run, .verify = verify};
                }});
}

}  // namespace zinc::bench
