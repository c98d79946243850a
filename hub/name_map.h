// hub/name_map.h: the places of a model's parameters in the tensors of its files.
//
// A parameter without a row of the map lies in a tensor of the same name and shape. All offsets are
// flat and row-major; "ours" is the model's parameter, "theirs" the file's tensor.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/shape.h"
#include "core/view.h"

namespace zinc::hub {

// A parameter that wants values.
struct WeightSpec {
  std::string name;  // dotted path, as in "transformer.h.0.ln_1.weight"
  Shape shape;
};

// The rows of theirs (the file's tensor) that are the rows of ours (the model's parameter). A row
// is one index of the first dimension; in a bias it is one element. Made by the functions below.
struct RowLayout {
  struct Step {
    // Repeats `count` times, `ours` and `theirs` rows further on each side.
    int64_t count, ours, theirs;
  };
  struct Block {
    int64_t ours = 0, theirs = 0;  // the part's first row on each side
    std::vector<Step> steps{};     // outermost first, in ascending order of our rows
  };
  std::vector<Block> blocks{};  // none: all rows in their order
  int64_t their_rows = 0;       // rows of their whole tensor; 0: as many as ours
  bool transposed = false;      // ours [a, b] is theirs [b, a]
};

// Ours [a, b] is theirs [b, a].
RowLayout transposed();
// Ours is rows [first, first + count) of their `total`: "q | k | v", "gate | up".
RowLayout part_of_theirs(int64_t first, int64_t count, int64_t total);
// Rows [first, first + count) of ours are their whole tensor.
RowLayout part_of_ours(int64_t first, int64_t count);
// Ours [heads, dim] is part `part` of their [heads, parts, dim]. With `groups` of several query
// heads use grouped_part().
RowLayout head_part(int64_t part, int64_t parts, int64_t heads, int64_t dim);
// Ours [groups, rows] is rows [first, first + rows) of each group of their [groups, group_rows].
RowLayout grouped_part(int64_t groups, int64_t first, int64_t rows, int64_t group_rows);
// Ours [parts, heads, dim] is their [heads, parts, dim]: BLOOM's and GPT-NeoX's fused q, k and v.
RowLayout heads_outermost(int64_t parts, int64_t heads, int64_t dim);
// Each of `heads` heads has `dim` rows; the first `rotary` of them (0: all) form rotary pairs. A
// pair is (j, j + rotary / 2) in ours, and (2 j, 2 j + 1) in theirs.
RowLayout rotary_pairs(int64_t heads, int64_t dim, int64_t rotary = 0);

// '*' stands for the number of a layer, the same on both sides. Several rows with the same `ours`
// fill it from several tensors; several with the same `theirs` fill one tensor.
struct NameRow {
  std::string ours;
  std::string theirs;
  RowLayout rows{};
};

// A tensor of the files that repeats another one, and stands for it where the other is missing: the
// head of a model that shares its embedding.
struct TiedName {
  std::string copy;
  std::string original;
};

// How names ended in files of old: "LayerNorm.gamma" is "LayerNorm.weight" now.
struct OldEnding {
  std::string now;
  std::string before;
  bool may_repeat = false;  // files may have both; then the present name counts
};

// A family's rules.
struct NameMap {
  // Files may lack such a prefix of a name, or have it in addition: "transformer.".
  std::vector<std::string> prefixes{};
  // Tensors of files that are no weights: "*.attn.bias". * matches any run of characters.
  std::vector<std::string> buffers{};
  std::vector<TiedName> tied{};
  // Parameters of their own that begin as another one where the files lack them.
  std::vector<TiedName> first_values{};
  std::vector<NameRow> rows{};
  std::vector<OldEnding> old_endings{};  // older endings that files may have
};

// count elements: ours, ours + ours_step, ... are theirs, theirs + 1, ...
struct ElementRun {
  int64_t ours, ours_step, theirs, count;
};

// The elements of a parameter that lie in one tensor: offsets that advance by a step on each side
// along each axis.
class TensorPart {
 public:
  TensorPart(std::string name, Shape shape, const RowLayout& rows, const Shape& ours);

  const std::string& name() const { return name_; }  // name in the files
  const Shape& shape() const { return shape_; }      // shape in the files
  int64_t num_elements() const;                      // elements of the parameter in it
  // Calls `visit` for the parameter's elements [begin, end) that lie in this tensor, in no
  // particular order. Runs follow the file's order, so that the file is read and written in the
  // longest possible pieces.
  void for_each_run(int64_t begin, int64_t end,
                    const std::function<void(const ElementRun&)>& visit) const;

 private:
  struct Axis {
    int64_t count, ours, theirs;
  };
  struct Box {
    int64_t ours, theirs;    // the first element on each side
    std::vector<Axis> axes;  // outermost axis of ours first
  };
  static void merge_axes(std::vector<Axis>& axes);
  static void clip(Box box, size_t axis, int64_t begin, int64_t end, std::vector<Box>& inside);
  static void runs_of(const Box& box, const std::function<void(const ElementRun&)>& visit);

  std::string name_;
  Shape shape_;
  std::vector<Box> boxes_;
};

// The tensors in which a parameter lies. InvalidArgument where rows do not fit its shape, or do not
// cover it.
std::vector<TensorPart> tensor_parts(const NameMap& map, std::string_view name, const Shape& shape);

// Reads elements [begin, begin + out.numel()) of the parameter whose tensors are `parts`. read()
// fills `values`, [n] of out's dtype, with elements [begin, begin + n) of a part's tensor. out:
// contiguous host memory.
using ReadPart = std::function<void(const TensorPart& part, int64_t begin, View values)>;
void read_parts(std::span<const TensorPart> parts, int64_t begin, View out, const ReadPart& read);
// The other way: write() takes elements [begin, begin + values.numel()) of a part's tensor.
using WritePart = std::function<void(const TensorPart& part, int64_t begin, ConstView values)>;
void write_parts(std::span<const TensorPart> parts, int64_t begin, ConstView values,
                 const WritePart& write);

// The tensors of a file for these parameters, in their order. InvalidArgument where the parameters
// leave a part of a tensor out.
std::vector<WeightSpec> stored_tensors(const NameMap& map, std::span<const WeightSpec> parameters);

}  // namespace zinc::hub
