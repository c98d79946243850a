// core/kept_memory.h: memory of work that is recorded with its addresses and runs again later, as
// in a CUDA graph.
#pragma once

#include <memory>

#include "core/allocator.h"

namespace zinc {

class CachingAllocator;

// While it is open, blocks are handed out and freed as usual. close() withdraws all bytes that were
// handed out since open() and are free by then. Until the next open() or the end of this object no
// one else gets them, so the recorded work may write there whenever it runs, on the stream that was
// the home of its blocks. Blocks that are still alive belong to their owners. open() gives the kept
// bytes back to the allocator, and the next close() keeps them again, so that recordings that do
// not run at the same time share their memory.
//
// Kept bytes count as live activations. One at a time per allocator; memory is not given back to
// the system while one is open. Deterministic, as all placement is.
class KeptMemory {
 public:
  explicit KeptMemory(Allocator& allocator);
  ~KeptMemory();  // gives all of it back
  KeptMemory(const KeptMemory&) = delete;
  KeptMemory& operator=(const KeptMemory&) = delete;

  void open();
  void close();
  // Runs `work` between open() and close(), which follows in any case.
  template <class Work>
  void keep(const Work& work) {
    open();
    try {
      work();
    } catch (...) {
      close();
      throw;
    }
    close();
  }

 private:
  std::shared_ptr<CachingAllocator> allocator_;
};

}  // namespace zinc
