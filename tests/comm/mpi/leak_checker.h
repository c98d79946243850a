// tests/comm/mpi/leak_checker.h: what the address sanitizer is told in a process that mpirun
// starts.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace zinc {

// Variables of the environment, as in "NAME=VALUE"; none without the sanitizer. Open MPI never
// frees part of its memory, and has closed the plug-ins that took it when the leak checker looks:
// only stacks unwound the slow way name a library that can be told apart. The library is among the
// first twenty frames, below those of the loader; more of them cost every program its start. A
// command without ranks is three times as fast without this.
inline std::vector<std::string> leak_checker_environment() {
#ifdef __SANITIZE_ADDRESS__
  const auto file = std::filesystem::absolute("cmake/leaks_to_ignore.txt");
  return {"ASAN_OPTIONS=fast_unwind_on_malloc=0:malloc_context_size=24",
          "LSAN_OPTIONS=print_suppressions=0:suppressions=" + file.string()};
#else
  return {};
#endif
}

}  // namespace zinc
