// comm/mpi/session.h: MPI in this process, and the thread that makes all of its calls.
//
// Note [Communication thread]
// MPI is initialised, used and finalised by one thread (MPI_THREAD_FUNNELED): streams hand it
// batches of messages and sleep, it starts them as nonblocking sends and receives and polls. So two
// streams of a rank have messages under way at the same time without a second thread inside MPI,
// whose locks and whose matching of nonblocking collectives would need an order between streams.
// While messages move it polls without a pause; after a while without any it sleeps between polls,
// and where nothing is under way it looks for notes of the peers now and then.
//
// Note [End of a session]
// All ranks say farewell before MPI_Finalize, so a rank that failed, or that never comes, does not
// leave the others inside it. After a failure the thread tells the peers, lets go of the messages
// that are under way and never enters MPI again; the process then ends without MPI_Finalize, which
// mpirun takes as the failure that it is.
#pragma once

#include <mpi.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/mpi/control_channel.h"
#include "comm/mpi/wire_batch.h"
#include "core/dtype.h"

namespace zinc::comm {

class MpiSession {
 public:
  using Nanoseconds = std::chrono::nanoseconds;

  // Throws CommError where MPI was started in this process before.
  static std::shared_ptr<MpiSession> start();
  MpiSession() = default;  // for start()
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  int local_rank() const { return local_rank_; }
  int local_size() const { return local_size_; }
  int cpu_rank() const { return cpu_rank_; }  // MpiWorld::cpu_rank
  int cpu_ranks() const { return cpu_ranks_; }
  MPI_Comm world() const { return world_; }
  MPI_Comm messages() const { return messages_; }  // the same ranks; for send and receive

  // Adds elements of a float dtype. Call it in the communication thread.
  struct Adder {
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_Op op = MPI_OP_NULL;
  };
  Adder adder(DType dtype) const;

  Lifeline& lifeline() { return control_; }
  // Sets the world's lifeline where it is another object; the session looks at it before MPI is
  // finalised.
  void set_world_lifeline(std::shared_ptr<Lifeline> lifeline);
  // How long the end of the session waits for the peers' farewells.
  void set_farewell_deadline(Nanoseconds deadline);

  // Runs `work` in the communication thread and waits for it; rethrows. After `deadline` the thread
  // counts as lost and CommError names `what`; `work` may still run then, so it must own the data
  // that it uses.
  void run(const std::function<void()>& work, const std::string& what, Nanoseconds deadline);

  // Starts the batch's messages soon. The memory they name stays until wait() has returned or
  // give_up() has.
  void post(const std::shared_ptr<WireBatch>& batch);
  // Blocks until all of the batch is done. `deadline` counts from the last piece that moved. Throws
  // CommError headed by `what` that names the ranks among `world_ranks` (the batch's peers) that it
  // waited for. By then MPI touches no message of this rank any more.
  void wait(const WireBatch& batch, const std::string& what, const std::vector<int>& world_ranks,
            Nanoseconds deadline);
  // Raises the lifeline and returns once MPI touches no message of this rank any more.
  void give_up(const char* reason) noexcept;

 private:
  enum class State : uint8_t { running, closing, over };

  bool close();  // false: the thread hangs in MPI and still uses the object

  // Called by the communication thread.
  void thread_body();
  void initialise();
  void look_at_host();
  void finalise();
  bool serve();
  void take_posted(std::unique_lock<std::mutex>& lock);
  void abandon();
  bool may_end();

  bool failed() const;
  [[noreturn]] void fail(const std::string& text);
  std::vector<int> missing_ranks(const WireBatch& batch, const std::vector<int>& world_ranks);

  int rank_ = 0;
  int size_ = 1;
  int local_rank_ = 0;
  int local_size_ = 1;
  int cpu_rank_ = 0;
  int cpu_ranks_ = 1;
  MPI_Comm world_ = MPI_COMM_NULL;
  MPI_Comm messages_ = MPI_COMM_NULL;
  MPI_Datatype two_bytes_ = MPI_DATATYPE_NULL;
  MPI_Op add_bf16_ = MPI_OP_NULL;
  MPI_Op add_f16_ = MPI_OP_NULL;
  ControlChannel control_;

  mutable std::mutex mutex_;
  std::condition_variable posted_;      // for the communication thread
  std::condition_variable progressed_;  // for everybody else
  std::deque<std::shared_ptr<WireBatch>> new_batches_;
  std::deque<std::function<void()>> new_work_;
  State state_ = State::running;
  bool abandoned_ = false;             // MPI is not entered any more
  std::exception_ptr thread_failure_;  // from one of the thread's MPI calls
  std::shared_ptr<Lifeline> world_lifeline_;
  Nanoseconds farewell_deadline_ = std::chrono::minutes(10);

  // Used by the communication thread alone.
  WirePieces pieces_;
  std::chrono::steady_clock::time_point last_move_{};
  std::chrono::steady_clock::time_point farewell_began_{};
  bool said_farewell_ = false;

  std::thread thread_;
};

}  // namespace zinc::comm
