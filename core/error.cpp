#include "core/error.h"

#include <cstring>
#include <utility>

namespace zinc {
namespace {

std::string io_message(std::string_view operation, const std::string& path, int64_t offset,
                       int error_number, std::string_view hint) {
  std::string message = str("cannot ", operation, " '", path, "'");
  if (offset >= 0) message += str(" at offset ", offset);
  message += ": ";
  message += error_number == 0 ? "short transfer" : std::strerror(error_number);
  if (error_number != 0) message += str(" (errno ", error_number, ")");
  if (!hint.empty()) message += str("; ", hint);
  return message;
}

}  // namespace

IoError::IoError(std::string_view operation, std::string path, int64_t offset, int error_number,
                 std::string_view hint)
    : Error(io_message(operation, path, offset, error_number, hint)),
      path_(std::move(path)),
      offset_(offset),
      error_number_(error_number) {}

PeerFailed::PeerFailed(std::string_view operation, int rank)
    : Error(str(operation, ": rank ", rank, " failed; its message says why")), rank_(rank) {}

namespace detail {

void throw_invalid_argument(std::string message) { throw InvalidArgument(std::move(message)); }
void throw_internal_error(std::string message) { throw InternalError(std::move(message)); }

}  // namespace detail
}  // namespace zinc
