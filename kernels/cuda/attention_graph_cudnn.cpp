// The graphs of attention. kernels/cuda/attention_graph_cudnn.h is the interface.
#include "kernels/cuda/attention_graph_cudnn.h"

#include <array>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

namespace zinc::kernels::cuda {
namespace {

using Four = std::array<int64_t, 4>;

// A graph while it is built: the operations of one problem, in the order in which they are added.
//
// Note [Shape of the graphs]
// cuDNN has no operation that is attention and has a plan for every mask and for backward. It fuses
// two products and a softmax into one kernel where it recognises the operations between them. So
// each step, its types, and each transpose as a separate operation are those that cuDNN's engines
// look for (its developer guide, "Fused Attention"). Operations that they do not recognise have no
// plan; the tests of the plans show that without a GPU.
class Graph {
 public:
  Graph(const CudnnFunctions& cudnn, const AttentionKey& key)
      : cudnn_(cudnn),
        key_(key),
        type_(key.dtype == DType::bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF),
        scores_{key.B, key.H, key.Tq, key.Tk},
        lengths_of_queries_(lengths(kQueryLengths)),
        lengths_of_keys_(lengths(kKeyLengths)) {}

  // [B, heads, T, D], whatever the order in memory.
  CudnnDescriptor heads(CudnnTensor name) const {
    const bool of_keys = name == kK || name == kV || name == kDk || name == kDv;
    return in_memory(name, type_,
                     {key_.B, of_keys ? key_.G : key_.H, of_keys ? key_.Tk : key_.Tq, key_.D},
                     strides_of(name));
  }
  Four strides_of(CudnnTensor name) const {
    const int64_t* own = key_.strides.data() + 3 * (name - kQ);
    return {own[0], own[2], own[1], 1};
  }
  // k or v as [B, G, D, Tk].
  CudnnDescriptor transposed_keys(CudnnTensor name) const {
    const Four strides = strides_of(name);
    return in_memory(name, type_, {key_.B, key_.G, key_.D, key_.Tk},
                     {strides[0], strides[1], strides[3], strides[2]});
  }
  // [B, H, Tq, 1] f32
  CudnnDescriptor sums(CudnnTensor name) const {
    return in_memory(name, CUDNN_DATA_FLOAT, {key_.B, key_.H, key_.Tq, 1},
                     {key_.H * key_.Tq, key_.Tq, 1, 1});
  }
  CudnnDescriptor sums_within() { return within(CUDNN_DATA_FLOAT, {key_.B, key_.H, key_.Tq, 1}); }
  // [B, H, Tq, Tk]
  CudnnDescriptor scores_within(cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    return within(type, scores_);
  }
  CudnnDescriptor within(cudnnDataType_t type, const Four& extents) {
    const int64_t row = extents[3], head = row * extents[2];
    return within(type, extents, {head * extents[1], head, row, 1});
  }
  CudnnDescriptor within(cudnnDataType_t type, const Four& extents, const Four& strides) {
    return tensor(next_++, type, extents, strides, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
  }
  CudnnDescriptor number(CudnnTensor name) const {
    return tensor(name, CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1},
                  CUDNN_ATTR_TENSOR_IS_BY_VALUE);
  }

  // c = a b. Which sides of the product have the length of queries, which that of keys.
  enum class Sides { queries_by_keys, queries_over_keys, keys_over_queries };
  void product(const CudnnDescriptor& a, const CudnnDescriptor& b, const CudnnDescriptor& c,
               Sides sides) {
    CudnnDescriptor how(cudnn_, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    how.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    how.finalize("a product");
    CudnnDescriptor& made = add(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    made.link(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    made.link(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    made.link(CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    made.link(CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    if (key_.lengths) {
      const bool keys_first = sides == Sides::keys_over_queries;
      made.link(CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC,
                keys_first ? lengths_of_keys_ : lengths_of_queries_);
      made.link(sides == Sides::queries_by_keys ? CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC
                                                : CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC,
                keys_first ? lengths_of_queries_ : lengths_of_keys_);
    }
    made.finalize("the operation of a product");
  }

  // y = mode(x), mode(x, b) or, by a mask, x where it is true and b elsewhere.
  struct Operands {
    const CudnnDescriptor* b = nullptr;
    const CudnnDescriptor* mask = nullptr;
    cudnnDataType_t computed_in = CUDNN_DATA_FLOAT;
    int64_t axis = -1;
  };
  void point(cudnnPointwiseMode_t mode, const CudnnDescriptor& x, const Operands& more,
             const CudnnDescriptor& y) {
    CudnnDescriptor how(cudnn_, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
    how.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, more.computed_in);
    if (more.axis >= 0) how.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, more.axis);
    how.finalize("a pointwise step");
    CudnnDescriptor& made = add(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    made.link(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    made.link(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (more.b != nullptr) made.link(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *more.b);
    if (more.mask != nullptr) made.link(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, *more.mask);
    made.link(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    made.finalize("the operation of a pointwise step");
  }
  // Operations whose results are scores, or truth values of scores.
  CudnnDescriptor point(cudnnPointwiseMode_t mode, const CudnnDescriptor& x,
                        const CudnnDescriptor& b) {
    CudnnDescriptor y = scores_within();
    point(mode, x, {.b = &b}, y);
    return y;
  }
  CudnnDescriptor compare(cudnnPointwiseMode_t mode, const CudnnDescriptor& x,
                          const CudnnDescriptor& b) {
    CudnnDescriptor y = scores_within(CUDNN_DATA_BOOLEAN);
    point(mode, x, {.b = &b, .computed_in = CUDNN_DATA_BOOLEAN}, y);
    return y;
  }
  // The scores where `seen`, else minus infinity.
  CudnnDescriptor select(const CudnnDescriptor& scores, const CudnnDescriptor& seen) {
    CudnnDescriptor y = scores_within();
    const CudnnDescriptor hidden = number(kHidden);
    point(CUDNN_POINTWISE_BINARY_SELECT, scores, {.b = &hidden, .mask = &seen}, y);
    return y;
  }
  // The number of each score's query (axis 2) or key (3).
  CudnnDescriptor index(const CudnnDescriptor& scores, int64_t axis, cudnnDataType_t type,
                        cudnnDataType_t computed_in) {
    CudnnDescriptor y = scores_within(type);
    point(CUDNN_POINTWISE_GEN_INDEX, scores, {.computed_in = computed_in, .axis = axis}, y);
    return y;
  }

  void reduce(cudnnReduceTensorOp_t op, const CudnnDescriptor& x, const CudnnDescriptor& y) {
    CudnnDescriptor how(cudnn_, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    how.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, op);
    how.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    how.finalize("a sum");
    CudnnDescriptor& made = add(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    made.link(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    made.link(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    made.link(CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    made.finalize("the operation of a sum");
  }
  // y has the elements of x in another order.
  void reshape(const CudnnDescriptor& x, const CudnnDescriptor& y) {
    CudnnDescriptor& made = add(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    made.link(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    made.link(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    made.finalize("the operation of a transpose");
  }
  // [B, H, Tq, Tk] as [B, H, Tk, Tq], in the type of q.
  CudnnDescriptor transposed_scores(const CudnnDescriptor& x) {
    const int64_t area = key_.Tq * key_.Tk;
    CudnnDescriptor y =
        within(type_, {key_.B, key_.H, key_.Tk, key_.Tq}, {key_.H * area, area, 1, key_.Tk});
    reshape(x, y);
    return y;
  }

  CudnnDescriptor finish(cudnnHandle_t handle) const {
    std::vector<cudnnBackendDescriptor_t> raw;
    for (const CudnnDescriptor& one : operations_) raw.push_back(one.raw());
    CudnnDescriptor graph(cudnn_, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, raw.data(), raw.size());
    if (handle != nullptr) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle);
    graph.finalize("the graph of attention");
    return graph;
  }

  const AttentionKey& key() const { return key_; }
  cudnnDataType_t type() const { return type_; }
  const CudnnDescriptor& lengths_of_queries() const { return lengths_of_queries_; }
  const CudnnDescriptor& lengths_of_keys() const { return lengths_of_keys_; }
  CudnnDescriptor slopes() const {
    return in_memory(kSlopes, CUDNN_DATA_FLOAT, {1, key_.H, 1, 1}, {key_.H, 1, 1, 1});
  }

 private:
  CudnnDescriptor tensor(int64_t number, cudnnDataType_t type, const Four& extents,
                         const Four& strides,
                         std::optional<cudnnBackendAttributeName_t> kind) const {
    CudnnDescriptor made(cudnn_, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
    made.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, extents.data(), extents.size());
    made.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides.data(), strides.size());
    made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, number);
    made.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, int64_t{16});
    if (kind) made.set(*kind, CUDNN_TYPE_BOOLEAN, true);
    made.finalize("a tensor");
    return made;
  }
  CudnnDescriptor in_memory(CudnnTensor name, cudnnDataType_t type, const Four& extents,
                            const Four& strides) const {
    return tensor(name, type, extents, strides, std::nullopt);
  }
  CudnnDescriptor lengths(CudnnTensor name) const {
    return in_memory(name, CUDNN_DATA_INT32, {key_.B, 1, 1, 1}, {1, 1, 1, 1});
  }
  CudnnDescriptor& add(cudnnBackendDescriptorType_t type) {
    return operations_.emplace_back(cudnn_, type);
  }

  const CudnnFunctions& cudnn_;
  const AttentionKey& key_;
  cudnnDataType_t type_;
  Four scores_;
  CudnnDescriptor lengths_of_queries_, lengths_of_keys_;
  std::deque<CudnnDescriptor> operations_;
  int64_t next_ = kFirstWithin;
};

// slope * (j - i), which is -slope * |i - j| for the keys that a causal mask leaves.
CudnnDescriptor with_alibi(Graph& graph, const CudnnDescriptor& scores) {
  const CudnnDescriptor rows = graph.index(scores, 2, CUDNN_DATA_INT32, CUDNN_DATA_INT32);
  const CudnnDescriptor columns = graph.index(scores, 3, CUDNN_DATA_INT32, CUDNN_DATA_INT32);
  const CudnnDescriptor distance = graph.scores_within(CUDNN_DATA_INT32);
  graph.point(CUDNN_POINTWISE_SUB, columns, {.b = &rows, .computed_in = CUDNN_DATA_INT32},
              distance);
  return graph.point(CUDNN_POINTWISE_ADD, scores,
                     graph.point(CUDNN_POINTWISE_MUL, distance, graph.slopes()));
}

CudnnDescriptor with_lengths(Graph& graph, const CudnnDescriptor& scores) {
  const CudnnDescriptor rows = graph.index(scores, 2, CUDNN_DATA_INT32, CUDNN_DATA_INT32);
  const CudnnDescriptor columns = graph.index(scores, 3, CUDNN_DATA_INT32, CUDNN_DATA_INT32);
  const CudnnDescriptor row_is =
      graph.compare(CUDNN_POINTWISE_CMP_LT, rows, graph.lengths_of_queries());
  const CudnnDescriptor column_is =
      graph.compare(CUDNN_POINTWISE_CMP_LT, columns, graph.lengths_of_keys());
  return graph.select(scores, graph.compare(CUDNN_POINTWISE_LOGICAL_AND, row_is, column_is));
}

CudnnDescriptor with_causal_mask(Graph& graph, const CudnnDescriptor& scores) {
  const CudnnDescriptor rows = graph.index(scores, 2, CUDNN_DATA_INT32, CUDNN_DATA_FLOAT);
  const CudnnDescriptor columns = graph.index(scores, 3, CUDNN_DATA_INT32, CUDNN_DATA_FLOAT);
  return graph.select(scores, graph.compare(CUDNN_POINTWISE_CMP_GE, rows, columns));
}

// Keys j with j + window > i.
CudnnDescriptor with_window(Graph& graph, const CudnnDescriptor& scores) {
  const CudnnDescriptor rows = graph.index(scores, 2, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT);
  const CudnnDescriptor columns = graph.index(scores, 3, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT);
  const CudnnDescriptor last = graph.point(CUDNN_POINTWISE_ADD, columns, graph.number(kWindow));
  return graph.select(scores, graph.compare(CUDNN_POINTWISE_CMP_GT, last, rows));
}

// scale q k^T and ALiBi.
CudnnDescriptor scores_of(Graph& graph) {
  CudnnDescriptor product = graph.scores_within();
  graph.product(graph.heads(kQ), graph.transposed_keys(kK), product, Graph::Sides::queries_by_keys);
  CudnnDescriptor scores = graph.point(CUDNN_POINTWISE_MUL, product, graph.number(kScale));
  return graph.key().alibi ? with_alibi(graph, scores) : std::move(scores);
}
CudnnDescriptor with_diagonals(Graph& graph, CudnnDescriptor scores) {
  if (graph.key().causal) scores = with_causal_mask(graph, scores);
  return graph.key().window > 0 ? with_window(graph, scores) : std::move(scores);
}

CudnnDescriptor forward_graph(const CudnnFunctions& cudnn, const AttentionKey& key,
                              cudnnHandle_t handle) {
  Graph graph(cudnn, key);
  CudnnDescriptor scores = scores_of(graph);
  if (key.lengths) scores = with_lengths(graph, scores);
  scores = with_diagonals(graph, std::move(scores));

  const CudnnDescriptor largest = graph.sums_within(), sum = graph.sums_within();
  graph.reduce(CUDNN_REDUCE_TENSOR_MAX, scores, largest);
  const CudnnDescriptor below = graph.point(CUDNN_POINTWISE_SUB, scores, largest);
  const CudnnDescriptor powers = graph.scores_within();
  graph.point(CUDNN_POINTWISE_EXP, below, {}, powers);
  graph.reduce(CUDNN_REDUCE_TENSOR_ADD, powers, sum);
  const CudnnDescriptor logarithm = graph.sums_within();
  graph.point(CUDNN_POINTWISE_LOG, sum, {}, logarithm);
  graph.point(CUDNN_POINTWISE_ADD, largest, {.b = &logarithm},
              key.lse ? graph.sums(kLse) : graph.sums_within());
  const CudnnDescriptor probabilities = graph.scores_within(graph.type());
  graph.point(CUDNN_POINTWISE_DIV, powers, {.b = &sum}, probabilities);
  graph.product(probabilities, graph.heads(kV), graph.heads(kOut), Graph::Sides::queries_over_keys);
  return graph.finish(handle);
}

// dv or dk: the transpose of `scores` times `by`, summed over the heads of a group.
void gradient_of_keys(Graph& graph, const CudnnDescriptor& scores, const CudnnDescriptor& by,
                      CudnnTensor name) {
  const AttentionKey& key = graph.key();
  const CudnnDescriptor transposed = graph.transposed_scores(scores);
  const CudnnDescriptor gradient = graph.heads(name);
  if (key.H == key.G) {
    return graph.product(transposed, by, gradient, Graph::Sides::keys_over_queries);
  }
  const CudnnDescriptor of_heads = graph.within(graph.type(), {key.B, key.H, key.Tk, key.D});
  graph.product(transposed, by, of_heads, Graph::Sides::keys_over_queries);
  graph.reduce(CUDNN_REDUCE_TENSOR_ADD, of_heads, gradient);
}

// dq is the direct result of its product: a sum in f32 between them would be one of atomics.
CudnnDescriptor backward_graph(const CudnnFunctions& cudnn, const AttentionKey& key,
                               cudnnHandle_t handle) {
  Graph graph(cudnn, key);
  const CudnnDescriptor q = graph.heads(kQ), dout = graph.heads(kDout);
  const CudnnDescriptor k = graph.transposed_keys(kK), v = graph.transposed_keys(kV);
  const CudnnDescriptor scale = graph.number(kScale);

  // delta = <dout, out>
  const CudnnDescriptor out = graph.heads(kOut), lse = graph.sums(kLse), delta = graph.sums(kDelta);
  const CudnnDescriptor one = graph.number(kOne);
  const CudnnDescriptor parts = graph.within(CUDNN_DATA_FLOAT, {key.B, key.H, key.Tq, key.D},
                                             {key.H * key.Tq * key.D, key.Tq * key.D, key.D, 1});
  graph.point(CUDNN_POINTWISE_MUL, dout, {.b = &out}, parts);
  const CudnnDescriptor sum = graph.sums_within();
  graph.reduce(CUDNN_REDUCE_TENSOR_ADD, parts, sum);
  graph.point(CUDNN_POINTWISE_MUL, sum, {.b = &one}, delta);

  // p = exp(s - lse)
  CudnnDescriptor scores = scores_of(graph);
  if (key.lengths) scores = with_lengths(graph, scores);
  scores = with_diagonals(graph, graph.point(CUDNN_POINTWISE_SUB, scores, lse));
  const CudnnDescriptor probabilities = graph.scores_within();
  graph.point(CUDNN_POINTWISE_EXP, scores, {}, probabilities);
  gradient_of_keys(graph, probabilities, dout, kDv);

  // ds = p (dout v^T - delta) scale
  const CudnnDescriptor products = graph.scores_within();
  graph.product(dout, v, products, Graph::Sides::queries_by_keys);
  const CudnnDescriptor differences = graph.point(CUDNN_POINTWISE_SUB, products, delta);
  const CudnnDescriptor dscores = graph.point(CUDNN_POINTWISE_MUL, differences, probabilities);
  const CudnnDescriptor scaled = graph.point(CUDNN_POINTWISE_MUL, dscores, scale);
  gradient_of_keys(graph, scaled, q, kDk);

  const CudnnDescriptor keys =
      graph.within(graph.type(), {key.B, key.G, key.Tk, key.D}, graph.strides_of(kK));
  graph.reshape(k, keys);
  graph.product(scaled, keys, graph.heads(kDq), Graph::Sides::queries_over_keys);
  return graph.finish(handle);
}

}  // namespace

CudnnDescriptor attention_graph(const CudnnFunctions& cudnn, const AttentionKey& key,
                                cudnnHandle_t handle) {
  return key.pass == AttentionPass::forward ? forward_graph(cudnn, key, handle)
                                            : backward_graph(cudnn, key, handle);
}

}  // namespace zinc::kernels::cuda
