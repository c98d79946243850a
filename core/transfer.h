// core/transfer.h: bytes from one tier of a device to another.
#pragma once

#include "core/stream.h"
#include "core/view.h"

namespace zinc {

// y = x, in the order of `stream`; asynchronous. Both contiguous, of one dtype, shape and device,
// not overlapping; each in any tier that is memory. The only work that takes views of host tiers.
// Throws InvalidArgument.
void transfer(const ConstView& x, const View& y, StreamRef stream);

}  // namespace zinc
