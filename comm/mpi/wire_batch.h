// comm/mpi/wire_batch.h: messages over MPI, cut into pieces that fit one call.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace zinc::comm {

struct WireMessage {
  int peer = 0;
  int tag = 0;
  std::byte* data = nullptr;  // only read where it is sent
  int64_t bytes = 0;
  bool sending = false;
};

// Messages that are posted together, or one of MPI's own collectives. The thread that posts it
// waits for it; the communication thread moves it; `mutex` of the session guards what both use.
struct WireBatch {
  MPI_Comm comm = MPI_COMM_NULL;
  std::vector<WireMessage> messages;
  // A nonblocking MPI collective in place of messages. Collectives of one communicator start in the
  // order of `order` = 1, 2, ..., in which all ranks issued them.
  std::function<std::vector<MPI_Request>()> native;
  int64_t num_native_requests = 0;
  uint64_t order = 0;

  int64_t moved = 0;          // pieces done so far
  int64_t left = 0;           // pieces to go
  std::vector<int64_t> done;  // bytes, by message
  bool started = false;
  std::string error;  // error of the first piece that failed
};

// The pieces that MPI works on. Used by the communication thread alone.
class WirePieces {
 public:
  // Longest piece: counts are ints, and progress shows between pieces only.
  static constexpr int64_t kPieceBytes = int64_t{16} << 20;
  static constexpr int kPiecesPerMessage = 4;  // at a time

  static int64_t count_of(const WireMessage& message) {
    return (message.bytes + kPieceBytes - 1) / kPieceBytes;
  }

  void start(const std::shared_ptr<WireBatch>& batch);
  // True where a piece was done. `mutex` guards the batches.
  bool test(std::mutex& mutex);
  bool empty() const { return requests_.empty() && waiting_natives_.empty(); }
  // Batches of messages that have pieces to go.
  size_t num_batches() const { return next_begin_.size(); }
  // Gives up all pieces and does not wait for them.
  void abandon();

 private:
  struct Piece {
    std::shared_ptr<WireBatch> batch;
    size_t message = 0;
    int64_t bytes = 0;
  };

  void start_piece(const std::shared_ptr<WireBatch>& batch, size_t message, int64_t begin);
  void start_natives();

  std::vector<MPI_Request> requests_;
  std::vector<Piece> pieces_;  // by index in requests_
  std::vector<int> completed_;
  std::vector<MPI_Status> statuses_;
  // By batch, then message: the place where the next piece begins.
  std::map<const WireBatch*, std::vector<int64_t>> next_begin_;
  std::deque<std::shared_ptr<WireBatch>> waiting_natives_;
  std::map<MPI_Comm, uint64_t> next_native_;
};

}  // namespace zinc::comm
