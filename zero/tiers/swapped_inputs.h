// zero/tiers/swapped_inputs.h: saved inputs of one size in swap space, behind a few buffers in host
// memory.
//
// Note [Inputs on NVMe]
// Every input passes through a buffer, from which it is written while the forward pass goes on. In
// backward the next inputs in the order of their use, as many as there are buffers, are in buffers
// or on their way there. The order is foreseen from that of saving: of one micro-batch the last
// input comes first; of micro-batches side by side (zero/run/vertical_passes.h) the last stage
// comes first, and in it the micro-batches as they come forward. Inputs that are foreseen to be
// used before their buffers are needed again stay there and are never written: with one micro-batch
// at a time the last `num_buffers`. Where a pass is not as foreseen, a buffer is written when
// another input needs it, and an input is read when it is needed: that takes longer, and nothing
// else. What moves depends on the order of calls alone, never on timing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/context.h"
#include "core/stream.h"
#include "zero/tiers/swap_extents.h"

namespace zinc::zero {

struct SwappedInputsOptions {
  SwapSettings swap;
  int64_t bytes = 0;         // of an input
  int64_t count = 0;         // inputs that wait at once, at most
  int64_t side_by_side = 1;  // micro-batches whose inputs wait together
  int64_t num_buffers = 1;
};

// One thread: that which issues work.
class SwappedInputs : public std::enable_shared_from_this<SwappedInputs> {
  struct Buffer;

 public:
  // One saved input; destruction forgets it. May outlive close().
  class Input {
   public:
    ~Input() { owner_->forget(*this); }
    Input(const Input&) = delete;
    Input& operator=(const Input&) = delete;

    // Where work that is issued to the copy-out stream puts the input, right after take().
    void* data() const;
    // The input has come, and `arrived` says when.
    void filled(Event arrived);
    // The input's bytes in host memory, until the next call for another input; waits for the disk.
    // Throws IoError; InvalidArgument after close().
    const void* bring() { return owner_->bring(*this); }
    // What was issued to read them there.
    void used(Event until);

   private:
    friend class SwappedInputs;
    Input(std::shared_ptr<SwappedInputs> owner, size_t extent, uint64_t micro_batch)
        : owner_(std::move(owner)), extent_(extent), micro_batch_(micro_batch) {}

    std::shared_ptr<SwappedInputs> owner_;
    const size_t extent_;
    const uint64_t micro_batch_;
    Buffer* buffer_ = nullptr;  // that has its bytes, or into which they are read
    bool stays_ = false;        // foreseen to be used before its buffer is needed
    bool is_written_ = false;   // or is being written
  };

  // Takes swap space and buffers. Throws IoError.
  SwappedInputs(Context& context, const SwappedInputsOptions& options);
  ~SwappedInputs() { close(); }
  SwappedInputs(const SwappedInputs&) = delete;
  SwappedInputs& operator=(const SwappedInputs&) = delete;

  int64_t bytes() const { return bytes_; }
  bool has_room() const { return !free_extents_.empty(); }
  bool is_unused() const { return waiting_.empty(); }

  // Room for an input of the present micro-batch (RandomState::micro_batch). Waits for the disk
  // where buffers are full. Throws IoError, also of earlier writes.
  std::unique_ptr<Input> take();
  // Starts to write what has come and should leave, but for the `except` inputs saved last: their
  // copies are waited for. Throws IoError.
  void write_behind(size_t except);
  // Gives back space and buffers; waits for what is under way. Nothing can be brought any more.
  void close();

  SwapTraffic traffic() const { return extents_ != nullptr ? extents_->traffic() : closed_with_; }

 private:
  struct Buffer {
    Block memory;
    Input* holds = nullptr;
    Event filled;                             // what the copy-out stream puts here is here
    Event left;                               // what the copy-in stream takes from here is taken
    std::optional<size_t> extent{};           // of the transfer
    bool is_read = false;                     // the transfer; else a write
    offload::SwapSpace::Transfer transfer{};  // goes first
  };

  const void* bring(Input& input);
  void forget(Input& input) noexcept;
  Buffer* free_buffer();  // null: there is none
  bool stays(size_t number) const;
  // By their use in backward, `first` before all others.
  std::vector<Input*> by_use(Input& first) const;
  // Waits for the buffer's transfer.
  void finish(Buffer& buffer);
  void start_write(Buffer& buffer);
  // Makes the buffer free. What it holds is in swap space then.
  void evict(Buffer& buffer);
  void start_read(Input& input, Buffer& buffer);
  void hold(Input& input, Buffer& buffer);

  Context& context_;
  const int64_t bytes_;
  const int64_t count_;
  const int64_t side_by_side_;
  std::unique_ptr<SwapExtents> extents_;  // null once closed
  SwapTraffic closed_with_;
  std::vector<size_t> free_extents_;  // the next one last
  std::vector<Input*> waiting_;       // in the order of saving
  std::vector<Input*> leaving_;       // of those, filled and not yet written though they should be
  std::vector<Buffer> buffers_;       // their number never changes until they are closed
};

}  // namespace zinc::zero
