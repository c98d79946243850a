// core/shared_library.h: a library that a program finds when it first asks for it, so that it
// starts where the library is missing.
#pragma once

#include <string>
#include <type_traits>

namespace zinc {

// The library is never closed: its own threads and exit handlers may outlive us. Copies name the
// same library.
class SharedLibrary {
 public:
  struct Names {
    const char* file = "";  // "libnccl.so.2"
    const char* what = "";  // "NCCL"
    const char* cure =
        "";  // where it is not found: "install it, as ..., and name its folder in ..."
    const char* newer = "";  // where a function is missing: "update NCCL to 2.14 or later"
  };
  // Does not throw where there is no such file.
  explicit SharedLibrary(const Names& names);

  // Sets `function` to the library's function of that name, or to null.
  template <class Function>
  void find(Function*& function, const char* name) {
    static_assert(std::is_function_v<Function>);
    function = reinterpret_cast<Function*>(address_of(name));
  }
  // The first thing that is missing (the file, or a function that was looked for) and the cure;
  // empty: nothing is missing.
  const std::string& missing() const { return missing_; }

 private:
  void* address_of(const char* name);

  Names names_;
  void* handle_ = nullptr;
  std::string missing_;
};

}  // namespace zinc
