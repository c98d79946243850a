#include "autograd/recompute.h"

#include <memory>
#include <optional>
#include <utility>

#include "autograd/backward.h"
#include "autograd/loss_scope.h"
#include "autograd/mode.h"
#include "autograd/remade.h"
#include "autograd/saved_tensor_store.h"

namespace zinc::autograd {
namespace {

// Drops whatever is queued.
class DiscardStream final : public Stream {
 public:
  DiscardStream() : Stream(StreamKind::worker, "discard", 0) {}
  void enqueue(const char*, Task) override {}
  Event record() override { return {}; }
  void wait(const Event&) override {}
  void synchronize() override {}
};

bool is_same_view(const Tensor& a, const Tensor& b) {
  return a.storage_id() == b.storage_id() && a.view().data() == b.view().data() &&
         a.dtype() == b.dtype() && a.shape() == b.shape() &&
         a.view().strides() == b.view().strides();
}

struct NumRecomputed {
  int64_t calls = 0;
};

// One call of recompute(): the store under which fn runs first, and what runs it again. Lives as
// long as a slot of the first run does.
class Replay final : public SavedTensorStore, public std::enable_shared_from_this<Replay> {
 public:
  Replay(TensorFunction fn, const std::vector<Tensor>& inputs)
      : fn_(std::move(fn)),
        snapshot_(Context::current().random().snapshot()),
        expected_loss_gradient_(Mode::current().expected_loss_gradient),
        loss_options_(LossScope::current()) {
    std::optional<SavedTensorScope> scope;
    const Mode& mode = Mode::current();
    if (mode.store == nullptr && mode.recompute_store != nullptr) {
      scope.emplace(*mode.recompute_store);
    }
    // An input that is made again would need the replay of the call that gave it, which would need
    // that of the call before: all of them would be here at once.
    const RemakeScope keeps(false);
    for (const Tensor& input : inputs) {
      inputs_.push_back({.saved = input.defined() ? std::make_shared<SavedTensor>(input) : nullptr,
                         .requires_grad = input.requires_grad()});
    }
  }

  std::vector<Tensor> run_first(const std::vector<Tensor>& inputs) {
    first_inputs_ = &inputs;
    const SavedTensorScope scope(*this);
    std::vector<Tensor> results = fn_(inputs);
    first_inputs_ = nullptr;
    return results;
  }

  // Called in the first run: keeps only shape and dtype of the tensor.
  std::unique_ptr<SavedSlot> save(const Tensor& tensor) override;

  Tensor restore(size_t index) {
    if (!has_run_) run_again();
    return saves_[index].tensor;
  }
  bool has_run() const { return has_run_; }
  void forget(size_t index) {
    saves_[index].is_wanted = false;
    saves_[index].tensor = {};
  }

 private:
  struct Input {
    std::shared_ptr<SavedTensor> saved;  // null for an undefined tensor
    bool requires_grad = false;
  };
  struct Save {
    Shape shape;
    DType dtype = DType::f32;
    bool is_input = false;  // served by the saved input itself
    bool is_wanted = false;
    Tensor tensor{};  // after the replay, until the node that saved it is done
  };
  class Collector;

  void run_again();
  size_t count_needed_saves() const {
    size_t count = saves_.size();
    while (count > 0 && !saves_[count - 1].is_wanted) --count;
    return count;
  }

  TensorFunction fn_;
  RandomState::Snapshot snapshot_;
  LossGradient expected_loss_gradient_;
  LossOptions loss_options_;
  std::vector<Input> inputs_;
  const std::vector<Tensor>* first_inputs_ = nullptr;
  std::vector<Save> saves_;  // saves of the first run, in order
  bool has_run_ = false;
};

class DroppedTensor final : public SavedSlot {
 public:
  DroppedTensor(std::shared_ptr<Replay> replay, size_t index)
      : replay_(std::move(replay)), index_(index) {}
  ~DroppedTensor() override { replay_->forget(index_); }
  Tensor restore() override { return replay_->restore(index_); }
  bool is_here() const override { return replay_->has_run(); }

 private:
  std::shared_ptr<Replay> replay_;
  size_t index_;
};

class SavedInput final : public SavedSlot {
 public:
  explicit SavedInput(std::shared_ptr<SavedTensor> saved) : saved_(std::move(saved)) {}
  Tensor restore() override { return saved_->restore(); }

 private:
  std::shared_ptr<SavedTensor> saved_;
};

// The slot of a node in the replay's graph, which no backward pass uses.
class NothingSaved final : public SavedSlot {
 public:
  Tensor restore() override {
    throw InvalidArgument(
        "recompute: backward was called inside the function that is being recomputed");
  }
};

std::unique_ptr<SavedSlot> Replay::save(const Tensor& tensor) {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Tensor& input = (*first_inputs_)[i];
    if (!input.defined() || !is_same_view(tensor, input)) continue;
    saves_.push_back({.shape = tensor.shape(), .dtype = tensor.dtype(), .is_input = true});
    return std::make_unique<SavedInput>(inputs_[i].saved);
  }
  saves_.push_back({.shape = tensor.shape(), .dtype = tensor.dtype(), .is_wanted = true});
  return std::make_unique<DroppedTensor>(shared_from_this(), saves_.size() - 1);
}

// The store of the second run: hands the tensors that are saved to the nodes of the first run.
class Replay::Collector final : public SavedTensorStore {
 public:
  explicit Collector(Replay& replay)
      : replay_(replay), needed_(replay.count_needed_saves()), mode_(Mode::current()) {}

  std::unique_ptr<SavedSlot> save(const Tensor& tensor) override {
    require_same(next_ < replay_.saves_.size(), &tensor);
    Save& save = replay_.saves_[next_++];
    require_same(save.shape == tensor.shape() && save.dtype == tensor.dtype(), &tensor);
    if (save.is_wanted) save.tensor = tensor;
    if (next_ == needed_) mode_.stream = &discard_;
    return std::make_unique<NothingSaved>();
  }
  void require_complete() const { require_same(next_ == replay_.saves_.size(), nullptr); }

 private:
  void require_same(bool same, const Tensor* got) const {
    if (same) return;
    const bool has_next = next_ < replay_.saves_.size();
    throw InvalidArgument(
        str("recompute: the function did other work than the first time: save ", next_, " of ",
            replay_.saves_.size(),
            has_next ? str(" was ", replay_.saves_[next_].dtype, replay_.saves_[next_].shape)
                     : std::string(),
            ", now it is ", got != nullptr ? str(got->dtype(), got->shape()) : "nothing",
            "; it must do the same on the same inputs"));
  }

  Replay& replay_;
  const size_t needed_;
  Mode& mode_;
  size_t next_ = 0;
  DiscardStream discard_;
};

// Puts the random position of the first run in place, and the present one back.
class RandomScope {
 public:
  explicit RandomScope(const RandomState::Snapshot& snapshot)
      : state_(Context::current().random()), previous_(state_.snapshot()) {
    state_.restore(snapshot);
  }
  ~RandomScope() { state_.restore(previous_); }
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;

 private:
  RandomState& state_;
  RandomState::Snapshot previous_;
};

void Replay::run_again() {
  {
    const EnableGrad grad;
    const ExpectedLossGradient expected(expected_loss_gradient_);
    const LossScope loss(loss_options_);
    const RandomScope random(snapshot_);
    const detail::ModeScope<Stream*> stream(&Mode::stream, nullptr);
    std::vector<Tensor> inputs;
    for (const Input& input : inputs_) {
      inputs.push_back(input.saved != nullptr ? input.saved->restore() : Tensor());
      if (input.requires_grad) requires_grad_(inputs.back());
    }
    Collector collector(*this);
    const SavedTensorScope scope(collector);
    try {
      fn_(inputs);
      collector.require_complete();
    } catch (...) {
      for (Save& save : saves_) save.tensor = {};
      throw;
    }
  }
  has_run_ = true;
  inputs_.clear();
  fn_ = nullptr;
}

}  // namespace

int64_t num_recomputed() { return Context::current().slot<NumRecomputed>().calls; }

std::vector<Tensor> recompute(TensorFunction fn, std::vector<Tensor> inputs) {
  if (!gradients_enabled()) return fn(inputs);
  ++Context::current().slot<NumRecomputed>().calls;
  return std::make_shared<Replay>(std::move(fn), inputs)->run_first(inputs);
}

Tensor recompute(std::function<Tensor(const Tensor&)> fn, const Tensor& input) {
  std::vector<Tensor> results =
      recompute([fn = std::move(fn)](
                    std::span<const Tensor> inputs) { return std::vector<Tensor>{fn(inputs[0])}; },
                {input});
  return std::move(results.front());
}

}  // namespace zinc::autograd
