#include "autograd/ops/matmul.h"

#include <utility>

#include "autograd/backward_pass.h"
#include "autograd/node.h"
#include "autograd/view_shapes.h"
#include "kernels/gemm.h"

namespace zinc::autograd {
namespace {

struct Product {
  ConstView a, b;
  View c;
  bool transpose_a = false;
  bool transpose_b = false;
  double alpha = 1.0;
};

void run(const Product& p) {
  if (p.c.rank() == 2) {
    kernels::gemm({.a = p.a,
                   .b = p.b,
                   .bias = {},
                   .activation_input = {},
                   .c = p.c,
                   .pre_activation = {},
                   .transpose_a = p.transpose_a,
                   .transpose_b = p.transpose_b,
                   .alpha = p.alpha},
                  compute_stream());
  } else {
    kernels::batched_gemm({.a = p.a,
                           .b = p.b,
                           .c = p.c,
                           .transpose_a = p.transpose_a,
                           .transpose_b = p.transpose_b,
                           .alpha = p.alpha},
                          compute_stream());
  }
}

class MatmulNode final : public Node {
 public:
  MatmulNode(const MatmulOptions& options, bool as_one_matrix)
      : options_(options), as_one_matrix_(as_one_matrix) {}
  std::string_view name() const override { return "matmul"; }

  //           op(A) = A           op(A) = A^T              op(B) = B           op(B) = B^T
  // gradient  dA = dC op(B)^T     dA = op(B) dC^T          dB = op(A)^T dC     dB = dC^T op(A)
  void backward(BackwardPass& pass) override {
    const Tensor dc = pass.take_gradient(0);
    const auto [ta, tb, alpha] = options_;
    const ConstView dc_view = shaped(dc);
    if (pass.needs(1)) {
      const Tensor a = pass.take_saved(0);
      Tensor db = pass.gradient_memory(1);
      run(tb ? Product{dc_view, shaped(a), db.view(), true, ta, alpha}
             : Product{shaped(a), dc_view, db.view(), !ta, false, alpha});
      pass.give(1, std::move(db));
    }
    if (pass.needs(0)) {
      const Tensor b = pass.take_saved(1);
      Tensor da = pass.gradient_memory(0);
      const View da_view = as_one_matrix_ ? as_matrix("matmul", da.view()) : da.view();
      run(ta ? Product{b.view(), dc_view, da_view, tb, true, alpha}
             : Product{dc_view, b.view(), da_view, false, !tb, alpha});
      pass.give(0, std::move(da));
    }
  }

 private:
  ConstView shaped(const Tensor& tensor) const {
    return as_one_matrix_ ? as_matrix("matmul", ConstView(tensor.view())) : tensor.view();
  }

  MatmulOptions options_;
  bool as_one_matrix_;
};

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b, const MatmulOptions& options) {
  require(a.rank() >= 2 && b.rank() >= 2, "matmul: matrices are needed, not ", a.shape(), " and ",
          b.shape());
  const bool as_one_matrix = a.rank() > 2 && b.rank() == 2 && !options.transpose_a;
  require(as_one_matrix || a.rank() == b.rank(), "matmul: ranks differ: ", a.shape(), " vs ",
          b.shape());
  Shape shape;
  for (int d = 0; d + 2 < a.rank(); ++d) {
    require(as_one_matrix || a.dim(d) == b.dim(d), "matmul: leading dimensions differ: ", a.shape(),
            " vs ", b.shape());
    shape.push_back(a.dim(d));
  }
  const int64_t inner_a = options.transpose_a ? a.dim(-2) : a.dim(-1);
  const int64_t inner_b = options.transpose_b ? b.dim(-1) : b.dim(-2);
  require(inner_a == inner_b, "matmul: inner dimensions differ: ", a.shape(),
          options.transpose_a ? " transposed" : "", " vs ", b.shape(),
          options.transpose_b ? " transposed" : "");
  require(a.dtype() == b.dtype(), "matmul: dtypes differ: ", a.dtype(), " vs ", b.dtype());
  shape.push_back(options.transpose_a ? a.dim(-1) : a.dim(-2));
  shape.push_back(options.transpose_b ? b.dim(-2) : b.dim(-1));

  Tensor c = Tensor::empty(shape, a.dtype());
  run({.a = as_one_matrix ? as_matrix("matmul", ConstView(a.view())) : a.view(),
       .b = b.view(),
       .c = as_one_matrix ? as_matrix("matmul", c.view()) : c.view(),
       .transpose_a = options.transpose_a,
       .transpose_b = options.transpose_b,
       .alpha = options.alpha});
  if (needs_gradient(a, b)) {
    auto node = make_node<MatmulNode>(options, as_one_matrix);
    node->add_input(a);
    node->add_input(b);
    node->save(b.requires_grad() ? a : Tensor());
    node->save(a.requires_grad() ? b : Tensor());
    node->set_output(c);
  }
  return c;
}

}  // namespace zinc::autograd
