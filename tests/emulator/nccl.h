// tests/emulator/nccl.h: planted faults of the emulated NCCL (tests/emulator/nccl.cpp).
#pragma once

namespace zinc::emulator {

// This rank never joins a communicator; -1: all do.
void set_nccl_absent_rank(int rank);

}  // namespace zinc::emulator
