// comm/phantom/phantom.h: any world without peers, for a run on a meta device.
//
// Makes the checks of a real communicator, counts the bytes that it would move and moves nothing.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "core/device.h"

namespace zinc::comm {

struct PhantomOptions {
  int rank = 0;
  int size = 1;
  std::string imitates = "mpi";  // whose workspace_bytes() it gives: single, local, mpi
  Device device{.kind = DeviceKind::cpu, .index = 0, .meta = true};
  // What rank r would pass to the n-th split (from 0). Without it a split gives a group of all
  // ranks where the colour is not negative.
  struct Wish {
    int color = 0;
    int key = 0;
  };
  std::function<Wish(int split, int rank)> wishes{};
};

// backend() is "phantom".
std::unique_ptr<Communicator> make_phantom(PhantomOptions options);

}  // namespace zinc::comm
