#include "tests/emulator/block.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace zinc::emulator {
namespace {

std::string place_of(const std::source_location& where) {
  return std::string(where.file_name()) + ":" + std::to_string(where.line());
}

bool same_place(const std::source_location& a, const std::source_location& b) {
  return a.line() == b.line() && a.column() == b.column() &&
         (a.file_name() == b.file_name() || std::strcmp(a.file_name(), b.file_name()) == 0);
}

std::string text_of(const Size3& index) {
  return "(" + std::to_string(index.x) + ", " + std::to_string(index.y) + ", " +
         std::to_string(index.z) + ")";
}

constexpr int kPoison = 0xff;
constexpr int kCanary = 0xa5;

// The first from a place that is drawn: every one can come, those behind a gap more often.
int any_set_bit(uint32_t bits, Shuffle& shuffle) {
  const int from = static_cast<int>(shuffle.next() >> 59);
  return (from + std::countr_zero(std::rotr(bits, from))) % 32;
}

}  // namespace

void poison([[maybe_unused]] void* data, [[maybe_unused]] size_t bytes) {
  std::memset(data, kPoison, bytes);
#if defined(__SANITIZE_ADDRESS__)
  ASAN_POISON_MEMORY_REGION(data, bytes);
#endif
}

void lift_poison([[maybe_unused]] void* data, [[maybe_unused]] size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  ASAN_UNPOISON_MEMORY_REGION(data, bytes);
#endif
}

ReadyThreads::ReadyThreads(int warps, bool in_order, Shuffle& shuffle) : in_order_(in_order) {
  const auto count = static_cast<size_t>(warps);
  for (size_t i = 0; i < count; ++i) warp_at_[i] = static_cast<uint8_t>(i);
  for (size_t i = count; in_order && i > 1; --i) {
    std::swap(warp_at_[i - 1], warp_at_[shuffle.below(i)]);
  }
  for (size_t i = 0; i < count; ++i) position_[warp_at_[i]] = static_cast<uint8_t>(i);
}

void ReadyThreads::add(int thread) {
  const size_t position = position_[static_cast<size_t>(thread / kWarpSize)];
  lanes_[position] |= 1u << (thread % kWarpSize);
  warps_ |= 1u << position;
}

int ReadyThreads::take(Shuffle& shuffle) {
  const int position = in_order_ ? std::countr_zero(warps_) : any_set_bit(warps_, shuffle);
  uint32_t& lanes = lanes_[static_cast<size_t>(position)];
  const int lane = any_set_bit(lanes, shuffle);
  lanes &= ~(1u << lane);
  if (lanes == 0) warps_ &= ~(1u << position);
  return warp_at_[static_cast<size_t>(position)] * kWarpSize + lane;
}

SharedMemory::SharedMemory(size_t bytes) : bytes_(bytes) {
  all_ =
      static_cast<std::byte*>(::operator new(bytes + 2 * kAlignment, std::align_val_t(kAlignment)));
  std::memset(all_, kCanary, bytes + 2 * kAlignment);
  std::memset(data(), kPoison, bytes);
#if defined(__SANITIZE_ADDRESS__)
  ASAN_POISON_MEMORY_REGION(all_, kAlignment);
  ASAN_POISON_MEMORY_REGION(data() + bytes, kAlignment);
#endif
}

SharedMemory::~SharedMemory() {
  lift_poison(all_, bytes_ + 2 * kAlignment);
  ::operator delete(all_, std::align_val_t(kAlignment));
}

std::byte* SharedMemory::data() const { return all_ + kAlignment; }

bool SharedMemory::contains(const void* address, size_t bytes) const {
  const auto* at = static_cast<const std::byte*>(address);
  return at >= data() && at + bytes <= data() + bytes_;
}

bool SharedMemory::is_intact() const {
#if defined(__SANITIZE_ADDRESS__)
  return true;  // a write there would have stopped the program
#else
  const auto is_canary = [](std::byte value) { return value == std::byte{kCanary}; };
  return std::all_of(all_, data(), is_canary) &&
         std::all_of(data() + bytes_, data() + bytes_ + kAlignment, is_canary);
#endif
}

// Half of the blocks run any thread that can go on; in the others some warps are ahead of the rest
// until they have to wait, as on a GPU: only then does a missing barrier behind a warp's
// collectives show.
Block::Block(const Launch& launch, Size3 index, uint64_t seed)
    : block_size_(launch.block),
      shuffle_(seed),
      threads_(launch.block.count()),
      ready_(static_cast<int>((threads_.size() + kWarpSize - 1) / kWarpSize),
             shuffle_.below(2) == 1, shuffle_),
      dynamic_shared_(launch.dynamic_shared_bytes),
      dynamic_bytes_(launch.dynamic_shared_bytes),
      opted_in_(launch.opted_in) {
  const Size3& block = launch.block;
  int i = 0;
  for (Thread& thread : threads_) {
    const auto at = static_cast<unsigned>(i);
    thread.index = i;
    thread.ids.thread = Size3(at % block.x, at / block.x % block.y, at / (block.x * block.y));
    thread.ids.block = index;
    thread.ids.block_size = block;
    thread.ids.grid_size = launch.grid;
    thread.ids.lane = i % kWarpSize;
    ++i;
  }
}

void Block::throw_outside() { throw Fault("device code was called outside a kernel"); }

void Block::run_thread() {
  Thread& self = *running_;
  try {
    (*body_)();
    if (!self.open_group.empty() || !self.groups.empty()) {
      throw Fault("thread " + text_of(self.ids.thread) +
                  " ends with asynchronous copies that it has not waited for");
    }
  } catch (const Unwind&) {
  } catch (...) {
    self.wait = Wait{};
    fail(std::current_exception());
  }
  --left_;
}

// A thread that has ended leaves its fiber to the next one that has not started: only those that
// wait at the same time need fibers of their own.
Fiber* Block::run_fiber(Fiber& self) {
  for (;;) {
    running_->fiber = &self;
    run_thread();
    if (ready_.empty()) break;
    running_ = &take_ready();
    if (running_->fiber != nullptr) {
      idle_.push_back(&self);
      return running_->fiber;
    }
  }
  idle_.push_back(&self);
  return &scheduler_;
}

void Block::do_later(std::function<void()> work) {
  constexpr uint64_t kRounds[] = {8, 128, 2048, 0};
  if (!rounds_of_later_) rounds_of_later_ = kRounds[shuffle_.below(std::size(kRounds))];
  later_.push_back(std::move(work));
}

void Block::do_one_of_later() {
  std::swap(later_[shuffle_.below(later_.size())], later_.back());
  const std::function<void()> work = std::move(later_.back());
  later_.pop_back();
  try {
    work();
  } catch (...) {
    fail(std::current_exception());
  }
}

void Block::do_later_while_stuck() {
  while (ready_.empty() && !later_.empty()) do_one_of_later();
}

Fiber& Block::choose_next() {
  if (!later_.empty() && *rounds_of_later_ > 0 && shuffle_.below(*rounds_of_later_) == 0) {
    do_one_of_later();
  }
  do_later_while_stuck();
  if (ready_.empty()) return scheduler_;
  running_ = &take_ready();
  if (running_->fiber != nullptr) return *running_->fiber;
  if (idle_.empty()) {
    const size_t at = fibers_.size();
    return fibers_.emplace_back([this, at] { return run_fiber(fibers_[at]); });
  }
  Fiber& fiber = *idle_.back();
  idle_.pop_back();
  fiber.restart();
  return fiber;
}

void Block::run(const std::function<void()>& body) {
  for (const Thread& thread : threads_) ready_.add(thread.index);
  current_ = this;
  body_ = &body;
  left_ = threads_.size();
  while (left_ > 0) {
    do_later_while_stuck();
    if (ready_.empty()) {
      try {
        throw_stuck();
      } catch (...) {
        fail(std::current_exception());
      }
    }
    scheduler_.switch_to(choose_next());
  }
  running_ = nullptr;
  if (failure_ == nullptr) {
    try {
      for (const auto& check : checks_) check();
    } catch (...) {
      failure_ = std::current_exception();
    }
  }
  current_ = nullptr;
  // Copies that nobody waited for keep their destination poisoned.
  for (const Thread& thread : threads_) {
    for (const AsyncCopy& copy : thread.open_group) lift_poison(copy.destination, copy.bytes);
    for (const auto& group : thread.groups) {
      for (const AsyncCopy& copy : group) lift_poison(copy.destination, copy.bytes);
    }
  }
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  const bool intact =
      dynamic_shared_.is_intact() && std::ranges::all_of(static_shared_, [](const auto& entry) {
        return entry.second.is_intact();
      });
  if (!intact)
    throw Fault("block " + text_of(threads_[0].ids.block) + " wrote outside its shared memory");
}

void Block::suspend() {
  Fiber& self = *running_->fiber;
  Fiber& next = choose_next();
  if (&next != &self) self.switch_to(next);
  if (failure_ != nullptr) throw Unwind{};
}

void Block::make_ready(Thread& thread) {
  thread.wait = Wait{};
  if (thread.is_over) thread.is_over = nullptr;
  ready_.add(thread.index);
}

void Block::wait_until(const char* what, std::source_location where,
                       std::function<bool()> is_over) {
  if (failure_ != nullptr) throw Unwind{};
  Thread& self = *running_;
  self.wait = {what, where, 0, nullptr, nullptr, nullptr};
  self.is_over = std::move(is_over);
  if (self.is_over()) make_ready(self);
  suspend();
}

void Block::changed() {
  for (Thread& thread : threads_) {
    if (thread.is_over && thread.is_over()) make_ready(thread);
  }
}

// Wakes every thread that waits, to leave its kernel.
void Block::fail(std::exception_ptr failure) {
  if (failure_ == nullptr) failure_ = std::move(failure);
  for (Thread& thread : threads_) {
    if (thread.wait.what != nullptr) make_ready(thread);
  }
}

void Block::throw_stuck() const {
  std::string text =
      "block " + text_of(threads_[0].ids.block) + ": threads wait for others that do not come:";
  std::map<std::string, std::pair<int, const Thread*>> places;
  int ended = 0;
  for (const Thread& thread : threads_) {
    if (thread.wait.what == nullptr) {
      ++ended;
      continue;
    }
    auto& [count, first] =
        places[std::string(thread.wait.what) + " at " + place_of(thread.wait.where)];
    if (count++ == 0) first = &thread;
  }
  for (const auto& [place, who] : places) {
    text += " " + std::to_string(who.first) + " in " + place + " (the first is thread " +
            text_of(who.second->ids.thread) + ");";
  }
  throw Fault(text + " " + std::to_string(ended) + " have ended");
}

void Block::warp_collective(const char* what, std::source_location where, uint32_t mask,
                            const void* in, void* out, Combine combine) {
  if (failure_ != nullptr) throw Unwind{};
  Thread& self = *running_;
  if ((mask >> self.ids.lane & 1u) == 0) {
    throw Fault(place_of(where) + ": " + what + ": the calling lane " +
                std::to_string(self.ids.lane) + " is not in its mask");
  }
  self.wait = {what, where, mask, in, out, combine};
  const size_t first = static_cast<size_t>(self.index - self.ids.lane);
  for (uint32_t lanes = mask; lanes != 0; lanes &= lanes - 1) {
    const int lane = std::countr_zero(lanes);
    const size_t at = first + static_cast<size_t>(lane);
    if (at >= threads_.size()) {
      throw Fault(place_of(where) + ": " + what + ": its mask names lane " + std::to_string(lane) +
                  ", which the block does not have");
    }
    const Wait& other = threads_[at].wait;
    // Comes later, or never: then the block gets stuck and says so.
    if (other.what != what || other.mask != mask || other.combine != combine ||
        !same_place(other.where, where)) {
      suspend();
      return;
    }
  }
  const void* ins[kWarpSize] = {};
  void* outs[kWarpSize] = {};
  for (uint32_t lanes = mask; lanes != 0; lanes &= lanes - 1) {
    const int lane = std::countr_zero(lanes);
    const Wait& wait = threads_[first + static_cast<size_t>(lane)].wait;
    ins[lane] = wait.in;
    outs[lane] = wait.out;
  }
  combine(ins, outs, mask);
  for (uint32_t lanes = mask; lanes != 0; lanes &= lanes - 1) {
    make_ready(threads_[first + static_cast<size_t>(std::countr_zero(lanes))]);
  }
  suspend();  // the last to come has no head start
}

int Block::barrier(std::source_location where, bool predicate) {
  if (failure_ != nullptr) throw Unwind{};
  Thread& self = *running_;
  static constexpr char kWhat[] = "__syncthreads";
  self.wait = {kWhat, where, 0, nullptr, nullptr, nullptr};
  ++at_barrier_;
  predicates_ += predicate ? 1 : 0;
  if (at_barrier_ == static_cast<int>(threads_.size())) {
    for (const Thread& thread : threads_) {
      if (!same_place(thread.wait.where, where)) {
        throw Fault("threads " + text_of(self.ids.thread) + " and " + text_of(thread.ids.thread) +
                    " of a block met in different barriers: " + place_of(where) + " and " +
                    place_of(thread.wait.where));
      }
    }
    const int count = std::exchange(predicates_, 0);
    at_barrier_ = 0;
    for (Thread& thread : threads_) {
      thread.barrier_count = count;
      make_ready(thread);
    }
  }
  suspend();
  return self.barrier_count;
}

void* Block::static_shared(const void* site, size_t bytes, size_t alignment) {
  const auto found = static_shared_.find(site);
  if (found != static_shared_.end()) return found->second.data();
  static_bytes_ = (static_bytes_ + alignment - 1) / alignment * alignment + bytes;
  const size_t padded =
      (static_bytes_ + kSharedAlignment - 1) / kSharedAlignment * kSharedAlignment;
  const size_t all = dynamic_bytes_ == 0 ? static_bytes_ : padded + dynamic_bytes_;
  if (static_bytes_ > kDefaultSharedBytes ||
      all > (opted_in_ ? kMaxSharedBytes : kDefaultSharedBytes)) {
    throw Fault("launch refused: " + std::to_string(static_bytes_) + " static and " +
                std::to_string(dynamic_bytes_) + " dynamic bytes of shared memory come to " +
                std::to_string(all) +
                (opted_in_ ? "; a block has " : ", without opting in; a block has ") +
                std::to_string(opted_in_ ? kMaxSharedBytes : kDefaultSharedBytes));
  }
  if (alignment > SharedMemory::kAlignment) throw Fault("a shared variable is aligned too much");
  return static_shared_.try_emplace(site, bytes).first->second.data();
}

bool Block::in_shared(const void* address, size_t bytes) const {
  return dynamic_shared_.contains(address, bytes) ||
         std::ranges::any_of(static_shared_, [&](const auto& entry) {
           return entry.second.contains(address, bytes);
         });
}

void Block::require_shared(const void* address, size_t bytes, const char* what) const {
  if (!in_shared(address, bytes)) throw Fault(std::string(what) + " outside shared memory");
}

void Block::copy_async(void* destination, const void* source, size_t bytes, size_t source_bytes) {
  require_shared(destination, bytes, "cp.async writes");
  if (source_bytes > bytes) throw Fault("cp.async reads more bytes than it writes");
  poison(destination, bytes);
  running_->open_group.push_back({destination, source, bytes, source_bytes});
}

void Block::commit_copies() { running_->groups.push_back(std::exchange(running_->open_group, {})); }

void Block::wait_copies(int pending) {
  auto& groups = running_->groups;
  while (static_cast<int>(groups.size()) > pending) {
    for (const AsyncCopy& copy : groups.front()) complete(copy);
    groups.erase(groups.begin());
  }
}

void Block::complete(const AsyncCopy& copy) {
  lift_poison(copy.destination, copy.bytes);
  auto* to = static_cast<std::byte*>(copy.destination);
  if (copy.source_bytes > 0) std::memcpy(to, copy.source, copy.source_bytes);
  std::memset(to + copy.source_bytes, 0, copy.bytes - copy.source_bytes);
}

}  // namespace zinc::emulator
