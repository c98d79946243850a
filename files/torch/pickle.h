// files/torch/pickle.h: reads a pickle as data, without Python and without running anything.
//
// A pickle is a program for a stack machine (Python's Lib/pickletools.py documents its opcodes,
// protocols 2 to 5). This machine knows the opcodes that build values. Of calls it knows those of
// the names in files/torch/pickle_globals.h, and makes a tensor, a container, or a record of the
// call. It refuses every other name, text opcodes of protocols 0 and 1, extension codes and buffers
// outside the pickle.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "files/torch/value.h"

namespace zinc::files::torch {

struct PickleLimits {
  int64_t max_bytes = int64_t{128} << 20;  // at most 4 GiB - 1
  int64_t max_values = 8'000'000;          // values, references between them, the stack, the memo
  int max_depth = 100;                     // containers within each other
};

// `name` stands in messages. DataError "<name>: byte N: ..." for a pickle that is damaged, beyond a
// limit, contains itself, or names something that is not on the list.
std::unique_ptr<const Document> read_pickle(std::string text, std::string name,
                                            const PickleLimits& limits = {});

// The same of a pickle that more bytes follow.
struct PickleAtFront {
  std::unique_ptr<const Document> document;
  int64_t bytes = 0;  // bytes of the pickle
};
PickleAtFront read_front_pickle(std::string text, std::string name,
                                const PickleLimits& limits = {});

}  // namespace zinc::files::torch
