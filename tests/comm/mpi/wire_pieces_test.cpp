#include <gtest/gtest.h>

#include <memory>

#include "comm/mpi/wire_batch.h"

namespace zinc::comm {
namespace wire_pieces_test {

// Batches without bytes, as of a barrier and of shards without elements: no completion could remove
// an entry for them. MPI is not entered.
TEST(WirePieces, BatchesWithoutBytes_LeaveNothingBehind) {
  WirePieces pieces;
  for (int i = 0; i < 100; ++i) {
    const auto barrier = std::make_shared<WireBatch>();
    pieces.start(barrier);
    const auto no_elements = std::make_shared<WireBatch>();
    no_elements->messages.push_back({.peer = 1, .bytes = 0, .sending = true});
    no_elements->messages.push_back({.peer = 1, .bytes = 0});
    pieces.start(no_elements);
  }
  EXPECT_EQ(pieces.num_batches(), 0u);
  EXPECT_TRUE(pieces.empty());
}

}  // namespace wire_pieces_test
}  // namespace zinc::comm
