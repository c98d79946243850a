#include "offload/swapped_inputs.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/error.h"

namespace zinc::offload {

void* SwappedInputs::Input::data() const { return buffer_->memory.data(); }

void SwappedInputs::Input::filled(Event arrived) {
  buffer_->filled = std::move(arrived);
  if (!stays_) owner_->leaving_.push_back(this);
}

void SwappedInputs::Input::used(Event until) { buffer_->left = std::move(until); }

SwappedInputs::SwappedInputs(Context& context, const SwappedInputsOptions& options)
    : context_(context),
      bytes_(options.bytes),
      count_(options.count),
      side_by_side_(options.side_by_side),
      extents_(std::make_unique<SwapExtents>(
          std::vector<int64_t>(static_cast<size_t>(options.count), options.bytes),
          Label::activations, context, options.swap)),
      buffers_(static_cast<size_t>(std::min(options.num_buffers, options.count))) {
  for (int64_t i = count_; i > 0; --i) free_extents_.push_back(static_cast<size_t>(i - 1));
  for (Buffer& buffer : buffers_) {
    buffer.memory = context.allocate(whole_pages(bytes_), Label::staging, Tier::pinned_host);
  }
  context.compute()->synchronize();  // before the disk touches the memory
}

void SwappedInputs::close() {
  if (extents_ == nullptr) return;
  for (Input* input : waiting_) input->buffer_ = nullptr;
  leaving_.clear();
  for (const Buffer& buffer : buffers_) {
    // Copies ran on other streams than the compute stream, which owns the memory.
    context_.compute()->wait(buffer.filled);
    context_.compute()->wait(buffer.left);
  }
  buffers_.clear();
  closed_with_ = extents_->traffic();
  extents_.reset();
}

std::unique_ptr<SwappedInputs::Input> SwappedInputs::take(int64_t bytes) {
  bug_check(extents_ != nullptr && has_room() && bytes <= bytes_, "no room for a saved input of ",
            bytes, " bytes");
  const auto oldest = [this](auto&& wanted) {
    const auto found = std::find_if(waiting_.begin(), waiting_.end(), wanted);
    return found == waiting_.end() ? nullptr : (*found)->buffer_;
  };
  Buffer* buffer = free_buffer();
  if (buffer == nullptr) {
    buffer = oldest([](const Input* i) { return i->buffer_ != nullptr && !i->stays_; });
  }
  if (buffer == nullptr) buffer = oldest([](const Input* i) { return i->buffer_ != nullptr; });
  evict(*buffer);
  const size_t extent = free_extents_.back();
  for (Buffer& other : buffers_) {  // one transfer of an extent at a time
    if (other.extent == extent) finish(other);
  }
  context_.stream(StreamRole::copy_out)->wait(buffer->left);
  std::unique_ptr<Input> input(
      new Input(shared_from_this(), extent, bytes, context_.random().micro_batch()));
  free_extents_.pop_back();
  input->stays_ = stays(waiting_.size());
  waiting_.push_back(input.get());
  hold(*input, *buffer);
  return input;
}

SwappedInputs::Buffer* SwappedInputs::free_buffer() {
  const auto free = std::find_if(buffers_.begin(), buffers_.end(),
                                 [](const Buffer& buffer) { return buffer.holds == nullptr; });
  return free == buffers_.end() ? nullptr : &*free;
}

// `number`: how many inputs were saved before this one. With micro-batches side by side, the inputs
// that the last stage uses first stay; two buffers are left for the transfers of the others.
bool SwappedInputs::stays(size_t number) const {
  const auto saved = static_cast<int64_t>(number);
  const auto most = static_cast<int64_t>(buffers_.size());
  const int64_t stages_after = (count_ - 1 - saved) / side_by_side_;
  const int64_t used_before = stages_after * side_by_side_ + saved % side_by_side_;
  const bool one_by_one = side_by_side_ == 1 || count_ <= most;
  return used_before < (one_by_one ? most : most - 2);
}

std::vector<SwappedInputs::Input*> SwappedInputs::by_use(Input& first) const {
  // A run: consecutive inputs of one micro-batch. A stage: consecutive runs of different
  // micro-batches.
  std::vector<std::vector<Input*>> stages;
  std::set<uint64_t> seen;  // in the last stage
  for (size_t begin = 0, end = 0; begin < waiting_.size(); begin = end) {
    const uint64_t micro_batch = waiting_[begin]->micro_batch_;
    while (end < waiting_.size() && waiting_[end]->micro_batch_ == micro_batch) ++end;
    if (stages.empty() || !seen.insert(micro_batch).second) {
      stages.emplace_back();
      seen = {micro_batch};
    }
    for (size_t i = end; i > begin; --i) stages.back().push_back(waiting_[i - 1]);
  }
  std::vector<Input*> order{&first};
  for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage) {
    for (Input* input : *stage) {
      if (input != &first) order.push_back(input);
    }
  }
  return order;
}

void SwappedInputs::write_behind(size_t except) {
  while (leaving_.size() > except) start_write(*leaving_.front()->buffer_);
}

const void* SwappedInputs::bring(Input& input) {
  require(extents_ != nullptr, "backward: the engine that saved the inputs on NVMe is gone");
  std::vector<Input*> soon = by_use(input);
  soon.resize(std::min(soon.size(), buffers_.size()));
  for (Input* next : soon) {
    if (next->buffer_ != nullptr) continue;
    Buffer* other = free_buffer();
    if (other == nullptr) {
      other = &*std::find_if(buffers_.begin(), buffers_.end(), [&](const Buffer& buffer) {
        return std::find(soon.begin(), soon.end(), buffer.holds) == soon.end();
      });
    }
    start_read(*next, *other);
  }
  if (input.buffer_->is_read) finish(*input.buffer_);
  return input.buffer_->memory.data();
}

void SwappedInputs::forget(Input& input) noexcept {
  std::erase(waiting_, &input);
  std::erase(leaving_, &input);
  if (input.buffer_ != nullptr) input.buffer_->holds = nullptr;
  free_extents_.push_back(input.extent_);
}

void SwappedInputs::finish(Buffer& buffer) {
  try {
    buffer.transfer.wait();
  } catch (...) {
    if (!buffer.transfer.is_over()) throw;
    buffer.extent.reset();
    const bool was_read = std::exchange(buffer.is_read, false);
    Input* const input = buffer.holds;
    if (was_read && input == nullptr) return;  // the pass that wanted it was abandoned
    if (was_read) {
      buffer.holds = nullptr;
      input->buffer_ = nullptr;
    } else if (input != nullptr) {
      input->is_written_ = false;
    }
    throw;
  }
  buffer.extent.reset();
  buffer.is_read = false;
}

void SwappedInputs::start_write(Buffer& buffer) {
  Input& input = *buffer.holds;
  buffer.filled.wait();
  buffer.transfer = extents_->start_write(input.extent_, buffer.memory, input.bytes_,
                                          str("saved input ", input.extent_));
  buffer.extent = input.extent_;
  input.is_written_ = true;
  std::erase(leaving_, &input);
}

void SwappedInputs::evict(Buffer& buffer) {
  if (buffer.holds != nullptr && !buffer.holds->is_written_) start_write(buffer);
  finish(buffer);
  if (buffer.holds == nullptr) return;
  buffer.holds->buffer_ = nullptr;
  buffer.holds = nullptr;
}

void SwappedInputs::start_read(Input& input, Buffer& buffer) {
  evict(buffer);
  buffer.filled.wait();
  buffer.left.wait();
  buffer.transfer = extents_->start_read(input.extent_, buffer.memory, input.bytes_,
                                         str("saved input ", input.extent_));
  buffer.extent = input.extent_;
  buffer.is_read = true;
  hold(input, buffer);
}

void SwappedInputs::hold(Input& input, Buffer& buffer) {
  input.buffer_ = &buffer;
  buffer.holds = &input;
}

}  // namespace zinc::offload
