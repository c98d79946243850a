// files/torch/pickle_machine.h: the stack machine behind read_pickle() (files/torch/pickle.h).
//
// pickle.cpp has the text, the stack and the opcodes. pickle_calls.cpp has the results of calls of
// known names; no other file gives a name a meaning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/shape.h"
#include "files/torch/pickle.h"
#include "files/torch/pickle_globals.h"
#include "files/torch/value.h"

namespace zinc::files::torch {

// Used once.
class PickleMachine {
 public:
  PickleMachine(Document& document, const PickleLimits& limits)
      : document_(document), text_(document.text_), limits_(limits) {}

  int64_t run();  // the pickle's length in bytes

 private:
  using Node = Document::Node;
  using Children = Document::Children;

  // --- one opcode; false where the function does not know it
  bool push_constant(uint8_t opcode);
  bool push_text(uint8_t opcode);
  bool change_stack(uint8_t opcode);
  bool make_container(uint8_t opcode);
  bool fill_container(uint8_t opcode);
  bool make_object(uint8_t opcode);

  // --- the text
  template <class T>
  T fixed();
  std::string_view take(uint64_t count);
  std::string_view line();
  int64_t place() const { return opcode_at_; }
  [[noreturn]] void fail(std::string_view what) const;
  void spend(int64_t values);

  // --- values
  uint32_t add(Kind kind, decltype(Node::data) data);
  void push(uint32_t value);
  void push(Kind kind, decltype(Node::data) data) { push(add(kind, std::move(data))); }
  void push_long(std::string_view bytes);
  uint32_t pop();
  uint32_t top() const;
  Children pop_to_mark();
  void push_children(Kind kind, Children children);
  Node& node(uint32_t index) { return document_.nodes_[index]; }
  Children& children_of(uint32_t index, Kind kind, std::string_view what);
  void append(uint32_t list, Kind kind, std::span<const uint32_t> values);
  void set_items(uint32_t dict, std::span<const uint32_t> keys_and_values);
  void put(uint64_t index, uint32_t value);
  void get(uint64_t index);

  // --- calls
  void push_global(std::string_view module, std::string_view name);
  const Global& global_of(uint32_t index);
  uint32_t call(uint32_t callee, uint32_t arguments);
  uint32_t call_container(const Global& global, uint32_t arguments);
  uint32_t copied(Kind kind, uint32_t arguments);
  uint32_t make_tensor(const Global& global, uint32_t arguments);
  uint32_t decode(uint32_t arguments);
  uint32_t reconstruct(uint32_t arguments);
  void build();
  Value value(uint32_t index) const { return Value(&document_, index); }
  Shape shape_of(const Value& sizes) const;
  void check_extent(const TensorRecord& tensor, int64_t storage_elements) const;

  Document& document_;
  std::string_view text_;
  PickleLimits limits_;
  size_t at_ = 0;
  int64_t opcode_at_ = 0;
  int64_t spent_ = 0;
  std::vector<uint32_t> stack_;
  std::vector<size_t> marks_;  // sizes of the stack
  std::vector<uint32_t> memo_;
};

}  // namespace zinc::files::torch
