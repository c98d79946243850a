// tests/emulator/fiber.h: a stackful coroutine with the sanitizer's annotations.
#pragma once

#include <boost/context/fiber.hpp>

#include <cstddef>
#include <functional>

namespace zinc::emulator {

// Resumed by the OS thread that made it; suspends itself. Must have finished before it is
// destroyed.
class Fiber {
 public:
  Fiber() = default;
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // `body` must not throw.
  void start(std::function<void()> body);
  void resume();   // until it suspends or finishes
  void suspend();  // called in the fiber

 private:
  std::function<void()> body_;
  boost::context::fiber fiber_;
  boost::context::fiber resumer_;
  // Of the address sanitizer: this fiber's stack, and that of whoever resumed it.
  const void* stack_ = nullptr;
  size_t stack_bytes_ = 0;
  const void* resumer_stack_ = nullptr;
  size_t resumer_stack_bytes_ = 0;
};

}  // namespace zinc::emulator
