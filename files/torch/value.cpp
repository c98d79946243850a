#include "files/torch/value.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "core/error.h"
#include "files/torch/in_quotes.h"
#include "files/torch/pickle_globals.h"

namespace zinc::files::torch {

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::none:
      return "None";
    case Kind::boolean:
      return "a boolean";
    case Kind::integer:
      return "an integer";
    case Kind::number:
      return "a float";
    case Kind::string:
      return "a string";
    case Kind::bytes:
      return "bytes";
    case Kind::list:
      return "a list";
    case Kind::tuple:
      return "a tuple";
    case Kind::dict:
      return "a dict";
    case Kind::set:
      return "a set";
    case Kind::tensor:
      return "a tensor";
    case Kind::global:
      return "a class";
    case Kind::object:
      return "an object";
  }
  return "a value";
}

Kind Value::kind() const { return document_->nodes_[index_].kind; }

void Value::fail(std::string_view message) const {
  throw DataError(str(document_->name_, ": byte ", document_->nodes_[index_].place, ": ", message));
}

void Value::expected(std::string_view what) const {
  fail(str("expected ", what, ", found ", name_of(kind())));
}

void Value::expect(Kind wanted) const {
  if (kind() != wanted) expected(name_of(wanted));
}

bool Value::as_bool() const {
  expect(Kind::boolean);
  return std::get<bool>(document_->nodes_[index_].data);
}

int64_t Value::as_int64() const {
  expect(Kind::integer);
  return std::get<int64_t>(document_->nodes_[index_].data);
}

double Value::as_double() const {
  if (is_integer()) return static_cast<double>(as_int64());
  expect(Kind::number);
  return std::get<double>(document_->nodes_[index_].data);
}

std::string_view Value::as_string() const {
  expect(Kind::string);
  return std::get<std::string_view>(document_->nodes_[index_].data);
}

std::string_view Value::as_bytes() const {
  expect(Kind::bytes);
  return std::get<std::string_view>(document_->nodes_[index_].data);
}

std::string_view Value::as_name() const {
  constexpr size_t kMaxNameBytes = 512;
  const std::string_view name = as_string();
  const bool control = std::any_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
  if (name.empty() || name.size() > kMaxNameBytes || control) {
    fail(str("a tensor cannot be called ", in_quotes(name)));
  }
  return name;
}

const TensorRecord& Value::as_tensor() const {
  expect(Kind::tensor);
  const auto index = std::get<int64_t>(document_->nodes_[index_].data);
  return document_->tensors_[static_cast<size_t>(index)];
}

size_t Value::size() const {
  const auto* children = std::get_if<Document::Children>(&document_->nodes_[index_].data);
  if (children == nullptr) expected("a list, tuple, set or dict");
  return is_dict() ? children->size() / 2 : children->size();
}

Value Value::at(size_t index) const {
  if (is_dict()) expected("a list or tuple");
  if (index >= size()) fail(str("has ", size(), " elements, and number ", index, " is needed"));
  return Value(document_, std::get<Document::Children>(document_->nodes_[index_].data)[index]);
}

Value Value::key(size_t index) const {
  expect(Kind::dict);
  require(index < size(), "torch: entry ", index, " of a dict with ", size());
  return Value(document_, std::get<Document::Children>(document_->nodes_[index_].data)[2 * index]);
}

Value Value::value(size_t index) const {
  expect(Kind::dict);
  require(index < size(), "torch: entry ", index, " of a dict with ", size());
  return Value(document_,
               std::get<Document::Children>(document_->nodes_[index_].data)[2 * index + 1]);
}

std::optional<Value> Value::find(std::string_view wanted) const {
  expect(Kind::dict);
  for (size_t i = size(); i > 0; --i) {
    const Value candidate = key(i - 1);
    if (candidate.is_string() && candidate.as_string() == wanted) return value(i - 1);
  }
  return std::nullopt;
}

Value Value::at(std::string_view wanted) const {
  const std::optional<Value> found = find(wanted);
  if (!found) fail(str("the key ", in_quotes(wanted), " is missing"));
  return *found;
}

std::string_view Value::type_name() const {
  const Document::Node& node = document_->nodes_[index_];
  if (kind() == Kind::global) return std::get<const Global*>(node.data)->name;
  expect(Kind::object);
  return std::get<Document::Instance>(node.data).type->name;
}

Value Value::arguments() const {
  expect(Kind::object);
  return Value(document_, std::get<Document::Instance>(document_->nodes_[index_].data).arguments);
}

Value Value::state() const {
  expect(Kind::object);
  return Value(document_, std::get<Document::Instance>(document_->nodes_[index_].data).state);
}

// Every value below the root once, from the leaves up.
void Document::require_no_cycle(int max_depth) const {
  enum : uint8_t { kNew, kOpen, kDone };
  struct Visit {
    uint32_t value;
    size_t next;
  };
  std::vector<uint8_t> state(nodes_.size(), kNew);
  std::vector<uint16_t> height(nodes_.size(), 0);
  std::vector<Visit> path{{root_, 0}};
  state[root_] = kOpen;
  const auto child_of = [&](const Visit& visit) -> std::optional<uint32_t> {
    const auto& data = nodes_[visit.value].data;
    if (const auto* children = std::get_if<Children>(&data)) {
      if (visit.next < children->size()) return (*children)[visit.next];
    } else if (const auto* instance = std::get_if<Instance>(&data)) {
      if (visit.next < 2) return visit.next == 0 ? instance->arguments : instance->state;
    }
    return std::nullopt;
  };
  const auto too_deep = [&](uint32_t index) {
    Value(this, index).fail(str("values are nested more than ", max_depth, " levels deep"));
  };
  while (!path.empty()) {
    Visit& visit = path.back();
    const std::optional<uint32_t> child = child_of(visit);
    if (!child) {
      const uint32_t done = visit.value;
      state[done] = kDone;
      path.pop_back();
      if (!path.empty()) {
        uint16_t& above = height[path.back().value];
        above = std::max(above, static_cast<uint16_t>(height[done] + 1));
        if (above > max_depth) too_deep(path.back().value);
      }
      continue;
    }
    ++visit.next;
    if (state[*child] == kOpen) Value(this, *child).fail("a value contains itself");
    if (state[*child] == kDone) {
      uint16_t& above = height[visit.value];
      above = std::max(above, static_cast<uint16_t>(height[*child] + 1));
      if (above > max_depth) too_deep(visit.value);
      continue;
    }
    if (static_cast<int64_t>(path.size()) > max_depth) too_deep(*child);
    state[*child] = kOpen;
    path.push_back({*child, 0});
  }
}

}  // namespace zinc::files::torch
