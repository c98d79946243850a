// tests/emulator/fiber.h: a stackful coroutine with the sanitizer's annotations.
#pragma once

#include <boost/context/detail/fcontext.hpp>

#include <cstddef>
#include <functional>

namespace zinc::emulator {

// Fibers of an OS thread hand control to each other. One without a body stands for what the OS
// thread ran before it switched to the first.
class Fiber {
 public:
  Fiber() = default;
  // Begins with `body`, which must not throw, when it is switched to; `body` returns the fiber that
  // goes on. After that restart() begins it again.
  explicit Fiber(std::function<Fiber*()> body);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  void restart();
  // Called in this fiber: `to` goes on, until another fiber switches to this one.
  void switch_to(Fiber& to);

 private:
  struct Switch {
    Fiber* from;
    Fiber* to;
  };
  static void run(boost::context::detail::transfer_t transfer);
  void leave(Fiber& to, bool for_good);
  void arrive(boost::context::detail::transfer_t transfer);

  std::function<Fiber*()> body_;
  boost::context::detail::fcontext_t context_ = nullptr;
  void* mapping_ = nullptr;
  // For the address sanitizer: the stack, and the sanitizer's data while another fiber runs.
  const void* stack_ = nullptr;
  size_t stack_bytes_ = 0;
  void* fake_stack_ = nullptr;
};

}  // namespace zinc::emulator
