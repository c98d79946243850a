#include "parallel/tensor_ranks.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "autograd/backward_pass.h"
#include "autograd/mode.h"
#include "autograd/node.h"
#include "autograd/ops/compare.h"
#include "autograd/ops/reduce.h"
#include "autograd/ops/where.h"
#include "core/context.h"
#include "core/error.h"
#include "core/tensor_slice.h"
#include "kernels/accumulate.h"
#include "kernels/copy.h"
#include "kernels/cross_entropy.h"
#include "kernels/tree_sum.h"
#include "parallel/linear_slices.h"
#include "parallel/token_runs.h"

namespace zinc::parallel {
namespace {

bool is_recording(comm::World& group, const Tensor& x) {
  return x.device() != group.context().device();
}

// Adds up x over the ranks, in place. `meanwhile` issues what does not need the sum.
void add_up(comm::World& world, const Tensor& x, const std::function<void()>& meanwhile = {}) {
  comm::Communicator& group = world.communicator();
  const View flat = x.view().reshape(Shape{x.numel()});
  const Tensor workspace = Tensor::empty(
      Shape{group.workspace_bytes(comm::Collective::all_reduce, flat.bytes(), flat.dtype())},
      DType::u8, Label::communication);
  beside(!is_recording(world, x) && x.numel() > 0, meanwhile, [&](StreamRef stream) {
    const TraceSpan span = exchange_span(world, "sum", stream, 2 * flat.bytes());
    return group.all_reduce({.inout = flat, .workspace = workspace.view()}, stream);
  });
}

// Gathers `mine` of every rank to `all`, which has as many times the elements as there are ranks.
void gather_over(comm::World& group, const Tensor& mine, const Tensor& all) {
  if (is_recording(group, mine)) return;
  const StreamRef compute = Context::current().compute();
  const View out = all.view().reshape(Shape{all.numel()});
  const TraceSpan span = exchange_span(group, "gather", compute, out.bytes());
  group.communicator()
      .all_gather({.shard = mine.view().reshape(Shape{mine.numel()}), .out = out}, compute)
      .wait_on(compute);
}

class SumNode final : public autograd::Node {
 public:
  std::string_view name() const override { return "sum over ranks"; }
  void backward(autograd::BackwardPass& pass) override { pass.give(0, pass.take_gradient(0)); }
};

class SpreadNode final : public autograd::Node {
 public:
  explicit SpreadNode(comm::World& group) : group_(group) {}
  std::string_view name() const override { return "spread over ranks"; }
  void backward(autograd::BackwardPass& pass) override {
    Tensor part = pass.take_gradient(0);
    if (!part.is_sole_owner()) part = part.clone();
    add_up(group_, part, [&] { pass.make_beside(); });
    pass.give(0, std::move(part));
  }
  bool waits_for_ranks() const override { return true; }

 private:
  comm::World& group_;
};

class TokensNode final : public autograd::Node {
 public:
  TokensNode(comm::World& group, std::vector<Runs> runs, int64_t least_bytes, bool gathers)
      : group_(group), runs_(std::move(runs)), least_bytes_(least_bytes), gathers_(gathers) {}
  std::string_view name() const override {
    return gathers_ ? "tokens of all ranks" : "sum over ranks of own tokens";
  }
  void backward(autograd::BackwardPass& pass) override {
    const Tensor gradient = pass.take_gradient(0);
    if (gathers_) {
      return pass.give(
          0, sum_of_tokens(group_, gradient, runs_, least_bytes_, [&] { pass.make_beside(); }));
    }
    const auto tokens =
        std::make_shared<TokensUnderWay>(group_, gradient, runs_, least_bytes_, false);
    autograd::RowsUnderWay rows;
    if (tokens->num_pieces() > 1) {
      rows = {.num_parts = tokens->num_pieces(),
              .wait = [tokens](int64_t piece) { tokens->wait(piece); }};
    }
    pass.give(0, tokens->wait(0), std::move(rows));
  }
  bool waits_for_ranks() const override { return gathers_; }
  bool can_remake(int) const override { return gathers_; }
  bool always_remakes(int) const override { return gathers_; }
  void begin_remake(int) override {
    if (!under_way_) begin(true);
  }
  Tensor remake(int) override {
    if (!under_way_) begin(false);
    Tensor tokens = under_way_->wait_for_all();
    under_way_.reset();
    return tokens;
  }

 private:
  void begin(bool is_beside) {
    under_way_.emplace(group_, saved()[0].restore(), runs_, least_bytes_, is_beside);
  }

  comm::World& group_;
  std::vector<Runs> runs_;
  int64_t least_bytes_;
  bool gathers_;
  std::optional<TokensUnderWay> under_way_;
};

// The backward pass takes this rank's columns of [..., whole].
class JoinNode final : public autograd::Node {
 public:
  explicit JoinNode(const TensorSlice::Piece& mine) : mine_(mine) {}
  std::string_view name() const override { return "join over ranks"; }
  void backward(autograd::BackwardPass& pass) override {
    const Tensor whole = pass.take_gradient(0);
    Shape shape = whole.shape();
    shape.set(shape.rank() - 1, mine_.count);
    Tensor part = Tensor::empty(shape, whole.dtype());
    kernels::copy(
        {.x = whole.view().narrow(shape.rank() - 1, mine_.begin, mine_.count), .y = part.view()},
        Context::current().compute());
    pass.give(0, std::move(part));
  }

 private:
  TensorSlice::Piece mine_;
};

class CommTensorRanks final : public nn::TensorRanks {
 public:
  CommTensorRanks(comm::World* group, const LeastPiece& least) : group_(group), least_(least) {}
  int rank() const override { return group_ == nullptr ? 0 : group_->rank(); }
  int size() const override { return group_ == nullptr ? 1 : group_->size(); }

  Tensor spread_exactly(const Tensor& x) override {
    if (group_ == nullptr || !autograd::needs_gradient(x)) return x;
    Tensor y = x.detach();
    const auto node = autograd::make_node<SpreadNode>(*group_);
    node->add_input(x);
    node->set_output(y);
    return y;
  }

  Tensor sum_exactly(const Tensor& part) override {
    if (group_ == nullptr) return part;
    Tensor y = part.is_contiguous() && part.is_sole_owner() ? part.detach() : part.clone();
    add_up(y);
    if (autograd::needs_gradient(part)) {
      const auto node = autograd::make_node<SumNode>();
      node->add_input(part);
      node->set_output(y);
    }
    return y;
  }

  Tensor enter_product(
      const Tensor& x,
      const std::function<void(const Tensor& all, InRows in_rows)>& product) override {
    if (group_ == nullptr || !shares_tokens()) {
      Tensor all = enter(x);
      product(all, {});
      return all;
    }
    const std::vector<Runs> runs = runs_of(x.dim(0), size() * x.dim(1));
    TokensUnderWay tokens(*group_, x, runs, least_.sequence_bytes, false);
    Tensor all = with_history(x, runs, true, tokens.wait(0));
    product(all, in_pieces(tokens.num_pieces(), [&](int64_t piece, const auto& make) {
              tokens.wait(piece);
              make();
            }));
    return all;
  }

  Tensor leave_product(const std::function<Tensor(InRows in_rows)>& product) override {
    if (group_ == nullptr) return product({});
    if (!shares_tokens()) {
      return product([this](const Tensor& y, const auto& make) { sum_in_rows(y, make); });
    }
    std::optional<TokenSums> sums;
    std::vector<Runs> runs;
    const Tensor part = product([&](const Tensor& y, const auto& make) {
      runs = runs_of(y.dim(0), y.dim(1));
      sums.emplace(*group_, y, runs, least_.sequence_bytes);
      in_pieces(sums->num_pieces(), [&](int64_t piece, const auto& make_piece) {
        make_piece();
        sums->start(piece, false);
      })(y, make);
    });
    return with_history(part, runs, false, sums->finish());
  }

  void add_up(const Tensor& sum) override {
    if (group_ != nullptr) parallel::add_up(*group_, sum);
  }

  std::shared_ptr<const autograd::LinearSlices> slices_of(const std::vector<int64_t>& sections,
                                                          bool of_inputs) override {
    return fixes_slices() ? make_linear_slices(*this, sections, of_inputs) : nullptr;
  }

  int64_t token_runs(int64_t B, int64_t T) const override {
    if (T % size() != 0) {
      throw ConfigError(str("zinc.tensor_sequence_parallel: ", size(),
                            " tensor ranks cannot share ", T,
                            " tokens; take a length that they divide, or leave the key out"));
    }
    if (B > 1 || least_.tokens == 0) return 1;
    int64_t runs = std::clamp<int64_t>(T / least_.tokens, 1, kMostPieces);
    while (T % (runs * size()) != 0) --runs;
    return runs;
  }

  Tensor gather_tokens(const Tensor& x) override {
    if (group_ == nullptr) return x;
    const std::vector<Runs> runs = runs_of(x.dim(0), size() * x.dim(1));
    return with_history(x, runs, true, all_tokens(*group_, x, runs, least_.sequence_bytes));
  }

  Tensor sum_tokens(const Tensor& part) override {
    if (group_ == nullptr) return part;
    const std::vector<Runs> runs = runs_of(part.dim(0), part.dim(1));
    return with_history(part, runs, false,
                        sum_of_tokens(*group_, part, runs, least_.sequence_bytes));
  }

  Tensor join(const Tensor& part, int64_t whole) override {
    if (group_ == nullptr) return part;
    const int64_t rows = part.view().rows();
    // The first rank has the most columns; all ranks send that many.
    const int64_t most = columns_of(whole, 0).count;
    const Tensor mine = Tensor::zeros(Shape{rows, most}, part.dtype());
    const Tensor all = Tensor::empty(Shape{size(), rows, most}, part.dtype());
    const StreamRef compute = Context::current().compute();
    const auto copy = [&](const ConstView& from, const View& to) {
      kernels::copy({.x = from, .y = to}, compute);
    };
    const Tensor dense = part.is_contiguous() ? part : part.clone();
    copy(dense.view().reshape(Shape{rows, part.dim(-1)}), mine.view().narrow(1, 0, part.dim(-1)));
    gather(mine, all);
    Shape shape = part.shape();
    shape.set(shape.rank() - 1, whole);
    Tensor joined = Tensor::empty(shape, part.dtype());
    const View matrix = joined.view().reshape(Shape{rows, whole});
    for (int rank = 0; rank < size(); ++rank) {
      const auto [begin, count] = columns_of(whole, rank);
      copy(all.view().narrow(0, rank, 1).reshape(Shape{rows, most}).narrow(1, 0, count),
           matrix.narrow(1, begin, count));
    }
    if (autograd::needs_gradient(part)) {
      const auto node = autograd::make_node<JoinNode>(columns_of(whole, rank()));
      node->add_input(part);
      node->set_output(joined);
    }
    return joined;
  }

  void combine_losses(const Tensor& lse, const Tensor& loss, const Tensor& labels) override {
    const autograd::NoGrad no_grad;
    const StreamRef compute = Context::current().compute();
    const int64_t parts = loss.numel(), rows = labels.numel();
    const Tensor first_loss = loss.narrow_view(0, 0, 1), first_lse = lse.narrow_view(0, 0, 1);
    if (parts > 1) {
      kernels::tree_sum({.in = loss.view().reshape(Shape{parts, 1}), .out = first_loss.view()},
                        compute);
    }
    add_up(first_loss);
    const Tensor all = Tensor::empty(Shape{size() * parts, rows}, lse.dtype());
    gather(lse, all);
    const Tensor total = autograd::logsumexp(all, {0});
    const Tensor is_target = autograd::compare(autograd::CompareOp::ne, labels,
                                               static_cast<double>(kernels::kIgnoredLabel));
    const Tensor of_targets = autograd::where(is_target, total, 0.0);
    kernels::copy({.x = of_targets.view(), .y = first_lse.view().reshape(Shape{rows})}, compute);
    const Tensor sum = autograd::sum(of_targets);
    kernels::accumulate({.x = sum.view().reshape(Shape{1}), .accumulator = first_loss.view()},
                        compute);
  }

 private:
  // Cuts rows into `count` pieces of equal size: visit(piece, function that computes the piece).
  template <class Visit>
  static InRows in_pieces(int64_t count, Visit visit) {
    return [count, visit](const Tensor& y, const std::function<void(int64_t, int64_t)>& make) {
      const int64_t rows = y.view().rows() / count;
      for (int64_t piece = 0; piece < count; ++piece) {
        visit(piece, [&] { make(piece * rows, rows); });
      }
    };
  }
  // The sum over ranks of a product's result, in place: rows that are done travel beside the next.
  void sum_in_rows(const Tensor& y, const std::function<void(int64_t, int64_t)>& make) {
    const int64_t rows = y.view().rows();
    const int64_t most = least_.sum_bytes == 0 ? 1 : y.view().bytes() / least_.sum_bytes;
    const int64_t pieces = std::max<int64_t>(1, std::min({most, rows, kMostPieces}));
    if (group_ == nullptr || pieces == 1) {
      make(0, rows);
      return add_up(y);
    }
    comm::Communicator& group = group_->communicator();
    const int64_t features = y.dim(-1), most_rows = (rows + pieces - 1) / pieces;
    // One workspace for all pieces: they travel one after the other.
    const Tensor workspace = Tensor::empty(
        Shape{group.workspace_bytes(comm::Collective::all_reduce,
                                    most_rows * features * size_of(y.dtype()), y.dtype())},
        DType::u8, Label::communication);
    std::vector<comm::Work> works;
    for (int64_t i = 0; i < pieces; ++i) {
      const int64_t begin = rows * i / pieces, count = rows * (i + 1) / pieces - begin;
      make(begin, count);
      if (is_recording(*group_, y)) continue;
      const View piece =
          y.view().reshape(Shape{y.numel()}).narrow(0, begin * features, count * features);
      const StreamRef stream = stream_beside_compute();
      const TraceSpan span = exchange_span(*group_, "sum", stream, 2 * piece.bytes());
      works.push_back(group.all_reduce({.inout = piece, .workspace = workspace.view()}, stream));
    }
    for (const comm::Work& work : works) work.wait_on(Context::current().compute());
  }

  std::vector<Runs> runs_of(int64_t B, int64_t T) const {
    const int64_t count = token_runs(B, T), length = T / (count * size());
    std::vector<Runs> runs(static_cast<size_t>(size()));
    for (int64_t i = 0; i < count * size(); ++i) {
      runs[static_cast<size_t>(i % size())].push_back({i * length, length});
    }
    return runs;
  }
  Tensor with_history(const Tensor& x, const std::vector<Runs>& runs, bool gathers, Tensor y) {
    if (!autograd::needs_gradient(x)) return y;
    const auto node =
        autograd::make_node<TokensNode>(*group_, runs, least_.sequence_bytes, gathers);
    node->add_input(x);
    if (gathers) node->save(x);
    node->set_output(y);
    return y;
  }
  void gather(const Tensor& mine, const Tensor& all) {
    if (group_ != nullptr) return gather_over(*group_, mine, all);
    kernels::copy({.x = mine.view(), .y = all.view()}, Context::current().compute());
  }
  TensorSlice::Piece columns_of(int64_t whole, int rank) const {
    return TensorSlice::of(Shape{whole}, 0, {whole}, rank, size()).pieces.front();
  }

  comm::World* group_;  // null: one rank
  LeastPiece least_;
};

class PartOfSlot final : public autograd::SavedSlot {
 public:
  // One of `part` and `kept` is empty.
  PartOfSlot(comm::World& group, Tensor part, std::unique_ptr<autograd::SavedSlot> kept,
             const Shape& shape)
      : group_(group), part_(std::move(part)), kept_(std::move(kept)), shape_(shape) {}

  Tensor restore() override {
    const Tensor part = kept_ != nullptr ? kept_->restore() : part_;
    const Tensor all = Tensor::empty(Shape{group_.size() * part.numel()}, part.dtype());
    gather_over(group_, part, all);
    return all.narrow_view(0, 0, shape_.numel()).reshape_view(shape_);
  }

 private:
  comm::World& group_;
  Tensor part_;
  std::unique_ptr<autograd::SavedSlot> kept_;
  Shape shape_;
};

class PartOfStore final : public autograd::SavedTensorStore {
 public:
  PartOfStore(comm::World& group, SavedTensorStore* inner) : group_(group), inner_(inner) {}

  std::unique_ptr<autograd::SavedSlot> save(const Tensor& tensor) override {
    const autograd::NoGrad no_grad;
    const Tensor whole = tensor.is_contiguous() ? tensor : tensor.clone();
    // The last ranks may have fewer elements, or none; all ranks keep the same number.
    const int64_t most = (whole.numel() + group_.size() - 1) / group_.size();
    const int64_t begin = std::min(group_.rank() * most, whole.numel());
    const int64_t count = std::min(most, whole.numel() - begin);
    const Shape shape{most};
    Tensor part =
        count == most ? Tensor::empty(shape, whole.dtype()) : Tensor::zeros(shape, whole.dtype());
    kernels::copy({.x = whole.view().reshape(Shape{whole.numel()}).narrow(0, begin, count),
                   .y = part.view().narrow(0, 0, count)},
                  Context::current().compute());
    std::unique_ptr<autograd::SavedSlot> kept;
    if (inner_ != nullptr) kept = inner_->save(std::exchange(part, Tensor()));
    return std::make_unique<PartOfSlot>(group_, std::move(part), std::move(kept), whole.shape());
  }

 private:
  comm::World& group_;
  SavedTensorStore* inner_;
};

}  // namespace

std::unique_ptr<autograd::SavedTensorStore> share_saved(comm::World& group,
                                                        autograd::SavedTensorStore* inner) {
  return std::make_unique<PartOfStore>(group, inner);
}

LeastPiece least_piece_on(const comm::World* group) {
  if (group == nullptr || !group->context().device().is_cuda()) return {};
  return {
      .sum_bytes = int64_t{4} << 20, .sequence_bytes = least_sequence_on(*group), .tokens = 8192};
}

std::unique_ptr<nn::TensorRanks> make_tensor_ranks(comm::World* group, const LeastPiece& least) {
  return std::make_unique<CommTensorRanks>(group, least);
}

void share_layers(nn::Module& model, nn::TensorRanks* ranks) {
  model.share_over(ranks);
  if (ranks == nullptr || ranks->size() == 1) return;
  const auto parameters = model.parameters();
  const bool is_sliced =
      std::any_of(parameters.begin(), parameters.end(),
                  [](const auto* parameter) { return parameter->slice().has_value(); });
  if (!is_sliced) {
    throw ConfigError(
        "zinc.mesh.tensor: the model has no layer that says how ranks slice it; give its layers a "
        "split (nn/tensor_ranks.h), or take zinc.mesh.tensor 1");
  }
}

void share_tokens(nn::Model& model, bool on) {
  auto* shares = nn::find_interface<nn::SharesTokens>(model);
  if (shares != nullptr) return shares->share_tokens(on);
  if (!on) return;
  throw ConfigError(str("zinc.tensor_sequence_parallel: tensor ranks cannot share the tokens of a ",
                        model.model_type(),
                        "; decoders can, or derive the model from zinc::nn::SharesTokens "
                        "(nn/tensor_ranks.h), or leave the key out"));
}

Tensor whole_of(comm::World& group, const TensorSlice& slice, const Tensor& here) {
  // The first rank has the most elements; all ranks send that many.
  const int64_t most = slice.at(0).shape().numel();
  const Tensor mine = Tensor::zeros(Shape{most}, here.dtype());
  const Tensor all = Tensor::empty(Shape{group.size(), most}, here.dtype());
  const StreamRef compute = Context::current().compute();
  kernels::copy(
      {.x = here.view().reshape(Shape{here.numel()}), .y = mine.view().narrow(0, 0, here.numel())},
      compute);
  gather_over(group, mine, all);
  const Tensor whole = Tensor::empty(slice.whole, here.dtype());
  for (int rank = 0; rank < group.size(); ++rank) {
    const TensorSlice other = slice.at(rank);
    const Shape shape = other.shape();
    const View values = all.view()
                            .narrow(0, rank, 1)
                            .reshape(Shape{most})
                            .narrow(0, 0, shape.numel())
                            .reshape(shape);
    other.for_each_piece([&](int64_t at, const TensorSlice::Piece& piece) {
      kernels::copy({.x = values.narrow(slice.dim, at, piece.count),
                     .y = whole.view().narrow(slice.dim, piece.begin, piece.count)},
                    compute);
    });
  }
  return whole;
}

Tensor part_of(const TensorSlice& slice, const Tensor& whole) {
  const Tensor part = Tensor::empty(slice.shape(), whole.dtype());
  slice.for_each_piece([&](int64_t at, const TensorSlice::Piece& piece) {
    kernels::copy({.x = whole.view().narrow(slice.dim, piece.begin, piece.count),
                   .y = part.view().narrow(slice.dim, at, piece.count)},
                  Context::current().compute());
  });
  return part;
}

}  // namespace zinc::parallel
