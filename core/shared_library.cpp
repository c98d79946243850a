#include "core/shared_library.h"

#include <dlfcn.h>

#include "core/error.h"

namespace zinc {

SharedLibrary::SharedLibrary(const Names& names)
    : names_(names), handle_(dlopen(names.file, RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ == nullptr) {
    missing_ = str(names.what, " is not found (", dlerror(), "): ", names.cure);
  }
}

void* SharedLibrary::address_of(const char* name) {
  if (handle_ == nullptr) return nullptr;
  void* const address = dlsym(handle_, name);
  if (address == nullptr && missing_.empty()) {
    missing_ = str(names_.file, " has no ", name, ": ", names_.newer);
  }
  return address;
}

}  // namespace zinc
