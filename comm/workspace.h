// comm/workspace.h: the workspace that a backend needs for a collective, by the backend's name. So
// the planner knows it without the backend.
#pragma once

#include <cstdint>
#include <string_view>

#include "comm/communicator.h"
#include "core/allocator.h"

namespace zinc::comm {

// Sizes of a piece of a peer's part. The workspace has two pieces of every peer: one is summed
// while the next arrives. mpi asks for it on every host layout, even where ranks share memory and
// do not use it, so that a plan does not depend on where ranks run.
inline constexpr int64_t kLargestPieceBytes = int64_t{4} << 20;
inline constexpr int64_t kSmallestPieceBytes = int64_t{64} << 10;
inline constexpr int64_t kPieceBudgetBytes = int64_t{32} << 20;  // of all peers together

// Bytes of a part that a rank receives from one peer at a time; a multiple of 64.
int64_t reduce_piece_bytes(int64_t part_bytes, int size);

// The piece size of nccl, a multiple of 64. The pieces of all ranks, its own among them, lie side
// by side.
int64_t nccl_piece_bytes(int64_t part_bytes, int size);

// Communicator::workspace_bytes() of the backend "single", "local", "mpi" or "nccl". A native
// reduce_scatter needs room for the part as well. Throws InvalidArgument for another name.
int64_t workspace_bytes_of(std::string_view backend, Collective collective, int64_t bytes,
                           DType dtype, int size,
                           ReduceAlgorithm algorithm = ReduceAlgorithm::ordered);

// The memory that a barrier between devices takes from the current context's allocator and gives
// back in the order of `stream`. NCCL has no barrier, so a byte of every rank is gathered. Empty:
// no memory.
Block barrier_room(std::string_view backend, int size, StreamRef stream);

}  // namespace zinc::comm
