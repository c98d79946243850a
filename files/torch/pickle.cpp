#include "files/torch/pickle.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include "core/error.h"
#include "files/torch/pickle_machine.h"

namespace zinc::files::torch {
namespace {

static_assert(std::endian::native == std::endian::little, "a pickle's numbers are little-endian");

// The opcodes that the machine knows, with the names of Python's pickletools.
enum Opcode : uint8_t {
  kMark = '(',
  kStop = '.',
  kPop = '0',
  kPopMark = '1',
  kDup = '2',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinPersId = 'Q',
  kReduce = 'R',
  kBinString = 'T',
  kShortBinString = 'U',
  kBinUnicode = 'X',
  kAppend = 'a',
  kBuild = 'b',
  kGlobal = 'c',
  kDict = 'd',
  kEmptyDict = '}',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kList = 'l',
  kEmptyList = ']',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kEmptyTuple = ')',
  kSetItems = 'u',
  kBinFloat = 'G',
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kProto = 0x80,
  kNewObj = 0x81,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kLong4 = 0x8b,
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kBinBytes8 = 0x8e,
  kEmptySet = 0x8f,
  kAddItems = 0x90,
  kFrozenSet = 0x91,
  kNewObjEx = 0x92,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
  kByteArray8 = 0x96,
};

constexpr uint32_t kNoValue = std::numeric_limits<uint32_t>::max();  // a place of the memo

}  // namespace

// --- the text -----------------------------------------------------------------------------------

void PickleMachine::fail(std::string_view what) const {
  throw DataError(str(document_.name_, ": byte ", place(), ": ", what));
}

std::string_view PickleMachine::take(uint64_t count) {
  if (count > text_.size() - at_) {
    fail(str("the pickle ends within a value of ", count, " bytes: the file is cut short"));
  }
  const std::string_view bytes = text_.substr(at_, count);
  at_ += count;
  return bytes;
}

template <class T>
T PickleMachine::fixed() {
  T value;
  std::memcpy(&value, take(sizeof value).data(), sizeof value);
  return value;
}

std::string_view PickleMachine::line() {
  const size_t end = text_.find('\n', at_);
  if (end == std::string_view::npos) fail("the pickle ends within a name: the file is cut short");
  const std::string_view text = take(end - at_);
  ++at_;
  return text;
}

void PickleMachine::spend(int64_t values) {
  spent_ += values;
  if (spent_ > limits_.max_values) {
    fail(str("the pickle has more than ", limits_.max_values,
             " values: no file of weights or states does; save its tensors alone"));
  }
}

// --- values and the stack -----------------------------------------------------------------------

uint32_t PickleMachine::add(Kind kind, decltype(Node::data) data) {
  spend(1);
  document_.nodes_.push_back(
      {.kind = kind, .place = static_cast<uint32_t>(place()), .data = std::move(data)});
  return static_cast<uint32_t>(document_.nodes_.size() - 1);
}

void PickleMachine::push(uint32_t value) {
  if (static_cast<int64_t>(stack_.size()) >= limits_.max_values) spend(limits_.max_values + 1);
  stack_.push_back(value);
}

uint32_t PickleMachine::top() const {
  const size_t bottom = marks_.empty() ? 0 : marks_.back();
  if (stack_.size() <= bottom) fail("the pickle takes a value that is not there: it is damaged");
  return stack_.back();
}

uint32_t PickleMachine::pop() {
  const uint32_t value = top();
  stack_.pop_back();
  return value;
}

PickleMachine::Children PickleMachine::pop_to_mark() {
  if (marks_.empty()) fail("the pickle goes back to a mark that is not there: it is damaged");
  const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
  Children values(begin, stack_.end());
  stack_.erase(begin, stack_.end());
  marks_.pop_back();
  return values;
}

void PickleMachine::push_children(Kind kind, Children children) {
  spend(static_cast<int64_t>(children.size()));
  push(kind, std::move(children));
}

PickleMachine::Children& PickleMachine::children_of(uint32_t index, Kind kind,
                                                    std::string_view what) {
  if (node(index).kind != kind) {
    fail(str("the pickle ", what, " ", name_of(node(index).kind),
             ": it is damaged, or an object that zinc does not know"));
  }
  return std::get<Children>(node(index).data);
}

void PickleMachine::append(uint32_t list, Kind kind, std::span<const uint32_t> values) {
  Children& children = children_of(list, kind, "adds elements to");
  spend(static_cast<int64_t>(values.size()));
  children.insert(children.end(), values.begin(), values.end());
}

void PickleMachine::set_items(uint32_t dict, std::span<const uint32_t> keys_and_values) {
  Children& children = children_of(dict, Kind::dict, "sets entries of");
  if (keys_and_values.size() % 2 != 0) fail("a dict's last key has no value: it is damaged");
  spend(static_cast<int64_t>(keys_and_values.size()));
  children.insert(children.end(), keys_and_values.begin(), keys_and_values.end());
}

void PickleMachine::put(uint64_t index, uint32_t value) {
  if (index >= static_cast<uint64_t>(limits_.max_values)) {
    fail(str("the pickle remembers a value as number ", index, ", beyond the limit of ",
             limits_.max_values));
  }
  if (index >= memo_.size()) memo_.resize(index + 1, kNoValue);
  memo_[index] = value;
}

void PickleMachine::get(uint64_t index) {
  if (index >= memo_.size() || memo_[index] == kNoValue) {
    fail(str("the pickle uses value number ", index, ", which it never made: it is damaged"));
  }
  push(memo_[index]);
}

// Two's complement, little-endian, of any length.
void PickleMachine::push_long(std::string_view bytes) {
  if (bytes.size() > sizeof(int64_t)) {
    const uint32_t nothing = add(Kind::tuple, Children{});
    push(Kind::object, Document::Instance{&kLargeInteger, nothing, add(Kind::none, {})});
    return;
  }
  const bool negative = !bytes.empty() && (static_cast<unsigned char>(bytes.back()) & 0x80) != 0;
  int64_t value = negative ? -1 : 0;
  std::memcpy(&value, bytes.data(), bytes.size());
  push(Kind::integer, value);
}

// --- opcodes ------------------------------------------------------------------------------------

bool PickleMachine::push_constant(uint8_t opcode) {
  switch (opcode) {
    case kNone:
      push(Kind::none, {});
      return true;
    case kNewTrue:
    case kNewFalse:
      push(Kind::boolean, opcode == kNewTrue);
      return true;
    case kBinInt:
      push(Kind::integer, static_cast<int64_t>(fixed<int32_t>()));
      return true;
    case kBinInt1:
      push(Kind::integer, static_cast<int64_t>(fixed<uint8_t>()));
      return true;
    case kBinInt2:
      push(Kind::integer, static_cast<int64_t>(fixed<uint16_t>()));
      return true;
    case kLong1:
      push_long(take(fixed<uint8_t>()));
      return true;
    case kLong4:
      push_long(take(fixed<uint32_t>()));
      return true;
    case kBinFloat:
      push(Kind::number, std::bit_cast<double>(__builtin_bswap64(fixed<uint64_t>())));
      return true;
    default:
      return false;
  }
}

bool PickleMachine::push_text(uint8_t opcode) {
  switch (opcode) {
    case kShortBinString:
    case kShortBinUnicode:
      push(Kind::string, take(fixed<uint8_t>()));
      return true;
    case kBinString:
    case kBinUnicode:
      push(Kind::string, take(fixed<uint32_t>()));
      return true;
    case kBinUnicode8:
      push(Kind::string, take(fixed<uint64_t>()));
      return true;
    case kShortBinBytes:
      push(Kind::bytes, take(fixed<uint8_t>()));
      return true;
    case kBinBytes:
      push(Kind::bytes, take(fixed<uint32_t>()));
      return true;
    case kBinBytes8:
    case kByteArray8:
      push(Kind::bytes, take(fixed<uint64_t>()));
      return true;
    default:
      return false;
  }
}

bool PickleMachine::change_stack(uint8_t opcode) {
  switch (opcode) {
    case kMark:
      if (static_cast<int64_t>(marks_.size()) >= limits_.max_depth) {
        fail(str("more than ", limits_.max_depth, " containers are open at once"));
      }
      marks_.push_back(stack_.size());
      return true;
    case kPop:
      pop();
      return true;
    case kPopMark:
      pop_to_mark();
      return true;
    case kDup:
      push(top());
      return true;
    case kBinGet:
      get(fixed<uint8_t>());
      return true;
    case kLongBinGet:
      get(fixed<uint32_t>());
      return true;
    case kBinPut:
      put(fixed<uint8_t>(), top());
      return true;
    case kLongBinPut:
      put(fixed<uint32_t>(), top());
      return true;
    case kMemoize:
      put(memo_.size(), top());
      return true;
    case kFrame:
      fixed<uint64_t>();  // the bytes that follow arrive at once: nothing to a reader of a file
      return true;
    default:
      return false;
  }
}

bool PickleMachine::make_container(uint8_t opcode) {
  const auto tuple_of = [&](size_t count) {
    Children values(count);
    for (size_t i = count; i > 0; --i) values[i - 1] = pop();
    push_children(Kind::tuple, std::move(values));
  };
  switch (opcode) {
    case kEmptyList:
      push(Kind::list, Children{});
      return true;
    case kEmptyTuple:
      push(Kind::tuple, Children{});
      return true;
    case kEmptyDict:
      push(Kind::dict, Children{});
      return true;
    case kEmptySet:
      push(Kind::set, Children{});
      return true;
    case kTuple1:
      tuple_of(1);
      return true;
    case kTuple2:
      tuple_of(2);
      return true;
    case kTuple3:
      tuple_of(3);
      return true;
    case kTuple:
      push_children(Kind::tuple, pop_to_mark());
      return true;
    case kList:
      push_children(Kind::list, pop_to_mark());
      return true;
    case kFrozenSet:
      push_children(Kind::set, pop_to_mark());
      return true;
    case kDict: {
      const Children entries = pop_to_mark();
      push(Kind::dict, Children{});
      set_items(top(), entries);
      return true;
    }
    default:
      return false;
  }
}

bool PickleMachine::fill_container(uint8_t opcode) {
  switch (opcode) {
    case kAppend: {
      const uint32_t element = pop();
      append(top(), Kind::list, {&element, 1});
      return true;
    }
    case kAppends: {
      const Children elements = pop_to_mark();
      append(top(), Kind::list, elements);
      return true;
    }
    case kAddItems: {
      const Children elements = pop_to_mark();
      append(top(), Kind::set, elements);
      return true;
    }
    case kSetItem: {
      uint32_t entry[2];
      entry[1] = pop();
      entry[0] = pop();
      set_items(top(), entry);
      return true;
    }
    case kSetItems: {
      const Children entries = pop_to_mark();
      set_items(top(), entries);
      return true;
    }
    default:
      return false;
  }
}

bool PickleMachine::make_object(uint8_t opcode) {
  switch (opcode) {
    case kGlobal: {
      const std::string_view module = line();
      push_global(module, line());
      return true;
    }
    case kStackGlobal: {
      const uint32_t name = pop(), module = pop();
      push_global(value(module).as_string(), value(name).as_string());
      return true;
    }
    case kReduce:
    case kNewObj: {
      const uint32_t arguments = pop(), callee = pop();
      push(call(callee, arguments));
      return true;
    }
    case kNewObjEx: {
      const uint32_t named = pop(), arguments = pop(), callee = pop();
      if (node(named).kind != Kind::dict || value(named).size() != 0) {
        fail("an object is made with named arguments, which zinc does not read");
      }
      push(call(callee, arguments));
      return true;
    }
    case kBuild:
      build();
      return true;
    case kBinPersId: {
      const uint32_t description = pop();
      if (node(description).kind != Kind::tuple) fail("a storage is not described by a tuple");
      push(Kind::object, Document::Instance{&kStorageRecord, description, add(Kind::none, {})});
      return true;
    }
    default:
      return false;
  }
}

int64_t PickleMachine::run() {
  if (static_cast<int64_t>(text_.size()) > std::min(limits_.max_bytes, int64_t{0xffffffff})) {
    fail(str("the pickle has ", text_.size(), " bytes; at most ", limits_.max_bytes,
             " are allowed: save the tensors alone"));
  }
  if (text_.size() < 2 || static_cast<uint8_t>(text_[0]) != kProto) {
    fail("not a pickle of protocol 2 or later: save the file with a current torch.save");
  }
  if (const auto protocol = static_cast<uint8_t>(text_[1]); protocol < 2 || protocol > 5) {
    fail(str("a pickle of protocol ", static_cast<int>(protocol),
             "; zinc reads 2 to 5: save it with torch.save and pickle_protocol=2"));
  }
  at_ = 2;
  while (true) {
    opcode_at_ = static_cast<int64_t>(at_);
    const auto opcode = fixed<uint8_t>();
    if (opcode == kStop) break;
    if (push_constant(opcode) || push_text(opcode) || change_stack(opcode) ||
        make_container(opcode) || fill_container(opcode) || make_object(opcode)) {
      continue;
    }
    fail(str("opcode ", static_cast<int>(opcode),
             " is none of those that torch.save writes: the pickle is damaged or was made by "
             "something else"));
  }
  document_.root_ = pop();
  if (!stack_.empty() || !marks_.empty()) fail("the pickle ends with values left over");
  document_.require_no_cycle(limits_.max_depth);
  return static_cast<int64_t>(at_);
}

std::unique_ptr<const Document> read_pickle(std::string text, std::string name,
                                            const PickleLimits& limits) {
  const auto whole = static_cast<int64_t>(text.size());
  PickleAtFront read = read_front_pickle(std::move(text), std::move(name), limits);
  if (read.bytes != whole) {
    throw DataError(str(read.document->name(), ": byte ", read.bytes - 1, ": ", whole - read.bytes,
                        " bytes follow the end of the pickle"));
  }
  return std::move(read.document);
}

PickleAtFront read_front_pickle(std::string text, std::string name, const PickleLimits& limits) {
  auto document = std::make_unique<Document>(std::move(text), std::move(name));
  const int64_t bytes = PickleMachine(*document, limits).run();
  return {std::move(document), bytes};
}

}  // namespace zinc::files::torch
