// tests/emulator/functions.h: kernels as the driver knows them: by the address of their entry, with
// what each has opted in to and how it was launched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/emulator/grid.h"

namespace zinc::emulator {

// The launch as a driver sees it, on the calling thread's device; notes its size where that
// is not refused.
Launch launch_of(const void* function, Size3 grid, Size3 block, size_t dynamic_shared_bytes);

// Calls of cudaFuncSetAttribute so far, in all threads.
int64_t num_opt_ins();
// No kernel has opted in to anything, as in a process that has just begun.
void forget_opt_ins();

// Of every kernel that was launched, by address, a line "OFFSET THREADS BYTES": the entry, in
// hexadecimal, as far behind the beginning of this program as its symbol table says; the most
// threads of a block and dynamic bytes of shared memory. False where the file cannot be written.
bool write_launches(const std::string& path);

}  // namespace zinc::emulator
