#include "autograd/ops/binary.h"
#include "autograd/ops/cast.h"
#include "autograd/ops/concat.h"
#include "autograd/ops/gather_rows.h"
#include "autograd/ops/permute.h"
#include "autograd/ops/reshape.h"
#include "autograd/ops/split.h"
#include "autograd/ops/unary.h"
#include "autograd/ops/value.h"
#include "tests/autograd/gradcheck_rows.h"
#include "tests/autograd/rank.h"

namespace zinc::testing {
namespace {

using autograd::Weight;
using Operands = std::span<const Weight>;
using Results = std::vector<Tensor>;

void add_part_rows(std::vector<GradcheckRow>& rows) {
  for (const int dim : {0, 1, 2}) {
    rows.push_back({"split", str("dimension ", dim), {{.shape = {6, 6, 6}}}, [dim](Operands v) {
                      auto parts = autograd::split(v[0].tensor(), {1, 3, 2}, dim);
                      return Results{autograd::square(parts[0]), parts[1], autograd::exp(parts[2])};
                    }});
    rows.push_back(
        {"concat",
         str("dimension ", dim),
         {{.shape = {dim == 0 ? 1 : 2, dim == 1 ? 1 : 3, dim == 2 ? 1 : 4}}, {.shape = {2, 3, 4}}},
         [dim](Operands v) {
           return Results{autograd::square(autograd::concat({v[0].tensor(), v[1].tensor()}, dim))};
         }});
  }
  rows.push_back({"split", "one part without gradient", {{.shape = {3, 7}}}, [](Operands v) {
                    return Results{autograd::square(autograd::split(v[0].tensor(), {3, 4}, 1)[1])};
                  }});
  rows.push_back({"split", "a part used twice", {{.shape = {3, 7}}}, [](Operands v) {
                    const auto parts = autograd::split(v[0].tensor(), {3, 4}, 1);
                    return Results{autograd::mul(autograd::exp(parts[1]), parts[1]), parts[0]};
                  }});
  rows.push_back({"split", "places taken twice", {{.shape = {3, 7}}}, [](Operands v) {
                    // permute writes straight into the place of the part; here two of them do
                    const auto parts = autograd::split(v[0].tensor(), {3, 4}, 1);
                    return Results{autograd::transpose(parts[1]), autograd::transpose(parts[1]),
                                   autograd::transpose(parts[0])};
                  }});
  rows.push_back({"split", "narrow", {{.shape = {3, 7}}}, [](Operands v) {
                    return Results{autograd::square(autograd::narrow(v[0].tensor(), -1, 2, 3)),
                                   autograd::square(autograd::narrow(v[0].tensor(), 0, 1, 2))};
                  }});
}

void add_index_rows(std::vector<GradcheckRow>& rows) {
  rows.push_back(
      {"gather_rows", "with repeats", {{.shape = {5, 3}}}, [](Operands v) {
         return Results{autograd::gather_rows(v[0].tensor(), ids_tensor({4, 0, 4, 2}, Shape{4}))};
       }});
  rows.push_back({"gather_rows", "scatter with repeats", {{.shape = {4, 3}}}, [](Operands v) {
                    return Results{autograd::square(autograd::scatter_rows(
                        v[0].tensor(), ids_tensor({4, 0, 4, 2}, Shape{4}), 6))};
                  }});
}

}  // namespace

void add_layout_rows(std::vector<GradcheckRow>& rows) {
  add_part_rows(rows);
  add_index_rows(rows);
  rows.push_back({"permute", "rank 4", {{.shape = {2, 3, 4, 5}}}, [](Operands v) {
                    return Results{autograd::permute(v[0].tensor(), {2, 0, 3, 1})};
                  }});
  rows.push_back({"permute", "transpose of a strided view", {{.shape = {3, 7}}}, [](Operands v) {
                    return Results{autograd::transpose(autograd::narrow(v[0].tensor(), 1, 1, 4))};
                  }});
  rows.push_back({"reshape", "of a contiguous tensor", {{.shape = {3, 4}}}, [](Operands v) {
                    return Results{autograd::square(autograd::reshape(v[0].tensor(), Shape{2, 6}))};
                  }});
  rows.push_back({"cast", "contiguous copy of a strided view", {{.shape = {3, 7}}}, [](Operands v) {
                    return Results{autograd::square(
                        autograd::contiguous(autograd::narrow(v[0].tensor(), 1, 1, 4)))};
                  }});
  // Rounding to f32 moves a value below 2 by at most 2^-24: over a step of 1/4 that is 2.4e-7.
  rows.push_back({"cast",
                  "to f32 and back",
                  {{.shape = {3, 4}, .low = 1, .high = 2}},
                  [](Operands v) {
                    return Results{
                        autograd::cast(autograd::cast(v[0].tensor(), DType::f32), DType::f64)};
                  },
                  0.25});
  rows.push_back(
      {"value", "of a parameter", {{.shape = {3, 4}, .is_weight = true}}, [](Operands v) {
         return Results{autograd::square(autograd::value(v[0]))};
       }});
}

}  // namespace zinc::testing
