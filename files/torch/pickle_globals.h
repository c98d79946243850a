// files/torch/pickle_globals.h: the classes and functions that a pickle may name, and nothing else.
#pragma once

#include <cstdint>
#include <string_view>

#include "files/torch/value.h"

namespace zinc::files::torch {

// The value that zinc makes for a call of the global. No Python code is ever run.
enum class GlobalRole : uint8_t {
  storage,            // torch.FloatStorage: the class of a storage
  untyped_storage,    // torch.storage.UntypedStorage: bytes; the tensor has the type
  element_type,       // torch.float32: a constant
  tensor,             // torch._utils._rebuild_tensor_v2(storage, offset, shape, strides, ...)
  typed_tensor,       // torch._utils._rebuild_tensor_v3(storage, ..., element type, ...)
  parameter,          // torch._utils._rebuild_parameter(tensor, ...): the tensor
  tensor_with_state,  // torch._tensor._rebuild_from_type_v2(function, type, arguments, state)
  dict,               // collections.OrderedDict and its like
  list,
  tuple,  // and torch.Size
  set,
  bytes,
  encoded_text,   // _codecs.encode(text, "latin1"): how protocol 2 has bytes
  reconstructor,  // copyreg._reconstructor(class, parent class, value): an instance of the class
  plain_class,    // object, torch.Tensor, int: named as an argument, never called
  object,         // an instance is kept as a record of its arguments and its state
};

struct Global {
  std::string_view name;  // module and name, a dot between
  GlobalRole role;
  ElementType type{};  // for storages and element types
};

// Null where the name is not on the list. `builtins` is understood under Python 2's name too.
const Global* find_global(std::string_view name);

// The types of records that the pickle machine makes itself.
extern const Global kStorageRecord;  // arguments: the pickle's description of the storage
extern const Global kLargeInteger;   // an int beyond 64 bits; its digits are not kept

}  // namespace zinc::files::torch
