// comm/workspace.h: the room that a backend needs for a collective, as a function of its name, so
// that the planner knows it without the backend.
#pragma once

#include <cstdint>
#include <string_view>

#include "comm/communicator.h"
#include "core/allocator.h"

namespace zinc::comm {

// A piece of every peer's part, twice: one is summed while the next one arrives. mpi asks for it
// on every host layout, also where ranks share memory and do not use it, so that a plan does not
// depend on where ranks run.
inline constexpr int64_t kLargestPieceBytes = int64_t{4} << 20;
inline constexpr int64_t kSmallestPieceBytes = int64_t{64} << 10;
inline constexpr int64_t kPieceBudgetBytes = int64_t{32} << 20;  // of all peers together

// Bytes of a part that a rank receives from one peer at a time; a multiple of 64.
int64_t reduce_piece_bytes(int64_t part_bytes, int size);

// nccl has the pieces of all ranks side by side, its own among them: a multiple of 64.
int64_t nccl_piece_bytes(int64_t part_bytes, int size);

// A native reduce_scatter needs room for the part as well. Communicator::workspace_bytes of the
// backend "single", "local", "mpi" or "nccl". Throws InvalidArgument for another name.
int64_t workspace_bytes_of(std::string_view backend, Collective collective, int64_t bytes,
                           DType dtype, int size,
                           ReduceAlgorithm algorithm = ReduceAlgorithm::ordered);

// What a barrier between devices takes from the current context's allocator and gives back in the
// order of `stream`: NCCL has none, so a byte of every rank is gathered. Empty: no memory.
Block barrier_room(std::string_view backend, int size, StreamRef stream);

}  // namespace zinc::comm
