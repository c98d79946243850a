// offload/swapped_inputs.h: keeps saved inputs in swap space, with a few buffers in host
// memory. Every place is as large as the largest input, so an input of any size takes any place.
//
// Note [Inputs on NVMe]
// Forward: every input is copied to a buffer, and written from there while the forward pass goes
// on. Backward: the next inputs in the order of their use, as many as there are buffers, are in
// buffers or being read into them.
//
// The order of use is predicted from the order of saving. Within one micro-batch, the input saved
// last is used first. Where a model's stages take micro-batches side by side, the last stage is
// used first, and its micro-batches in their forward order.
//
// An input stays in its buffer, and is never written, if the prediction says that its use comes
// before the buffer is needed again. With one micro-batch at a time, these are the last
// `num_buffers` inputs.
//
// If a pass differs from the prediction, a buffer is written when another input needs it, and an
// input is read when it is asked for. That is slower, and nothing else changes. The bytes that move
// depend on the order of calls alone, never on timing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/context.h"
#include "core/stream.h"
#include "offload/swap_extents.h"

namespace zinc::offload {

struct SwappedInputsOptions {
  SwapSettings swap;
  int64_t bytes = 0;         // of the largest input
  int64_t count = 0;         // inputs that are kept at once, at most
  int64_t side_by_side = 1;  // micro-batches whose inputs are kept at once
  int64_t num_buffers = 1;
};

// Called from the issuing thread only.
class SwappedInputs : public std::enable_shared_from_this<SwappedInputs> {
  struct Buffer;

 public:
  // One saved input. Its destructor frees its space. An Input may outlive close().
  class Input {
   public:
    ~Input() { owner_->forget(*this); }
    Input(const Input&) = delete;
    Input& operator=(const Input&) = delete;

    // The buffer that the copy-out stream fills. Valid right after take().
    void* data() const;
    // Call once the copy into data() is issued. `arrived`: the event behind that copy.
    void filled(Event arrived);
    // The input's bytes in host memory, valid until the next call for another input. Waits for the
    // disk. Throws IoError, and InvalidArgument after close().
    const void* bring() { return owner_->bring(*this); }
    // Call once the reads of the bytes from bring() are issued. `until`: the event behind those
    // reads.
    void used(Event until);

   private:
    friend class SwappedInputs;
    Input(std::shared_ptr<SwappedInputs> owner, size_t extent, int64_t bytes, uint64_t micro_batch)
        : owner_(std::move(owner)), extent_(extent), bytes_(bytes), micro_batch_(micro_batch) {}

    std::shared_ptr<SwappedInputs> owner_;
    const size_t extent_;
    const int64_t bytes_;
    const uint64_t micro_batch_;
    Buffer* buffer_ = nullptr;  // holds the input's bytes, or receives them from the disk
    bool stays_ = false;        // predicted: used before its buffer is needed again
    bool is_written_ = false;   // the write has ended or is under way
  };

  // Takes swap space and buffers. Waits for the compute stream. Throws IoError.
  SwappedInputs(Context& context, const SwappedInputsOptions& options);
  ~SwappedInputs() { close(); }
  SwappedInputs(const SwappedInputs&) = delete;
  SwappedInputs& operator=(const SwappedInputs&) = delete;

  int64_t bytes() const { return bytes_; }  // SwappedInputsOptions::bytes
  bool has_room() const { return !free_extents_.empty(); }
  bool is_unused() const { return waiting_.empty(); }

  // Room for an input of so many bytes, at most bytes(), of the present micro-batch
  // (RandomState::micro_batch). Needs has_room(). If all buffers are full, waits for the disk.
  // Throws IoError, also for earlier writes.
  std::unique_ptr<Input> take(int64_t bytes);
  // Starts the writes of inputs that should leave, but not of the `except` inputs that were saved
  // last. Waits on the host for the copies into the buffers that are written. Throws IoError.
  void write_behind(size_t except);
  // Gives back swap space and buffers, after waiting for the transfers under way. bring() throws
  // from then on.
  void close();

  SwapTraffic traffic() const { return extents_ != nullptr ? extents_->traffic() : closed_with_; }

 private:
  struct Buffer {
    Block memory;
    Input* holds = nullptr;
    Event filled;                    // behind the copy-out stream's copy to this buffer
    Event left;                      // behind the copy-in stream's copy from this buffer
    std::optional<size_t> extent{};  // extent of the transfer
    bool is_read = false;            // the transfer is a read, not a write
    SwapSpace::Transfer transfer{};  // destroyed first: last member
  };

  const void* bring(Input& input);
  void forget(Input& input) noexcept;
  Buffer* free_buffer();  // null: every buffer holds an input
  bool stays(size_t number) const;
  // All inputs in the predicted order of their use in backward, with `first` put in front.
  std::vector<Input*> by_use(Input& first) const;
  // Waits for the buffer's transfer.
  void finish(Buffer& buffer);
  void start_write(Buffer& buffer);
  // Makes the buffer free; the buffer's input is in swap space afterwards.
  void evict(Buffer& buffer);
  void start_read(Input& input, Buffer& buffer);
  void hold(Input& input, Buffer& buffer);

  Context& context_;
  const int64_t bytes_;
  const int64_t count_;
  const int64_t side_by_side_;
  std::unique_ptr<SwapExtents> extents_;  // null once closed
  SwapTraffic closed_with_;
  std::vector<size_t> free_extents_;  // the next one to use is the last
  std::vector<Input*> waiting_;       // in the order of saving
  // inputs of waiting_ that are filled and to be written; the write has not started
  std::vector<Input*> leaving_;
  std::vector<Buffer> buffers_;  // never resized before close(): inputs point into it
};

}  // namespace zinc::offload
