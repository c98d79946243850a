// Fuzz target: bytes as a pickle. The machine's result is a graph without cycles whose accessors
// work, and its tensors lie within their storages.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "files/torch/pickle.h"

namespace {

using zinc::files::torch::Kind;
using zinc::files::torch::TensorRecord;
using zinc::files::torch::Value;

void check(bool condition) {
  if (!condition) std::abort();
}

void check_tensor(const TensorRecord& tensor) {
  check(tensor.storage_bytes >= 0 && tensor.offset >= 0 && tensor.type.bytes > 0);
  const int64_t elements = tensor.storage_bytes / tensor.type.bytes;
  if (tensor.shape.numel() == 0) return;
  int64_t last = tensor.offset;
  for (int i = 0; i < tensor.shape.rank(); ++i) {
    check(tensor.strides[static_cast<size_t>(i)] >= 0);
    last += (tensor.shape[i] - 1) * tensor.strides[static_cast<size_t>(i)];
  }
  check(last < elements);
}

// Everything below a value, as far as the budget goes: shared values are met once for each way.
void visit(const Value& root) {
  std::vector<Value> open{root};
  for (int budget = 100'000; budget > 0 && !open.empty(); --budget) {
    const Value value = open.back();
    open.pop_back();
    switch (value.kind()) {
      case Kind::list:
      case Kind::tuple:
      case Kind::set:
        for (size_t i = 0; i < value.size(); ++i) open.push_back(value.at(i));
        break;
      case Kind::dict:
        for (size_t i = 0; i < value.size(); ++i) {
          open.push_back(value.key(i));
          open.push_back(value.value(i));
        }
        break;
      case Kind::object:
        check(!value.type_name().empty());
        open.push_back(value.arguments());
        open.push_back(value.state());
        break;
      case Kind::tensor:
        check_tensor(value.as_tensor());
        break;
      default:
        break;
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto document = zinc::files::torch::read_pickle(
        std::string(reinterpret_cast<const char*>(data), size), "input", {.max_values = 100'000});
    visit(document->root());
  } catch (const zinc::DataError&) {
  }
  return 0;
}
