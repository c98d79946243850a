// core/exit_codes.h: the exit codes of zinc's processes; a contract (docs/exit_codes.md).
#pragma once

#include <exception>
#include <string>

namespace zinc {

enum ExitCode : int {
  kDone = 0,
  kRegression = 1,  // `zinc bench kernels compare`: a kernel is slower or deviates now
  kUsage = 64,
  kBadData = 65,   // data, weights or a checkpoint do not hold what they have to
  kInternal = 70,  // a defect of zinc
  kOutOfMemory = 71,
  kLostPeer = 72,      // a rank hung or is gone
  kCannotCreate = 73,  // a folder that must not exist does, or is locked
  kIo = 74,            // reading or writing failed, disk full
  kPreempted = 75,     // stopped by a signal, with what can go on saved
  kPermission = 77,
  kConfiguration = 78,
};

struct Failure {
  ExitCode code = kInternal;
  std::string message;
};

// Sorts an exception of the library into the contract.
Failure describe(const std::exception_ptr& error);

}  // namespace zinc
