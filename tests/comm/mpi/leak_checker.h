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
// command without ranks is three times as fast without this. find_leaks = false: other faults
// alone.
inline std::vector<std::string> leak_checker_environment(bool find_leaks = true) {
#ifdef __SANITIZE_ADDRESS__
  if (!find_leaks) return {"ASAN_OPTIONS=detect_leaks=0"};
  const auto file = std::filesystem::absolute("cmake/leaks_to_ignore.txt");
  return {"ASAN_OPTIONS=fast_unwind_on_malloc=0:malloc_context_size=24",
          "LSAN_OPTIONS=print_suppressions=0:suppressions='" + file.string() + "'"};
#else
  static_cast<void>(find_leaks);
  return {};
#endif
}

}  // namespace zinc
