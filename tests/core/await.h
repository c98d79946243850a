// tests/core/await.h: waiting for a fact instead of sleeping for as long as it may take.
#pragma once

#include <chrono>
#include <stdexcept>
#include <thread>

namespace zinc {

// Returns as soon as `fact()` holds. The limit only ends a hang: then it throws.
template <class Fact>
void await(const Fact& fact) {
  constexpr std::chrono::seconds kHang{100};
  const auto latest = std::chrono::steady_clock::now() + kHang;
  while (!fact()) {
    if (std::chrono::steady_clock::now() > latest) {
      throw std::runtime_error("await: the fact has not come about in 100 s");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace zinc
