#include "core/exit_codes.h"

#include <cerrno>
#include <new>

#include "core/error.h"

namespace zinc {
namespace {

ExitCode code_of(const IoError& error) {
  switch (error.error_number()) {
    case EACCES:
    case EPERM:
    case EROFS:
      return kPermission;
    case EEXIST:
    case EWOULDBLOCK:
      return kCannotCreate;
    default:
      return kIo;
  }
}

}  // namespace

Failure describe(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const ConfigError& e) {
    return {kConfiguration, e.what()};
  } catch (const DataError& e) {
    return {kBadData, e.what()};
  } catch (const NumericsError& e) {
    return {kBadData, e.what()};
  } catch (const OutOfMemory& e) {
    return {kOutOfMemory, e.what()};
  } catch (const CommError& e) {
    return {kLostPeer, e.what()};
  } catch (const IoError& e) {
    return {code_of(e), e.what()};
  } catch (const InvalidArgument& e) {
    return {kUsage, e.what()};
  } catch (const std::bad_alloc&) {
    return {kOutOfMemory, "the system has no memory left"};
  } catch (const std::exception& e) {
    return {kInternal, e.what()};
  } catch (...) {
    return {kInternal, "an error of unknown type"};
  }
}

}  // namespace zinc
