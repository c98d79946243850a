#include "zero/update/device_verdict.h"

#include <cstddef>
#include <cstring>
#include <numeric>
#include <span>

#include "comm/gather_values.h"
#include "core/error.h"
#include "core/transfer.h"
#include "zero/group/gradient_policy.h"

namespace zinc::zero {
namespace {

constexpr int64_t kWord = 8;

// `numel` elements of a block, from `first_byte` on.
View part(const Block& block, Device device, int64_t first_byte, DType dtype, int64_t numel,
          Tier tier = Tier::device) {
  const View bytes(block.data(), DType::u8, Shape{block.bytes()}, device, tier);
  return {bytes.narrow(0, first_byte, numel * size_of(dtype)).data(), dtype, Shape{numel}, device,
          tier};
}

}  // namespace

DeviceVerdict::DeviceVerdict(const EngineConfig& config, GradientNorm& norm,
                             const optim::LossScaler& scaler, comm::World& world)
    : context_(world.context()),
      world_(world),
      norm_(norm),
      by_token_(config.gradient.loss_reduction == LossReduction::tokens),
      check_overflow_(config.precision.check_overflow),
      stop_at_nonfinite_loss_(!config.precision.allow_nonfinite_loss),
      clipping_(config.gradient.clipping),
      wire_divisor_(gradient_divisor(config, world.size())),
      rules_(scaler.rules()),
      scale_(scaler.state()) {
  upload_tree();
  leaves_ = take(num_leaves_ * kWord);
  state_ = take(sizeof(scale_));
  restore(scaler);
}

void DeviceVerdict::restore(const optim::LossScaler& scaler) {
  scale_ = scaler.state();
  upload(&scale_, part(state_, context_.device(), 0, DType::u8, sizeof(scale_)),
         context_.compute());
}

Block DeviceVerdict::take(int64_t bytes, Tier tier) const {
  return context_.allocate(bytes, Label::workspace, tier);
}

void DeviceVerdict::upload_tree() {
  const std::vector<ChunkNodes::Leaf>& leaves = norm_.nodes().leaves();
  std::vector<int64_t> tree, merges, parameters;
  for (size_t begin = 0; begin < leaves.size();) {
    std::vector<kernels::ChunkSubtree> nodes;
    size_t end = begin;
    for (; end < leaves.size() && leaves[end].node.parameter == leaves[begin].node.parameter;
         ++end) {
      nodes.push_back(leaves[end].node.subtree);
      tree.push_back(leaves[end].rank * norm_.nodes().longest() +
                     static_cast<int64_t>(leaves[end].place));
    }
    const auto first = static_cast<int64_t>(begin);
    parameters.insert(parameters.end(), {first, static_cast<int64_t>(merges.size() / 2)});
    for (const kernels::SubtreeMerge& merge : kernels::chunk_subtree_merges(nodes)) {
      merges.insert(merges.end(), {first + merge.left, first + merge.right});
    }
    begin = end;
  }
  num_leaves_ = static_cast<int64_t>(leaves.size());
  num_merges_ = static_cast<int64_t>(merges.size() / 2);
  num_parameters_ = static_cast<int64_t>(parameters.size() / 2);
  parameters.insert(parameters.end(), {num_leaves_, num_merges_});
  tree.insert(tree.end(), merges.begin(), merges.end());
  tree.insert(tree.end(), parameters.begin(), parameters.end());
  const auto words = static_cast<int64_t>(tree.size());
  tree_ = take(words * kWord);
  upload(tree.data(), part(tree_, context_.device(), 0, DType::i64, words), context_.compute());
}

void DeviceVerdict::add(const Tensor& sum, int64_t num_targets) {
  batches_.push_back({sum.detach().clone(), num_targets});
}

double DeviceVerdict::count() const {
  const auto batches = static_cast<int64_t>(batches_.size());
  if (!by_token_) return static_cast<double>(batches * num_ranks());
  double own = 0.0;
  for (const MicroBatch& batch : batches_) own += static_cast<double>(batch.num_targets);
  const std::vector<double> all = comm::gather_values(world_, {&own, 1});
  return std::accumulate(all.begin(), all.end(), 0.0);
}

// A target count is one word. Two f32 losses share a word.
int64_t DeviceVerdict::num_headers() const { return num_placed_ + (num_placed_ + 1) / 2; }

bool DeviceVerdict::place() {
  const auto batches = static_cast<int64_t>(batches_.size());
  if (batches == num_placed_) return false;
  num_placed_ = batches;
  const int64_t bytes = words() * kWord;
  const int64_t out_bytes =
      static_cast<int64_t>(sizeof(kernels::StepVerdict)) + num_ranks() * num_headers() * kWord;
  own_ = take(bytes);
  if (num_ranks() > 1) gathered_ = take(bytes * num_ranks());
  out_ = take(out_bytes);
  host_ = take(out_bytes, Tier::pinned_host);
  return true;
}

bool DeviceVerdict::bring() {
  const bool moved = place();
  const StreamRef stream = context_.compute();
  std::vector<int64_t> targets;
  for (const MicroBatch& batch : batches_) targets.push_back(batch.num_targets);
  upload(targets.data(), part(own_, context_.device(), 0, DType::i64, num_placed_), stream);
  const View losses = part(own_, context_.device(), num_placed_ * kWord, DType::f32, num_placed_);
  for (size_t i = 0; i < batches_.size(); ++i) {
    transfer(batches_[i].sum.view().reshape(Shape{1}), losses.narrow(0, static_cast<int64_t>(i), 1),
             stream);
  }
  return moved;
}

void DeviceVerdict::measure(const std::vector<ConstView>& gradients) {
  norm_.queue(gradients,
              part(own_, context_.device(), num_headers() * kWord, DType::f64, norm_.num_own()));
}

void DeviceVerdict::gather() {
  if (num_ranks() == 1) return;
  const StreamRef stream = context_.compute();
  const Device device = context_.device();
  world_.communicator()
      .all_gather({.shard = part(own_, device, 0, DType::f64, words()),
                   .out = part(gathered_, device, 0, DType::f64, words() * num_ranks())},
                  stream)
      .wait_on(stream);
}

void DeviceVerdict::decide() {
  const Device device = context_.device();
  int64_t at = 0;
  const auto of_tree = [&](int64_t numel) {
    const View view = part(tree_, device, at * kWord, DType::i64, numel);
    at += numel;
    return view;
  };
  kernels::decide_step(
      {.gathered =
           part(num_ranks() > 1 ? gathered_ : own_, device, 0, DType::f64, words() * num_ranks()),
       .words = words(),
       .num_headers = num_headers(),
       .num_batches = num_placed_,
       .longest = norm_.nodes().longest(),
       .sources = of_tree(num_leaves_),
       .merges = of_tree(2 * num_merges_).reshape(Shape{num_merges_, 2}),
       .parameters = of_tree(2 * (num_parameters_ + 1)).reshape(Shape{num_parameters_ + 1, 2}),
       .by_token = by_token_,
       .check_overflow = check_overflow_,
       .stop_at_nonfinite_loss = stop_at_nonfinite_loss_,
       .clipping = clipping_,
       .wire_divisor = wire_divisor_,
       .rules = rules_,
       .leaves = part(leaves_, device, 0, DType::f64, num_leaves_),
       .scale = part(state_, device, 0, DType::u8, state_.bytes()),
       .out = part(out_, device, 0, DType::u8, out_.bytes())},
      context_.compute());
}

void DeviceVerdict::send() {
  const Device device = context_.device();
  // A plan counts copies to the host as offload traffic, which this copy is not. On a meta device
  // read() makes up the result.
  if (device.meta) return;
  transfer(part(out_, device, 0, DType::u8, out_.bytes()),
           part(host_, device, 0, DType::u8, host_.bytes(), Tier::pinned_host), context_.compute());
}

ConstView DeviceVerdict::factor() const {
  return part(out_, context_.device(), offsetof(kernels::StepVerdict, factor), DType::f32, 1);
}
ConstView DeviceVerdict::skip() const {
  return part(out_, context_.device(), offsetof(kernels::StepVerdict, skip), DType::i32, 1);
}

DeviceVerdict::Result DeviceVerdict::read(const LossTotals& totals) {
  Result result;
  std::vector<int64_t> targets;
  std::vector<float> sums;
  const auto batches = static_cast<size_t>(num_placed_);
  context_.compute()->synchronize();
  if (context_.device().meta) {
    result.verdict.sum_of_squares = 1.0;
    for (int rank = 0; rank < num_ranks(); ++rank) {
      for (const MicroBatch& batch : batches_) targets.push_back(batch.num_targets);
    }
    sums.assign(targets.size(), 1.0f);
    const int64_t all = std::accumulate(targets.begin(), targets.end(), int64_t{0});
    result.verdict.count = static_cast<double>(by_token_ ? all : std::ssize(targets));
    kernels::advance_loss_scale(rules_, false, scale_);
    result.verdict.scale = scale_;
  } else {
    const auto* bytes = static_cast<const std::byte*>(host_.data());
    std::memcpy(&result.verdict, bytes, sizeof(result.verdict));
    scale_ = result.verdict.scale;
    const auto header = static_cast<size_t>(num_headers() * kWord);
    targets.resize(batches * static_cast<size_t>(num_ranks()));
    sums.resize(targets.size());
    for (size_t rank = 0; rank < static_cast<size_t>(num_ranks()); ++rank) {
      const std::byte* from = bytes + sizeof(result.verdict) + rank * header;
      std::memcpy(targets.data() + rank * batches, from, batches * sizeof(int64_t));
      std::memcpy(sums.data() + rank * batches, from + batches * sizeof(int64_t),
                  batches * sizeof(float));
    }
  }
  std::vector<double> by_rank;
  for (size_t rank = 0; rank < static_cast<size_t>(num_ranks()); ++rank) {
    int64_t all = 0;
    for (size_t i = rank * batches; i < (rank + 1) * batches; ++i) {
      by_rank.push_back(totals.term(double{sums[i]}, targets[i]));
      all += targets[i];
    }
    by_rank.push_back(static_cast<double>(all));
  }
  result.loss = totals.combine(by_rank, batches);
  batches_.clear();
  return result;
}

std::unique_ptr<DeviceVerdict> make_device_verdict(const EngineConfig& config, bool clients,
                                                   GradientNorm& norm,
                                                   const optim::LossScaler& scaler,
                                                   comm::World& world) {
  const bool on_device = world.context().device().is_cuda() &&
                         config.zero.offload_optimizer.device == OffloadDevice::none &&
                         config.zero.offload_param.device == OffloadDevice::none;
  const bool in_order = world.size() == 1 || world.communicator().follows_streams();
  if (clients || !on_device || !in_order) return nullptr;
  return std::make_unique<DeviceVerdict>(config, norm, scaler, world);
}

}  // namespace zinc::zero
