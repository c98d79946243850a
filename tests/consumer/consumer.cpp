// The whole program of a user of the installed package.
#include <cstdio>

#include "zinc/core/build_info.h"
#include "zinc/core/shape.h"

int main() {
  const zinc::Shape shape{4, 512};
  const zinc::BuildInfo info = zinc::build_info();
  std::printf("zinc %.*s: %s has %lld elements\n", static_cast<int>(info.version.size()),
              info.version.data(), zinc::to_string(shape).c_str(),
              static_cast<long long>(shape.numel()));
  return shape.numel() == 2048 ? 0 : 1;
}
