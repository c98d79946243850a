// files/torch/value.h: the contents of a pickle, as a tree of plain values that know their place in
// the file.
//
// A Document owns the text and every value; a Value is a light reference into it and lives no
// longer. Values that the pickle mentions several times are shared, so the tree may be a graph, but
// it has no cycle and at most PickleLimits::max_depth levels (files/torch/pickle.h).
//
// Checked accessors throw DataError with file, byte and the expected kind:
//   model.pt: archive/data.pkl: byte 90: expected an integer, found a string
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/dtype.h"
#include "core/shape.h"
#include "core/view.h"

namespace zinc::files::torch {

enum class Kind : uint8_t {
  none,
  boolean,
  integer,  // fits int64; a larger one is an object "int"
  number,   // a double
  string,   // UTF-8 as the file has it, not checked
  bytes,    // bytes and bytearray
  list,
  tuple,  // and torch.Size
  dict,   // and OrderedDict: entries in their order
  set,    // and frozenset
  tensor,
  global,  // the name of a class or of a constant, "torch.float32"
  object,  // an instance of a class that is known to be harmless: its arguments and its state
};
std::string_view name_of(Kind kind);  // "a string", "a dict", ...

// The element type of a tensor, as PyTorch names it.
struct ElementType {
  std::string_view name;       // "float32"
  int64_t bytes = 0;           // of one element
  std::optional<DType> dtype;  // absent for a type that zinc does not compute with
};

// The place of a tensor's elements: element (i, j, ...) is number offset + i stride(0) + j
// stride(1) + ... of the storage. All of them lie within its `storage_bytes`.
struct TensorRecord {
  std::string_view storage;  // its key: the archive's entry data/<key>
  int64_t storage_bytes = 0;
  ElementType type;
  int64_t offset = 0;  // elements
  Shape shape;
  Strides strides{};  // elements, none negative
};

class Document;
struct Global;  // files/torch/pickle_globals.h

class Value {
 public:
  Kind kind() const;
  bool is_none() const { return kind() == Kind::none; }
  bool is_string() const { return kind() == Kind::string; }
  bool is_integer() const { return kind() == Kind::integer; }
  bool is_list() const { return kind() == Kind::list; }
  bool is_dict() const { return kind() == Kind::dict; }
  bool is_tensor() const { return kind() == Kind::tensor; }
  bool is_object() const { return kind() == Kind::object; }

  bool as_bool() const;
  int64_t as_int64() const;
  double as_double() const;            // integers too
  std::string_view as_string() const;  // a string
  std::string_view as_bytes() const;   // bytes
  // A string that may name a tensor: 1 to 512 bytes without control characters.
  std::string_view as_name() const;
  const TensorRecord& as_tensor() const;

  // Elements of a list, tuple or set, entries of a dict; DataError for anything else.
  size_t size() const;
  Value at(size_t index) const;  // in a list, tuple or set; DataError beyond the last
  Value key(size_t index) const;
  Value value(size_t index) const;  // in a dict
  // Dicts: the value under a string, the last of several. Linear in the size of the dict.
  std::optional<Value> find(std::string_view key) const;
  Value at(std::string_view key) const;  // DataError where the key is absent

  std::string_view type_name() const;  // for a global or an object: "argparse.Namespace"
  Value arguments() const;             // for an object: a tuple
  Value state() const;                 // for an object: the argument of BUILD, or none

  // Throws DataError "<file>: byte N: <message>".
  [[noreturn]] void fail(std::string_view message) const;

 private:
  friend class Document;
  friend class PickleMachine;
  Value(const Document* document, uint32_t index) : document_(document), index_(index) {}
  void expect(Kind kind) const;
  [[noreturn]] void expected(std::string_view what) const;

  const Document* document_;
  uint32_t index_;
};

// A pickle's text and values. Made by read_pickle(); without values before.
class Document {
 public:
  Document(std::string text, std::string name) : name_(std::move(name)), text_(std::move(text)) {}
  Document(const Document&) = delete;
  Document& operator=(const Document&) = delete;

  Value root() const { return Value(this, root_); }
  const std::string& name() const { return name_; }
  const std::vector<TensorRecord>& tensors() const { return tensors_; }  // all, in their order

  // DataError where a value contains itself, or nests more than `max_depth` levels.
  void require_no_cycle(int max_depth) const;

 private:
  friend class Value;
  friend class PickleMachine;
  using Children = std::vector<uint32_t>;
  // The parts of an object, by index of the values.
  struct Instance {
    const Global* type;
    uint32_t arguments = 0;
    uint32_t state = 0;
  };
  struct Node {
    Kind kind = Kind::none;
    uint32_t place = 0;  // byte of the pickle
    std::variant<std::monostate, bool, int64_t, double, std::string_view, Children, const Global*,
                 Instance>
        data;
  };

  std::string name_;
  std::string text_;
  std::deque<std::string> decoded_;  // bytes that the text holds in another form
  std::vector<Node> nodes_;
  std::vector<TensorRecord> tensors_;  // a tensor's node holds its index
  uint32_t root_ = 0;
};

}  // namespace zinc::files::torch
