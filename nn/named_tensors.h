// nn/named_tensors.h: a small set of tensors with names: the inputs and outputs of a model.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/tensor.h"

namespace zinc::nn {

// Tensors in the order in which they were set. Copies share the tensors' memory.
class NamedTensors {
 public:
  using Entry = std::pair<std::string, Tensor>;

  NamedTensors() = default;
  // Leaves out entries without a tensor. Throws InvalidArgument for a name that comes twice.
  NamedTensors(std::initializer_list<Entry> entries);

  // Sets or replaces the tensor of that name. An undefined tensor removes it.
  void set(std::string_view name, Tensor tensor);
  // Undefined where there is no such tensor.
  Tensor find(std::string_view name) const;
  // Throws InvalidArgument with the names that there are, the nearest first.
  const Tensor& operator[](std::string_view name) const;

  bool empty() const { return entries_.empty(); }
  size_t size() const { return entries_.size(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

 private:
  Entry* entry(std::string_view name);

  std::vector<Entry> entries_;
};

// "input_ids [2, 9] i32, labels [2, 9] i32".
std::string to_string(const NamedTensors& tensors);

}  // namespace zinc::nn
