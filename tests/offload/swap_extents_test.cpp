// Swap space whose bytes the allocator counts, on a device and on a meta device.
#include "offload/swap_extents.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "tests/offload/swap_folder.h"

namespace zinc::offload {
namespace swap_extents_test {

constexpr int64_t kPage = 4096;
const std::vector<int64_t> kBytes{5000, 1, 4096};  // two pages, one, one

// Writes all extents and reads the first one, once.
SwapTraffic move(SwapExtents& extents, Context& context) {
  const Block memory = context.allocate(2 * kPage, Label::staging, Tier::pinned_host);
  for (size_t i = 0; i < kBytes.size(); ++i) extents.start_write(i, memory, "extent").wait();
  extents.start_read(0, memory, "extent").wait();
  return extents.traffic();
}

int64_t live(Context& context) { return context.allocator().report().at(Tier::nvme).live; }

TEST(SwapExtents, CountTheirBytesAsLongAsTheyLive) {
  const SwapFolder folder;
  Context context{ContextOptions{}};
  {
    SwapExtents extents(kBytes, Label::optimizer, context, {.directory = folder.path()});
    EXPECT_EQ(extents.bytes_of(0), 2 * kPage);
    EXPECT_EQ(extents.bytes_of(1), kPage);
    EXPECT_EQ(live(context), 4 * kPage);
    const SwapTraffic moved = move(extents, context);
    EXPECT_EQ(moved.bytes_written, 4 * kPage);
    EXPECT_EQ(moved.bytes_read, 2 * kPage);
  }
  EXPECT_EQ(live(context), 0);
}

TEST(SwapExtents, OnAMetaDevice_CountTheSameAndOpenNothing) {
  const SwapFolder folder;
  Context context{ContextOptions{}};
  SwapExtents extents(kBytes, Label::optimizer, context, {.directory = folder.path()});
  Context meta{ContextOptions{.device = {.meta = true}}};
  SwapExtents planned(kBytes, Label::optimizer, meta, {.directory = "/no such directory"});
  EXPECT_EQ(live(meta), live(context));
  EXPECT_EQ(move(planned, meta), move(extents, context));
}

}  // namespace swap_extents_test
}  // namespace zinc::offload
