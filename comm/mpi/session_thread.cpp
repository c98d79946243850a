// The communication thread of an MpiSession.
#include <mpi.h>

#include <sched.h>

#include <array>
#include <utility>
#include <vector>

#include "comm/cpu_share.h"
#include "comm/mpi/checked.h"
#include "comm/mpi/session.h"

namespace zinc::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr milliseconds kIdleInterval{50};      // between looks for notes while nothing is under way
constexpr milliseconds kSpinTime{2};           // polling without a pause after the last move
constexpr microseconds kProgressInterval{50};  // after that
constexpr milliseconds kNoticeTime{200};       // for telling the peers of a failure

// Tags of one communicator: two per exchange, or per message number and user tag.
constexpr int kLargestTag = (1 << 22) - 1;

// MPI knows no 16-bit floats. Each addition rounds, as it does for MPI's own types.
template <class T>
void add_16bit(void* in, void* inout, int* count, MPI_Datatype*) {
  const T* from = static_cast<const T*>(in);
  T* to = static_cast<T*>(inout);
  for (int i = 0; i < *count; ++i)
    to[i] = T(static_cast<float>(to[i]) + static_cast<float>(from[i]));
}

using CpuMask = std::array<uint8_t, CPU_SETSIZE>;  // 1 where a rank may run

}  // namespace

void MpiSession::thread_body() {
  try {
    initialise();
    while (serve()) {
    }
    if (!abandoned_) finalise();
  } catch (const std::exception& failure) {
    control_.raise(failure.what());
    const std::lock_guard lock(mutex_);
    thread_failure_ = std::current_exception();
    abandoned_ = true;
  }
  const std::lock_guard lock(mutex_);
  state_ = State::over;
  progressed_.notify_all();
}

void MpiSession::initialise() {
  int before = 0;
  check_mpi(MPI_Initialized(&before), "MPI_Initialized");
  if (before != 0) {
    throw CommError("MPI was started in this process before; a process joins one MPI job, once");
  }
  int provided = 0;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  if (provided < MPI_THREAD_FUNNELED) {
    throw CommError("this MPI does not allow a second thread in the process");
  }
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  for (MPI_Comm* comm : {&world_, &messages_}) {
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, comm), "MPI_Comm_dup");
    check_mpi(MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  check_mpi(MPI_Comm_rank(world_, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(world_, &size_), "MPI_Comm_size");
  look_at_host();
  int* largest_tag = nullptr;
  int known = 0;
  check_mpi(MPI_Comm_get_attr(world_, MPI_TAG_UB, static_cast<void*>(&largest_tag), &known),
            "MPI_Comm_get_attr");
  if (known != 0 && *largest_tag < kLargestTag) {
    throw CommError(
        str("this MPI has tags up to ", *largest_tag, " only; zinc needs ", kLargestTag));
  }
  check_mpi(MPI_Type_contiguous(2, MPI_BYTE, &two_bytes_), "MPI_Type_contiguous");
  check_mpi(MPI_Type_commit(&two_bytes_), "MPI_Type_commit");
  check_mpi(MPI_Op_create(add_16bit<bf16>, 1, &add_bf16_), "MPI_Op_create");
  check_mpi(MPI_Op_create(add_16bit<f16>, 1, &add_f16_), "MPI_Op_create");
  control_.open(world_);
}

MpiSession::Adder MpiSession::adder(DType dtype) const {
  switch (dtype) {
    case DType::f64:
      return {MPI_DOUBLE, MPI_SUM};
    case DType::f32:
      return {MPI_FLOAT, MPI_SUM};
    case DType::bf16:
      return {two_bytes_, add_bf16_};
    case DType::f16:
      return {two_bytes_, add_f16_};
    default:
      break;
  }
  detail::throw_internal_error(str("MPI adds no ", dtype));
}

// Finds the ranks of this host, and those among them that may use this rank's processors (this
// thread has the affinity of the thread that called start()).
void MpiSession::look_at_host() {
  MPI_Comm host = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(world_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &host),
            "MPI_Comm_split_type");
  check_mpi(MPI_Comm_rank(host, &local_rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(host, &local_size_), "MPI_Comm_size");
  CpuMask mine{};
  for (const int cpu : allowed_cpus()) mine[static_cast<size_t>(cpu)] = 1;
  std::vector<CpuMask> masks(static_cast<size_t>(local_size_));
  constexpr int kBytes = sizeof(CpuMask);
  check_mpi(MPI_Allgather(mine.data(), kBytes, MPI_BYTE, masks.data(), kBytes, MPI_BYTE, host),
            "MPI_Allgather");
  check_mpi(MPI_Comm_free(&host), "MPI_Comm_free");
  cpu_ranks_ = 0;
  for (int r = 0; r < local_size_; ++r) {
    bool common = false;
    for (size_t cpu = 0; cpu < mine.size(); ++cpu) {
      common = common || (mine[cpu] != 0 && masks[static_cast<size_t>(r)][cpu] != 0);
    }
    if (r == local_rank_) cpu_rank_ = cpu_ranks_;
    if (common) ++cpu_ranks_;
  }
}

// Communicators of groups that were split off are left to MPI_Finalize.
void MpiSession::finalise() {
  control_.close();
  check_mpi(MPI_Op_free(&add_bf16_), "MPI_Op_free");
  check_mpi(MPI_Op_free(&add_f16_), "MPI_Op_free");
  check_mpi(MPI_Type_free(&two_bytes_), "MPI_Type_free");
  check_mpi(MPI_Comm_free(&messages_), "MPI_Comm_free");
  check_mpi(MPI_Comm_free(&world_), "MPI_Comm_free");
  check_mpi(MPI_Finalize(), "MPI_Finalize");
}

// One round; false at the end of the session.
bool MpiSession::serve() {
  std::unique_lock lock(mutex_);
  const auto something_new = [this] {
    return !new_batches_.empty() || !new_work_.empty() || state_ != State::running ||
           control_.has_outgoing() || control_.raised();
  };
  if (abandoned_) {
    posted_.wait(lock, [this] { return state_ != State::running; });
    return false;
  }
  const bool idle = pieces_.empty();
  if (idle && !said_farewell_) {
    posted_.wait_for(lock, kIdleInterval, something_new);
  } else if (said_farewell_ || Clock::now() - last_move_ > kSpinTime) {
    posted_.wait_for(lock, kProgressInterval, [this] {
      return !new_batches_.empty() || !new_work_.empty() || control_.has_outgoing();
    });
  } else {
    lock.unlock();
    std::this_thread::yield();  // ranks may outnumber processors
    lock.lock();
  }
  take_posted(lock);
  lock.unlock();

  control_.poll();
  if (control_.raised()) {
    abandon();
    return true;
  }
  if (pieces_.test(mutex_)) {
    last_move_ = Clock::now();
    const std::lock_guard again(mutex_);
    progressed_.notify_all();
  }
  return !may_end();
}

void MpiSession::take_posted(std::unique_lock<std::mutex>& lock) {
  std::deque<std::shared_ptr<WireBatch>> batches;
  std::deque<std::function<void()>> work;
  batches.swap(new_batches_);
  work.swap(new_work_);
  lock.unlock();
  for (const auto& task : work) task();
  for (const auto& batch : batches) pieces_.start(batch);
  lock.lock();
  if (!work.empty()) progressed_.notify_all();
  if (!batches.empty()) last_move_ = Clock::now();
}

void MpiSession::abandon() {
  control_.flush(kNoticeTime);
  pieces_.abandon();
  const std::lock_guard lock(mutex_);
  abandoned_ = true;
  progressed_.notify_all();
}

// After close(): true once every rank has said farewell. A failure, and peers that do not come, end
// the session without MPI_Finalize.
bool MpiSession::may_end() {
  std::unique_lock lock(mutex_);
  if (state_ != State::closing) return false;
  const bool world_failed = world_lifeline_ != nullptr && world_lifeline_->raised();
  if (!said_farewell_ && !world_failed) {
    said_farewell_ = true;
    farewell_began_ = Clock::now();
    control_.say_farewell();
    return false;
  }
  if (!world_failed && control_.all_said_farewell()) return true;
  if (world_failed || Clock::now() - farewell_began_ > farewell_deadline_) {
    abandoned_ = true;
    return true;
  }
  return false;
}

}  // namespace zinc::comm
