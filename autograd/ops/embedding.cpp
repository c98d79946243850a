#include "autograd/ops/embedding.h"

#include <utility>

#include "autograd/backward_pass.h"
#include "autograd/node.h"
#include "kernels/embedding.h"
#include "kernels/fill.h"
#include "kernels/reduce.h"

namespace zinc::autograd {
namespace {

// Weights: table, position_table. Saved: ids, positions.
class EmbeddingNode final : public Node {
 public:
  explicit EmbeddingNode(const EmbeddingOptions& options)
      : start_(options.start),
        ignored_id_(options.ignored_id),
        allows_absent_(options.allows_absent),
        has_positions_(options.positions.defined()) {}
  std::string_view name() const override { return "embedding"; }

  void backward(BackwardPass& pass) override {
    const Tensor dy = pass.take_gradient(0);
    const Tensor ids = pass.take_saved(0);
    if (pass.weight_needs(1)) {
      const GradientTarget target = pass.weight_gradient(1);
      if (has_positions_) {
        const Tensor positions = pass.take_saved(1);
        sum_rows(positions.view(), dy, target, -1, false);
      } else {
        sum_positions(ids.dim(-1), dy, target);
      }
    }
    if (pass.weight_needs(0)) {
      sum_rows(ids.view(), dy, pass.weight_gradient(0), ignored_id_, allows_absent_);
    }
  }

 private:
  static void sum_rows(const ConstView& ids, const Tensor& dy, const GradientTarget& target,
                       int64_t ignored_id, bool allows_absent) {
    const Tensor workspace =
        Tensor::empty(Shape{kernels::embedding_backward_workspace_bytes(ids.numel())}, DType::u8,
                      Label::workspace);
    kernels::embedding_backward({.ids = ids,
                                 .allows_absent = allows_absent,
                                 .dy = dy.view(),
                                 .dtable = target.view,
                                 .accumulate = target.accumulate,
                                 .ignored_id = ignored_id,
                                 .workspace = workspace.view()},
                                compute_stream());
  }

  // Without positions, token t of every sequence has read row start + t.
  void sum_positions(int64_t length, const Tensor& dy, const GradientTarget& target) const {
    const int64_t rows = target.view.dim(0);
    const int64_t cols = target.view.dim(1);
    if (!target.accumulate) {
      kernels::fill({.y = target.view.narrow(0, 0, start_)}, compute_stream());
      kernels::fill({.y = target.view.narrow(0, start_ + length, rows - start_ - length)},
                    compute_stream());
    }
    if (length == 0) return;
    const View used = target.view.narrow(0, start_, length);
    kernels::reduce({.op = kernels::ReduceOp::sum,
                     .over = kernels::ReduceOver::leading,
                     .x = dy.view().reshape(Shape{dy.numel() / (length * cols), length * cols}),
                     .y = used.reshape(Shape{length * cols}),
                     .accumulate = target.accumulate},
                    compute_stream());
  }

  int64_t start_;
  int64_t ignored_id_;
  bool allows_absent_;
  bool has_positions_;
};

}  // namespace

Tensor embedding(const Tensor& ids, const Weight& table, const Weight& position_table,
                 const EmbeddingOptions& options) {
  require(static_cast<bool>(table) && table.rank() == 2, "embedding: the table must be a matrix");
  require(ids.rank() >= 1, "embedding: ids must have at least one dimension");
  const int64_t length = ids.dim(-1);
  if (position_table) {
    require(position_table.rank() == 2 && position_table.dim(1) == table.dim(1),
            "embedding: a position table of shape ", position_table.shape(),
            " does not fit a table of shape ", table.shape());
    require(options.positions.defined() ||
                (options.start >= 0 && options.start + length <= position_table.dim(0)),
            "embedding: positions ", options.start, " to ", options.start + length,
            " are outside a position table of ", position_table.dim(0), " rows");
  }
  Shape shape = ids.shape();
  shape.push_back(table.dim(1));
  Tensor y = Tensor::empty(shape, table.dtype());
  {
    const WeightValue rows = table.acquire();
    const WeightValue positions = position_table.acquire();
    kernels::embedding_forward({.ids = ids.view(),
                                .allows_absent = options.allows_absent,
                                .table = rows.view(),
                                .position_table = positions.view(),
                                .positions = view_or_absent(options.positions),
                                .start = options.start,
                                .sequence_length = length,
                                .y = y.view()},
                               compute_stream());
  }
  if (needs_gradient(table, position_table)) {
    auto node = make_node<EmbeddingNode>(options);
    node->add_weight(table, false);
    node->add_weight(position_table, false);
    node->save(ids);
    node->save(options.positions);
    node->set_output(y);
  }
  return y;
}

}  // namespace zinc::autograd
