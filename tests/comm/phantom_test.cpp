#include "comm/phantom/phantom.h"

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "comm/local/local.h"
#include "comm/mesh.h"
#include "comm/partition.h"
#include "comm/workspace.h"
#include "core/context.h"
#include "core/error.h"
#include "core/work_log.h"
#include "tests/comm/rank_data.h"

namespace zinc::comm::testing {
namespace phantom_test {

struct Moved {
  int64_t sent = 0;
  int64_t received = 0;
  friend bool operator==(const Moved&, const Moved&) = default;
};

// Collectives of many sizes on memory of `device`.
Moved run_program(Communicator& group, Context& context, Device device) {
  std::vector<Block> blocks;
  const auto memory = [&](DType dtype, int64_t n) {
    blocks.push_back(context.allocate(n * size_of(dtype), Label::communication));
    return View(blocks.back().data(), dtype, Shape{n}, device);
  };
  const auto workspace = [&](Collective collective, const View& large) {
    return memory(DType::u8, group.workspace_bytes(collective, large.bytes(), large.dtype()));
  };
  const StreamRef stream = context.compute();
  const int size = group.size();
  for (const int64_t n : {0, 1, 5, 1000}) {
    const View whole = memory(DType::bf16, n * size);
    const View part = memory(DType::bf16, n);
    const View wide = memory(DType::f32, n);
    group.all_gather({part, whole}, stream);
    group.reduce_scatter({.in = whole,
                          .out = wide,
                          .accumulate = true,
                          .workspace = workspace(Collective::reduce_scatter, whole)},
                         stream);
    group.all_reduce({wide, workspace(Collective::all_reduce, wide)}, stream);
    for (int root = 0; root < size; ++root) group.broadcast({part, root}, stream);
    group.all_to_all({whole, memory(DType::bf16, n * size)}, stream);
    // From rank a to rank b go n (a + 2 b) elements, none from rank 0 to itself.
    AllToAllCounts counts{.largest = n * 3 * (size - 1)};
    int64_t sent = 0, received = 0;
    for (int r = 0; r < size; ++r) {
      counts.sent.push_back(n * (group.rank() + 2 * r));
      counts.received.push_back(n * (r + 2 * group.rank()));
      sent += counts.sent.back();
      received += counts.received.back();
    }
    group.all_to_all({memory(DType::bf16, sent), memory(DType::bf16, received), &counts}, stream);
    group.shift({part, memory(DType::bf16, part.numel())}, stream);
    group.barrier(stream);
    if (size > 1 && group.rank() == 0) group.send(part, 1, 3, stream);
    if (group.rank() == 1) group.receive(part, 0, 3, stream);
  }
  context.synchronize();
  return {group.bytes_sent(), group.bytes_received()};
}

// Hosts of four ranks, tensor groups of two: what a group's collectives find on this rank's host.
TEST(Phantom, Groups_KnowWhichOfTheirRanksShareAHost) {
  const Mesh mesh{.tensor = 2, .pipe = 4};
  struct Case {
    MeshAxis axis;
    int rank;
    int near_ranks;
  };
  // 16 ranks; a pipeline is 0 2 4 6, and ranks that share states are 8 apart.
  const Case table[] = {{MeshAxis::tensor, 5, 2}, {MeshAxis::pipe, 5, 2}, {MeshAxis::shards, 5, 1}};
  for (const Case& one : table) {
    SCOPED_TRACE(static_cast<int>(one.axis));
    WorkLog log;
    Context context({.device = Device{.meta = true},
                     .execution = ContextOptions::Execution::inline_all,
                     .work_log = &log});
    const auto world = make_phantom({.rank = one.rank,
                                     .size = 16,
                                     .wishes =
                                         [&](int, int rank) {
                                           const auto [color, key] =
                                               group_along(mesh, one.axis, rank);
                                           return PhantomOptions::Wish{color, key};
                                         },
                                     .ranks_per_host = 4});
    const auto [color, key] = group_along(mesh, one.axis, one.rank);
    const auto group = world->split(color, key);
    const View part(nullptr, DType::f32, Shape{0}, context.device());
    const View whole(nullptr, DType::f32, Shape{0}, context.device());
    group->all_gather({part, whole}, context.compute());
    EXPECT_EQ(log.entries().back().cost.near_ranks, one.near_ranks);
    EXPECT_EQ(log.entries().back().cost.ranks, group->size());
    if (one.axis != MeshAxis::pipe) continue;
    // Rank 3 of the group is on this host, rank 1 on another.
    group->receive(part, 3, 0, context.compute());
    EXPECT_EQ(log.entries().back().cost.near_ranks, 2);
    group->receive(part, 1, 0, context.compute());
    EXPECT_EQ(log.entries().back().cost.near_ranks, 1);
    EXPECT_EQ(log.entries().back().cost.ranks, 2);
  }
}

TEST(Phantom, SameProgram_CountsWhatRealRanksMove) {
  for (const int size : {1, 2, 3, 4, 7}) {
    std::vector<Moved> real(static_cast<size_t>(size));
    run_local_ranks(size, {.num_threads = 1}, [&](World& world) {
      real[static_cast<size_t>(world.rank())] =
          run_program(world.communicator(), world.context(), kCpu);
    });
    for (int rank = 0; rank < size; ++rank) {
      const Device meta{.meta = true};
      Context context({.device = meta, .num_threads = 1});
      const auto phantom = make_phantom({.rank = rank, .size = size});
      EXPECT_EQ(run_program(*phantom, context, meta), real[static_cast<size_t>(rank)])
          << "rank " << rank << " of " << size;
    }
  }
}

TEST(Phantom, Workspace_IsThatOfTheBackendItImitates) {
  const auto phantom = make_phantom({.rank = 0, .size = 4, .imitates = "local"});
  EXPECT_EQ(phantom->workspace_bytes(Collective::all_reduce, 1 << 20, DType::f32), 0);
  const auto mpi = make_phantom({.rank = 0, .size = 4, .imitates = "mpi"});
  // The workspace holds a quarter of the array from each of three peers, twice.
  EXPECT_EQ(mpi->workspace_bytes(Collective::all_reduce, 1 << 20, DType::f32), 2 * 3 * (1 << 18));
  EXPECT_EQ(mpi->workspace_bytes(Collective::all_gather, 1 << 20, DType::f32), 0);
  EXPECT_THROW(make_phantom({.imitates = "telepathy"}), InvalidArgument);
  EXPECT_THROW(make_phantom({.rank = 2, .size = 2}), InvalidArgument);
}

TEST(Phantom, Split_FollowsTheWishesItWasTold) {
  const auto wishes = [](int split, int rank) {
    return split == 0 ? PhantomOptions::Wish{rank % 2, -rank}
                      : PhantomOptions::Wish{rank < 3 ? 0 : -1, 0};
  };
  const auto phantom = make_phantom({.rank = 1, .size = 5, .wishes = wishes});
  const auto odd = phantom->split(1, -1);
  EXPECT_EQ(odd->size(), 2);
  EXPECT_EQ(odd->rank(), 1);  // rank 3 has the lower key
  EXPECT_EQ(phantom->split(0, 0)->size(), 3);
  EXPECT_THROW(phantom->split(0, 7), InvalidArgument);
  EXPECT_EQ(make_phantom({.rank = 0, .size = 3})->split(-1, 0), nullptr);
}

TEST(Phantom, Aborted_ThrowsLikeARealOne) {
  Context context({.device = {.meta = true}, .num_threads = 1});
  const auto phantom = make_phantom({.size = 2});
  phantom->abort("enough");
  EXPECT_THROW(phantom->barrier(context.compute()), CommError);
}

TEST(Workspace, ManyRanksAndLargeArrays_StayBounded) {
  for (const int size : {2, 3, 8, 64, 256}) {
    const int64_t bytes =
        workspace_bytes_of("mpi", Collective::reduce_scatter, int64_t{16} << 30, DType::bf16, size);
    EXPECT_LE(bytes, kPieceBudgetBytes) << size;
    EXPECT_GE(bytes, kPieceBudgetBytes / 4) << size;
  }
  EXPECT_EQ(workspace_bytes_of("mpi", Collective::reduce_scatter, 0, DType::f32, 8), 0);
  EXPECT_EQ(workspace_bytes_of("mpi", Collective::all_reduce, 1 << 20, DType::f32, 1), 0);
}

TEST(Partition, AnyArray_IsCoveredInOrder) {
  for (int64_t n = 0; n < 40; ++n) {
    for (int size = 1; size < 9; ++size) {
      int64_t next = 0;
      for (int r = 0; r < size; ++r) {
        const Part part = part_of(n, size, r);
        EXPECT_EQ(part.begin, next);
        EXPECT_GE(part.count, 0);
        EXPECT_LE(part.count, part_of(n, size, 0).count);
        next += part.count;
      }
      EXPECT_EQ(next, n);
    }
  }
}

}  // namespace phantom_test
}  // namespace zinc::comm::testing
