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

// Writes a line "OFFSET THREADS BYTES" for every kernel that was launched, by address: the offset
// of its entry from the beginning of the program, in hexadecimal, as in the symbol table; the most
// threads of a block; the most dynamic bytes of shared memory. False if the file cannot be written.
bool write_launches(const std::string& path);

}  // namespace zinc::emulator
