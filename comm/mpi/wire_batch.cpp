#include "comm/mpi/wire_batch.h"

#include <algorithm>
#include <utility>

#include "comm/mpi/checked.h"

namespace zinc::comm {

void WirePieces::start(const std::shared_ptr<WireBatch>& batch) {
  if (batch->native) {
    waiting_natives_.push_back(batch);
    start_natives();
    return;
  }
  std::vector<int64_t> next(batch->messages.size(), 0);
  bool is_empty = true;
  for (size_t m = 0; m < batch->messages.size(); ++m) {
    const int64_t bytes = batch->messages[m].bytes;
    is_empty = is_empty && bytes == 0;
    for (int i = 0; i < kPiecesPerMessage && next[m] < bytes; ++i) {
      start_piece(batch, m, next[m]);
      next[m] = std::min(bytes, next[m] + kPieceBytes);
    }
  }
  // The last piece takes the entry away: a batch without bytes, as a barrier's, has none.
  if (!is_empty) next_begin_[batch.get()] = std::move(next);
}

// Pieces of one message have one tag: MPI matches them in the order in which they are started.
void WirePieces::start_piece(const std::shared_ptr<WireBatch>& batch, size_t message,
                             int64_t begin) {
  const WireMessage& m = batch->messages[message];
  const int64_t bytes = std::min(kPieceBytes, m.bytes - begin);
  const int count = static_cast<int>(bytes);
  MPI_Request request = MPI_REQUEST_NULL;
  if (m.sending) {
    check_mpi(MPI_Isend(m.data + begin, count, MPI_BYTE, m.peer, m.tag, batch->comm, &request),
              "MPI_Isend");
  } else {
    check_mpi(MPI_Irecv(m.data + begin, count, MPI_BYTE, m.peer, m.tag, batch->comm, &request),
              "MPI_Irecv");
  }
  requests_.push_back(request);
  pieces_.push_back({batch, message, bytes});
}

void WirePieces::start_natives() {
  bool started = true;
  while (started) {
    started = false;
    for (auto it = waiting_natives_.begin(); it != waiting_natives_.end(); ++it) {
      const std::shared_ptr<WireBatch> batch = *it;
      uint64_t& next = next_native_.try_emplace(batch->comm, 1).first->second;
      if (batch->order != next) continue;
      for (MPI_Request request : batch->native()) {
        requests_.push_back(request);
        pieces_.push_back({batch, 0, 0});
      }
      ++next;
      waiting_natives_.erase(it);
      started = true;
      break;
    }
  }
}

bool WirePieces::test(std::mutex& mutex) {
  if (requests_.empty()) return false;
  completed_.resize(requests_.size());
  statuses_.resize(requests_.size());
  int count = 0;
  const int code = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                                completed_.data(), statuses_.data());
  if (code != MPI_ERR_IN_STATUS) check_mpi(code, "MPI_Testsome");
  if (count <= 0) return false;  // MPI_UNDEFINED is negative
  std::vector<Piece> finished;
  for (int i = 0; i < count; ++i) {
    const auto place = static_cast<size_t>(completed_[static_cast<size_t>(i)]);
    Piece& piece = finished.emplace_back(pieces_[place]);
    const int error =
        code == MPI_SUCCESS ? MPI_SUCCESS : statuses_[static_cast<size_t>(i)].MPI_ERROR;
    const std::lock_guard lock(mutex);
    WireBatch& batch = *piece.batch;
    if (error != MPI_SUCCESS && batch.error.empty()) batch.error = mpi_error_text(error);
    if (!batch.native) batch.done[piece.message] += piece.bytes;
    ++batch.moved;
    --batch.left;
  }
  size_t kept = 0;
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;  // Testsome has freed it
    if (kept != i) {
      requests_[kept] = requests_[i];
      pieces_[kept] = std::move(pieces_[i]);
    }
    ++kept;
  }
  requests_.resize(kept);
  pieces_.resize(kept);
  for (const Piece& piece : finished) {
    const auto next = next_begin_.find(piece.batch.get());
    if (next == next_begin_.end()) continue;
    int64_t& begin = next->second[piece.message];
    const int64_t bytes = piece.batch->messages[piece.message].bytes;
    if (begin < bytes) {
      start_piece(piece.batch, piece.message, begin);
      begin = std::min(bytes, begin + kPieceBytes);
    }
    if (piece.batch->left == 0) next_begin_.erase(next);
  }
  return true;
}

void WirePieces::abandon() {
  for (size_t i = 0; i < requests_.size(); ++i) {
    // Return codes mean nothing any more: the thread leaves MPI for good.
    if (!pieces_[i].batch->native) {
      if (!pieces_[i].batch->messages[pieces_[i].message].sending) (void)MPI_Cancel(&requests_[i]);
      (void)MPI_Request_free(&requests_[i]);
    }
  }
  requests_.clear();
  pieces_.clear();
  next_begin_.clear();
  waiting_natives_.clear();
}

}  // namespace zinc::comm
