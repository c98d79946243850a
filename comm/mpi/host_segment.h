// comm/mpi/host_segment.h: a segment that processes of one host share.
#pragma once

#include <memory>

#include "comm/shared/segment.h"
#include "comm/transport.h"

namespace zinc::comm {

// Bytes of a buffer of a desk: two of them, with the memory they are copied from and to, fit the
// second-level cache.
inline constexpr int64_t kHostBufferBytes = int64_t{256} << 10;

// Collective over the ranks of `agree`. The plan's first member makes memory without a name
// (nothing is left behind, however the job ends), the others open it through /proc. Null on all
// members where one of them cannot, being on another host or in another container; and for a rank
// in no group.
std::shared_ptr<Segment> make_host_segment(const SplitPlan& plan, const Transport::Agree& agree);

}  // namespace zinc::comm
