// nn/module.h: a tree of layers with names.
//
// Modules are plain value members. A member registers itself in its own constructor, which takes
// its parent and its name, so it cannot be forgotten:
//
//   struct Mlp : zinc::nn::Module {
//     Mlp(Module& parent, std::string name, int64_t C) : Module(parent, std::move(name)), C(C) {}
//     int64_t C;
//     zinc::nn::Linear c_fc{*this, "c_fc", {.in = C, .out = 4 * C}};
//     zinc::nn::Linear c_proj{*this, "c_proj", {.in = 4 * C, .out = C}};
//     zinc::Tensor forward(const zinc::Tensor& x) { return c_proj.forward(gelu(c_fc.forward(x))); }
//   };
//
// Identity is the address: modules are neither copyable nor movable. Names joined by dots equal the
// Hugging Face weight names, so that the keys of state_dict() are the keys of a weights file.
// `forward` is an ordinary member function of each module, with whatever arguments it needs.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "autograd/parameter.h"
#include "tensor/tensor.h"

namespace zinc::nn {

class Parameter;

// Values for parameters, by name and range, so that a shard can be loaded alone.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // The shape of the whole parameter in the source; absent: the source has no values for it. A
  // caller that loads must compare the shape: require_fit().
  virtual std::optional<Shape> shape_of(const autograd::Parameter& parameter) const = 0;
  // Elements [begin, begin + out.numel()) of the whole parameter in flat row-major order, converted
  // to out's dtype. out: [n] contiguous host memory.
  virtual void read(const autograd::Parameter& parameter, int64_t begin, View out) const = 0;
  // The same for the slice of the parameter that this rank holds.
  void read_here(const autograd::Parameter& parameter, int64_t begin, View out) const {
    read_slice(parameter.slice(), begin, out,
               [&](int64_t at, const View& part) { read(parameter, at, part); });
  }
};

// Gives every parameter the values of its own initialiser.
class InitializerSource : public WeightSource {
 public:
  explicit InitializerSource(uint64_t seed) : seed_(seed) {}
  std::optional<Shape> shape_of(const autograd::Parameter& parameter) const override {
    return parameter.whole_shape();
  }
  void read(const autograd::Parameter& parameter, int64_t begin, View out) const override;

 private:
  uint64_t seed_;
};

// The result of load_state_dict(), by name. All lists are empty if everything fitted.
struct LoadResult {
  std::vector<std::string> missing{};     // parameters of the model without values
  std::vector<std::string> unexpected{};  // values without a parameter
  std::vector<std::string> mismatched{};  // "h.0.attn.c_attn.weight: [768, 2304] vs [2304, 768]"
  bool ok() const { return missing.empty() && unexpected.empty() && mismatched.empty(); }
};
std::string to_string(const LoadResult& result);

using StateDict = std::map<std::string, Tensor>;

class TensorRanks;

class Module;
// Throws a DataError that lists the parameters for which the source has no values, or values of
// another shape.
void require_fit(const WeightSource& source, Module& module);

class Module {
 public:
  Module() = default;  // a root
  // Throws InvalidArgument for an empty name, a name with a dot, or one that a sibling has.
  Module(Module& parent, std::string name);
  virtual ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  const std::string& name() const { return name_; }
  const std::string& path() const { return path_; }  // "transformer.h.3.attn"; empty for the root
  Module* parent() const { return parent_; }
  const std::vector<Module*>& children() const { return children_; }

  // --- parameters of this module and all below it, in the order of declaration
  std::vector<Parameter*> parameters();
  std::vector<std::pair<std::string, Parameter*>> named_parameters();
  std::vector<Module*> modules();  // this one first, then depth first
  int64_t num_parameters();        // elements of whole parameters, not of this rank's slices
  int64_t num_trainable_parameters();
  // Throws InvalidArgument with the nearest names where there is none.
  Parameter& parameter(std::string_view name);

  // --- settings that must be made before the parameters have values
  void set_dtype(DType dtype);  // for all float parameters
  // `pattern`: * matches any run of characters, ? one. Return how many parameters matched; none is
  // an InvalidArgument.
  int64_t freeze(std::string_view pattern) { return set_trainable(pattern, false); }
  int64_t unfreeze(std::string_view pattern) { return set_trainable(pattern, true); }

  // Makes each rank hold a slice of the layers below this module that say how they are sliced.
  // Null: layers become whole. Call before the parameters have values.
  void share_over(TensorRanks* ranks);
  TensorRanks* tensor_ranks() const { return tensor_ranks_; }  // null: layers are whole
  int64_t num_tensor_ranks() const;

  void train(bool training = true);
  void eval() { train(false); }
  bool is_training() const { return training_; }
  void apply(const std::function<void(Module&)>& function);

  // --- values under the resident source (an engine has its own ways to them)
  StateDict state_dict();
  // Copies the values that fit, converting dtypes. Reports the others.
  LoadResult load_state_dict(const StateDict& values);
  void load(const WeightSource& source);  // see require_fit()
  void zero_grad();

  // Marks this module as a shard unit: all parameters below it are gathered and reduced together.
  // If marked modules are nested, the outermost counts. Members of a ModuleList, such as
  // transformer blocks, are marked. See zero/layout/shard_group.h.
  void mark_shard_unit() { shard_unit_ = true; }
  bool is_shard_unit() const { return shard_unit_; }

  // One line per module with its own parameters' shapes and the number of elements below it.
  std::string tree();

 protected:
  // Called when tensor_ranks() has changed. A layer slices its parameters here.
  virtual void on_share() {}

 private:
  friend class Parameter;
  void slice_parameters();
  void append_tree(std::string& text, int depth);
  void collect(std::vector<Parameter*>& found);
  int64_t set_trainable(std::string_view pattern, bool trainable);
  void check_name(std::string_view name) const;

  std::string name_;
  std::string path_;
  Module* parent_ = nullptr;
  bool training_ = true;
  bool shard_unit_ = false;
  TensorRanks* tensor_ranks_ = nullptr;
  // Children and parameters in one order of declaration: exactly one pointer of a pair is set.
  std::vector<std::pair<Module*, Parameter*>> members_;
  std::vector<Module*> children_;
};

// A module's own weight, registered like a member module.
class Parameter : public autograd::Parameter {
 public:
  Parameter(Module& parent, std::string name, const Shape& shape,
            const autograd::Initializer& initializer);
  ~Parameter();
  const std::string& leaf_name() const { return leaf_name_; }
  Module& parent() const { return *parent_; }
  // After Module::share_over() a rank holds its part of the first dimension. `sections`: sizes of
  // the parts of that dimension that are sliced separately, such as queries, keys and values.
  void slice_over_ranks(std::vector<int64_t> sections) { sections_ = std::move(sections); }

 private:
  friend class Module;
  Module* parent_;
  std::string leaf_name_;
  std::vector<int64_t> sections_;  // empty: whole on every rank, or sliced by its module
};

// count modules named "0", "1", ...: ModuleList<Block> h{*this, "h", 12, config};
// Each is constructed as M(list, "i", arguments...), and is a shard unit.
template <class M>
class ModuleList : public Module {
 public:
  template <class... Arguments>
  ModuleList(Module& parent, std::string name, int64_t count, const Arguments&... arguments)
      : Module(parent, std::move(name)) {
    for (int64_t i = 0; i < count; ++i) {
      items_.push_back(std::make_unique<M>(*this, str(i), arguments...));
      items_.back()->mark_shard_unit();
    }
  }

  int64_t size() const { return static_cast<int64_t>(items_.size()); }
  M& operator[](int64_t i) { return *items_.at(static_cast<size_t>(i)); }

  // Range-for over M&.
  class Iterator {
   public:
    explicit Iterator(typename std::vector<std::unique_ptr<M>>::iterator it) : it_(it) {}
    M& operator*() const { return **it_; }
    Iterator& operator++() {
      ++it_;
      return *this;
    }
    friend bool operator==(const Iterator&, const Iterator&) = default;

   private:
    typename std::vector<std::unique_ptr<M>>::iterator it_;
  };
  Iterator begin() { return Iterator(items_.begin()); }
  Iterator end() { return Iterator(items_.end()); }

 private:
  std::vector<std::unique_ptr<M>> items_;
};

}  // namespace zinc::nn
