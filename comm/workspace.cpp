#include "comm/workspace.h"

#include <algorithm>

#include "comm/partition.h"
#include "core/context.h"
#include "core/error.h"

namespace zinc::comm {

int64_t reduce_piece_bytes(int64_t part_bytes, int size) {
  if (size <= 1) return 0;
  const int64_t share = kPieceBudgetBytes / 2 / (size - 1) / 64 * 64;
  const int64_t piece = std::clamp(share, kSmallestPieceBytes, kLargestPieceBytes);
  return std::min(piece, (part_bytes + 63) / 64 * 64);
}

int64_t nccl_piece_bytes(int64_t part_bytes, int size) {
  if (size <= 1) return 0;
  const int64_t share = std::max(kPieceBudgetBytes / size / 64 * 64, kSmallestPieceBytes);
  return std::min(share, (part_bytes + 63) / 64 * 64);
}

int64_t workspace_bytes_of(std::string_view backend, Collective collective, int64_t bytes,
                           DType dtype, int size, ReduceAlgorithm algorithm) {
  require(bytes >= 0, "workspace_bytes: a negative size: ", bytes);
  if (backend == "single" || backend == "local") return 0;
  const bool is_nccl = backend == "nccl";
  require(backend == "mpi" || is_nccl, "workspace_bytes: unknown backend '", backend,
          "'; known: single, local, mpi, nccl");
  if (collective != Collective::reduce_scatter && collective != Collective::all_reduce) return 0;
  const int64_t elements = bytes / size_of(dtype);
  const int64_t part_bytes = part_of(elements, size, 0).count * size_of(dtype);
  const int64_t pieces = is_nccl ? size * nccl_piece_bytes(part_bytes, size)
                                 : 2 * (size - 1) * reduce_piece_bytes(part_bytes, size);
  const bool holds_part =
      algorithm == ReduceAlgorithm::native && collective == Collective::reduce_scatter && size > 1;
  return holds_part ? std::max(pieces, part_bytes) : pieces;
}

Block barrier_room(std::string_view backend, int size, StreamRef stream) {
  if (backend != "nccl" || size == 1) return {};
  return Context::current().allocator().allocate(size, Tier::device, Label::communication, stream);
}

}  // namespace zinc::comm
