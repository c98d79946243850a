#include "autograd/saved_tensor_store.h"

#include <utility>

#include "autograd/remade.h"

namespace zinc::autograd {
namespace {

class KeptTensor final : public SavedSlot {
 public:
  explicit KeptTensor(Tensor tensor) : tensor_(std::move(tensor)), version_(tensor_.version()) {}
  Tensor restore() override {
    require(tensor_.version() == version_, "backward: a tensor of shape ", tensor_.shape(),
            " was filled or copied into after an op had saved it; clone() it before");
    return tensor_;
  }

 private:
  Tensor tensor_;
  int64_t version_;
};

}  // namespace

SavedTensor::SavedTensor(const Tensor& tensor) {
  const Mode& mode = Mode::current();
  SavedTensorStore* store = mode.store;
  if (store == nullptr) slot_ = remade_slot(tensor, mode.remakes);
  if (slot_ != nullptr) return;
  Tensor bare = tensor.detach();
  slot_ = store != nullptr ? store->save(bare) : std::make_unique<KeptTensor>(std::move(bare));
}

Tensor SavedTensor::restore() const {
  bug_check(slot_ != nullptr, "a saved tensor was restored after it had been released");
  return slot_->restore();
}

}  // namespace zinc::autograd
