// core/transfer.h: bytes from one tier of a device to another.
#pragma once

#include "core/stream.h"
#include "core/view.h"

namespace zinc {

// y = x, in the order of `stream`; asynchronous. Both contiguous, of one dtype, shape and device,
// not overlapping; each in any tier that is memory. The only work that takes views of host tiers.
// Throws InvalidArgument.
void transfer(const ConstView& x, const View& y, StreamRef stream);

// upload() and download() copy between host memory that zinc's allocator does not know and a
// contiguous view in any tier that is memory. On a meta device no bytes move.
//
// y = the y.bytes() bytes at `from`, in the order of `stream`; `from` may be reused at return.
void upload(const void* from, const View& y, StreamRef stream);
// The bytes at `to` = x, after the work that was issued to `stream`; waits for it.
void download(const ConstView& x, void* to, StreamRef stream);

}  // namespace zinc
