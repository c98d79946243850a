#include <optional>
#include <string>
#include <utility>

#include "core/error.h"
#include "files/torch/in_quotes.h"
#include "files/torch/pickle_machine.h"

namespace zinc::files::torch {

void PickleMachine::push_global(std::string_view module, std::string_view name) {
  const Global* global = find_global(str(module, '.', name));
  if (global == nullptr) {
    fail(str("the pickle names ", in_quotes(str(module, '.', name)),
             ", which is not among the classes that zinc reads from weights and checkpoints; "
             "nothing of the file was run. Load it with PyTorch where it is trusted, and save "
             "its tensors alone (safetensors.torch.save_file)"));
  }
  push(Kind::global, global);
}

const Global& PickleMachine::global_of(uint32_t index) {
  if (node(index).kind != Kind::global) {
    fail(str("the pickle calls ", name_of(node(index).kind), ": it is damaged"));
  }
  return *std::get<const Global*>(node(index).data);
}

uint32_t PickleMachine::call(uint32_t callee, uint32_t arguments) {
  const Global& global = global_of(callee);
  if (node(arguments).kind != Kind::tuple) fail("arguments that are no tuple: it is damaged");
  switch (global.role) {
    case GlobalRole::tensor:
    case GlobalRole::typed_tensor:
      return make_tensor(global, arguments);
    case GlobalRole::parameter: {
      const uint32_t tensor = value(arguments).size() == 0
                                  ? arguments
                                  : std::get<Children>(node(arguments).data).front();
      value(tensor).as_tensor();
      return tensor;
    }
    case GlobalRole::tensor_with_state: {
      // (function, type, arguments, state): the function makes the tensor.
      const Children parts = std::get<Children>(node(arguments).data);
      if (parts.size() != 4) fail(str(global.name, " with ", parts.size(), " arguments"));
      if (global_of(parts[0]).role == GlobalRole::tensor_with_state) {
        fail(str(global.name, " within itself"));
      }
      const uint32_t tensor = call(parts[0], parts[2]);
      value(tensor).as_tensor();
      return tensor;
    }
    case GlobalRole::dict:
    case GlobalRole::list:
    case GlobalRole::tuple:
    case GlobalRole::set:
    case GlobalRole::bytes:
      return call_container(global, arguments);
    case GlobalRole::encoded_text:
      return decode(arguments);
    case GlobalRole::reconstructor:
      return reconstruct(arguments);
    case GlobalRole::object: {
      const uint32_t nothing = add(Kind::none, {});
      return add(Kind::object, Document::Instance{&global, arguments, nothing});
    }
    case GlobalRole::storage:
    case GlobalRole::untyped_storage:
    case GlobalRole::element_type:
    case GlobalRole::plain_class:
      break;
  }
  fail(str("the pickle calls ", global.name, ", which zinc knows as a name only"));
}

uint32_t PickleMachine::call_container(const Global& global, uint32_t arguments) {
  const Value given = value(arguments);
  const std::optional<Value> first =
      given.size() > 0 ? std::optional<Value>(given.at(size_t{0})) : std::nullopt;
  const auto is = [&](Kind kind) { return first && first->kind() == kind; };
  const bool single = given.size() == 1;
  const uint32_t inner = single ? std::get<Children>(node(arguments).data).front() : arguments;
  switch (global.role) {
    case GlobalRole::dict:
      // A defaultdict is made with what its entries are by default, a Counter with its entries.
      if (given.size() == 0 || (single && (is(Kind::global) || is(Kind::none)))) {
        return add(Kind::dict, Children{});
      }
      if (single && is(Kind::dict)) return inner;
      break;
    case GlobalRole::bytes:
      if (given.size() == 0) return add(Kind::bytes, std::string_view());
      if (single && is(Kind::bytes)) return inner;
      // bytearray(text, "latin-1")
      if (is(Kind::string)) return decode(arguments);
      break;
    case GlobalRole::list:
    case GlobalRole::tuple:
    case GlobalRole::set: {
      const Kind kind = global.role == GlobalRole::list    ? Kind::list
                        : global.role == GlobalRole::tuple ? Kind::tuple
                                                           : Kind::set;
      if (given.size() == 0) return add(kind, Children{});
      if (single && (is(Kind::list) || is(Kind::tuple) || is(Kind::set))) {
        return copied(kind, inner);
      }
      break;
    }
    default:
      break;
  }
  fail(str(global.name, " is made from arguments that zinc does not read"));
}

uint32_t PickleMachine::copied(Kind kind, uint32_t from) {
  Children children = std::get<Children>(node(from).data);
  spend(static_cast<int64_t>(children.size()));
  return add(kind, std::move(children));
}

// (text, encoding): each character of the text is one byte.
uint32_t PickleMachine::decode(uint32_t arguments) {
  const Value given = value(arguments);
  if (given.size() != 2) fail("encoded text needs a text and an encoding");
  const std::string_view text = given.at(size_t{0}).as_string();
  const std::string_view encoding = given.at(size_t{1}).as_string();
  if (encoding != "latin1" && encoding != "latin-1") {
    fail(str("text in the encoding ", in_quotes(encoding), ", which zinc does not read"));
  }
  spend(static_cast<int64_t>(text.size() / sizeof(Node)));
  std::string& bytes = document_.decoded_.emplace_back();
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x80) {
      bytes += text[i];
      continue;
    }
    const bool pair = (byte == 0xc2 || byte == 0xc3) && i + 1 < text.size() &&
                      (static_cast<unsigned char>(text[i + 1]) & 0xc0) == 0x80;
    if (!pair) fail("text that is not latin-1 stands for bytes: the pickle is damaged");
    bytes += static_cast<char>(((byte & 3) << 6) | (text[++i] & 0x3f));
  }
  return add(Kind::bytes, std::string_view(bytes));
}

uint32_t PickleMachine::reconstruct(uint32_t arguments) {
  const Children parts = std::get<Children>(node(arguments).data);
  if (parts.size() != 3) fail("an instance is made of a class, its parent and a value");
  const Global& type = global_of(parts[0]);
  if (type.role != GlobalRole::object) fail(str("an instance of ", type.name));
  const uint32_t nothing = add(Kind::none, {});
  return add(Kind::object, Document::Instance{&type, arguments, nothing});
}

// Attributes: of a known object they are kept; those of a dict (its _metadata) and of a tensor (its
// gradient's hooks) say nothing about values.
void PickleMachine::build() {
  const uint32_t state = pop();
  const uint32_t target = top();
  switch (node(target).kind) {
    case Kind::object:
      std::get<Document::Instance>(node(target).data).state = state;
      return;
    case Kind::dict:
    case Kind::tensor:
      return;
    default:
      fail(str("the pickle gives attributes to ", name_of(node(target).kind), ": it is damaged"));
  }
}

// --- tensors ------------------------------------------------------------------------------------

Shape PickleMachine::shape_of(const Value& sizes) const {
  if (sizes.kind() != Kind::tuple) sizes.fail("a tensor's shape is no tuple");
  if (sizes.size() > kMaxRank) {
    sizes.fail(
        str("a tensor with ", sizes.size(), " dimensions; at most ", kMaxRank, " are supported"));
  }
  Shape shape;
  int64_t elements = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t extent = sizes.at(i).as_int64();
    if (extent < 0 || __builtin_mul_overflow(elements, extent, &elements)) {
      sizes.fail("a tensor's shape is negative or overflows");
    }
    shape.push_back(extent);
  }
  return shape;
}

void PickleMachine::check_extent(const TensorRecord& tensor, int64_t storage_elements) const {
  if (tensor.offset < 0 || tensor.offset > storage_elements) {
    fail("a tensor begins outside its storage: the pickle is damaged");
  }
  if (tensor.shape.numel() == 0) return;
  int64_t last = tensor.offset;
  for (int i = 0; i < tensor.shape.rank(); ++i) {
    int64_t reach = 0;
    if (__builtin_mul_overflow(tensor.shape[i] - 1, tensor.strides[static_cast<size_t>(i)],
                               &reach) ||
        __builtin_add_overflow(last, reach, &last)) {
      fail("a tensor's strides overflow: the pickle is damaged");
    }
  }
  if (last >= storage_elements) {
    fail(str("a tensor ", tensor.shape, " reaches element ", last, " of a storage of ",
             storage_elements, ": the pickle is damaged"));
  }
}

uint32_t PickleMachine::make_tensor(const Global& global, uint32_t arguments) {
  const Value given = value(arguments);
  const size_t needed = global.role == GlobalRole::typed_tensor ? 7 : 4;
  if (given.size() < needed) {
    fail(str(global.name, " needs ", needed, " arguments, not ", given.size()));
  }
  const Value storage = given.at(size_t{0});
  if (!storage.is_object() || storage.type_name() != kStorageRecord.name) {
    storage.expected("a storage");
  }
  // ("storage", class, key, device, elements)
  const Value parts = storage.arguments();
  if (parts.size() < 5 || parts.at(size_t{1}).kind() != Kind::global) {
    parts.fail("a storage is described by its class, key, device and size");
  }
  // Before PyTorch 1.6 also: the part of another storage that this one is.
  if (parts.size() > 5 && !parts.at(size_t{5}).is_none()) {
    parts.fail("a storage that is a part of another, which zinc does not read; save it again");
  }
  const Global* type = find_global(parts.at(size_t{1}).type_name());
  const bool untyped = type->role == GlobalRole::untyped_storage;
  if (!untyped && type->role != GlobalRole::storage) parts.fail("a storage of no known class");
  TensorRecord tensor;
  tensor.type = type->type;
  tensor.storage = parts.at(size_t{2}).as_string();
  const int64_t units = parts.at(size_t{4}).as_int64();
  if (units < 0 || __builtin_mul_overflow(units, type->type.bytes, &tensor.storage_bytes)) {
    parts.fail("a storage's size is negative or overflows");
  }
  if (global.role == GlobalRole::typed_tensor) {
    const Value named = given.at(size_t{6});
    const Global* element = named.kind() == Kind::global ? find_global(named.type_name()) : nullptr;
    if (element == nullptr || element->role != GlobalRole::element_type) {
      named.expected("an element type");
    }
    tensor.type = element->type;
  } else if (untyped) {
    storage.fail("a tensor on a storage without an element type");
  }
  tensor.offset = given.at(size_t{1}).as_int64();
  tensor.shape = shape_of(given.at(size_t{2}));
  const Value strides = given.at(size_t{3});
  if (strides.kind() != Kind::tuple || strides.size() != static_cast<size_t>(tensor.shape.rank())) {
    strides.fail("a tensor needs one stride for each dimension");
  }
  for (size_t i = 0; i < strides.size(); ++i) {
    tensor.strides[i] = strides.at(i).as_int64();
    if (tensor.strides[i] < 0) strides.fail("a tensor's stride is negative");
  }
  check_extent(tensor, tensor.storage_bytes / tensor.type.bytes);
  spend(static_cast<int64_t>(sizeof(TensorRecord) / sizeof(Node)));
  document_.tensors_.push_back(tensor);
  return add(Kind::tensor, static_cast<int64_t>(document_.tensors_.size() - 1));
}

}  // namespace zinc::files::torch
