// comm/mpi/checked.h: every MPI call's return code, turned into CommError.
#pragma once

#include <mpi.h>

#include <string>
#include <string_view>

#include "core/error.h"

namespace zinc::comm {

inline std::string mpi_error_text(int code) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return str("MPI error ", code);
  return std::string(text, static_cast<size_t>(length));
}

inline void check_mpi(int code, std::string_view call) {
  if (code == MPI_SUCCESS) return;
  throw CommError(str(call, " failed: ", mpi_error_text(code)));
}

}  // namespace zinc::comm
