// autograd/parameter.h: a trainable weight, and the interface through which its values arrive.
//
// A Parameter is declared, not allocated: name, shape, dtype, initialiser. Its ParameterSource
// decides where its values live. The default source keeps all values in the Parameter. The zero
// layer installs a source that gathers, pins, prefetches and reduces. So nn and autograd know
// nothing of ZeRO.
//
// Note [Life of a parameter's gradient]
// During backward, a node that contributes to the gradient of a parameter asks the parameter's
// source for a GradientTarget. It writes or accumulates into the target at once, on the compute
// stream. The graph knows beforehand how many nodes will contribute. After the last one it calls
// gradient_done() on the issuing thread, once per parameter and backward pass. The order of these
// calls depends on the graph alone, and is the same with and without recomputation.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/block_format.h"
#include "core/device.h"
#include "core/dtype.h"
#include "core/shape.h"
#include "core/tensor_slice.h"
#include "core/view.h"
#include "tensor/tensor.h"

namespace zinc::autograd {

class Parameter;

// How a parameter starts. Element i of the parameter is a pure function of (seed, name, i),
// computed by one scalar host algorithm in f64 and rounded to the dtype, so any shard can be made
// alone.
struct Initializer {
  enum class Kind : uint8_t {
    constant,          // value
    normal,            // mean, std
    truncated_normal,  // mean, std, cut at +-2 std by the inverse distribution function
    uniform,           // [low, high)
  };
  Kind kind = Kind::constant;
  double first = 0.0;   // constant: value; normal: mean; uniform: low
  double second = 0.0;  // normal: standard deviation; uniform: high

  static Initializer zeros() { return {}; }
  static Initializer ones() { return {.first = 1.0}; }
  static Initializer normal(double std, double mean = 0.0) {
    return {.kind = Kind::normal, .first = mean, .second = std};
  }
  static Initializer truncated_normal(double std, double mean = 0.0) {
    return {.kind = Kind::truncated_normal, .first = mean, .second = std};
  }
  static Initializer uniform(double low, double high) {
    return {.kind = Kind::uniform, .first = low, .second = high};
  }
};

// Writes elements [begin, begin + out.numel()) of the parameter called `name`, flat row-major
// order. out: [n] contiguous host memory of any float dtype. Deterministic, on every machine: only
// IEEE operations that round exactly. Synchronous; any thread; uses the threads of the caller's
// parallel loops.
//
// Element i takes the 64 bits r of words 2i and 2i + 1 of the key (seed, Purpose::initialize, hash
// of name). uniform: low + (high - low) * floor(r / 2^11) / 2^53. normal: mean + std * z with z the
// inverse normal distribution function (Wichura, "Algorithm AS 241", Applied Statistics 37, 1988,
// PPND16) of (floor(r / 2^12) + 1/2) / 2^52; truncated_normal maps that to [F(-2), F(2)] first.
void initialize_range(const Initializer& initializer, uint64_t seed, std::string_view name,
                      int64_t begin, View out);

// The same for the slice of a parameter that this rank holds: flat elements [begin, ...) of the
// slice.
void initialize_range(const class Parameter& parameter, uint64_t seed, int64_t begin, View out);

// Keeps a parameter's values in place while it lives; move-only. The destructor releases.
class ParameterGuard {
 public:
  ParameterGuard() = default;
  ParameterGuard(class ParameterSource& source, Parameter& parameter, ConstView view)
      : source_(&source), parameter_(&parameter), view_(view) {}
  ParameterGuard(ParameterGuard&& other) noexcept { swap(other); }
  ParameterGuard& operator=(ParameterGuard&& other) noexcept {
    ParameterGuard taken(std::move(other));
    swap(taken);
    return *this;
  }
  ~ParameterGuard() { reset(); }

  // Full shape, contiguous, the parameter's dtype; valid on the compute stream from now on.
  const ConstView& view() const { return view_; }
  void reset() noexcept;
  void swap(ParameterGuard& other) noexcept {
    std::swap(source_, other.source_);
    std::swap(parameter_, other.parameter_);
    std::swap(view_, other.view_);
  }

 private:
  class ParameterSource* source_ = nullptr;
  Parameter* parameter_ = nullptr;
  ConstView view_;
};

// The memory for the gradient of a parameter.
struct GradientTarget {
  View view;                // shape and dtype of the parameter, contiguous
  bool accumulate = false;  // false: overwrite; true: add to what is there
};

class ParameterSource {
 public:
  virtual ~ParameterSource() = default;

  // The values, for work on the compute stream until the guard is destroyed.
  virtual ParameterGuard acquire(Parameter& parameter) = 0;
  // Only for parameters that require a gradient. A second call in one backward pass (tied use)
  // gives the same view with accumulate = true.
  virtual GradientTarget gradient(Parameter& parameter) = 0;
  // Called after the last contribution of a pass, once for every trainable parameter that the graph
  // reaches. gradient() was called before, even if all contributions were zero.
  virtual void gradient_done(Parameter& parameter) = 0;
  // True: a backward pass that can leave gradients for later leaves this one: see
  // autograd/deferred_gradients.h.
  virtual bool defers(const Parameter&) const { return false; }
  // Called before and after the nodes of one backward pass, once for every source of a parameter,
  // frozen or not, that the graph reaches. A pass that throws does not call backward_end(). The
  // next backward_begin() starts afresh.
  virtual void backward_begin() {}
  virtual void backward_end() {}

 protected:
  friend class ParameterGuard;
  virtual void release(Parameter& parameter) noexcept = 0;
};

// The place of a parameter in a source of many parameters, in the source's own numbers.
struct ParameterIndex {
  int group = 0;
  int position = 0;  // in the group
  friend bool operator==(const ParameterIndex&, const ParameterIndex&) = default;
};

// Declared by a module; identity is the address (neither copyable nor movable).
class Parameter {
 public:
  // `name`: dotted path from the model's root, a Hugging Face weight name; see nn::Module.
  Parameter(std::string name, const Shape& shape, const Initializer& initializer,
            DType dtype = DType::f32);
  ~Parameter();
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }
  // The shape and number of the values that this rank holds.
  const Shape& shape() const { return shape_; }
  int64_t numel() const { return shape_.numel(); }
  // If ranks share the parameter: the part that this rank holds. Files, initialisers and names
  // refer to the whole parameter.
  const std::optional<TensorSlice>& slice() const { return slice_; }
  const Shape& whole_shape() const { return slice_ ? slice_->whole : shape_; }
  DType dtype() const { return dtype_; }
  const Initializer& initializer() const { return initializer_; }
  bool requires_grad() const { return requires_grad_; }
  // False: the optimizer skips weight decay. Default: false for rank < 2 (norms, biases).
  bool decays() const { return decays_; }
  // The format in which a source may keep the values of a frozen parameter. Each use decodes them
  // to dtype(). Absent: dtype(). The resident source always keeps dtype().
  const std::optional<BlockFormat>& block_format() const { return block_format_; }

  // The following (but not set_decays) throw InvalidArgument once the parameter has values: after
  // the first use, or under a source other than the resident one.
  void set_dtype(DType dtype);
  void set_requires_grad(bool value);
  void set_decays(bool value) { decays_ = value; }
  void set_block_format(std::optional<BlockFormat> format);
  void set_slice(std::optional<TensorSlice> slice);  // absent: all of it is here
  void set_initializer(const Initializer& initializer);

  // The source that serves this parameter; the resident one by default. Changing it drops resident
  // values and gradients.
  ParameterSource& source() const { return *source_; }
  void set_source(ParameterSource& source, ParameterIndex index = {});
  ParameterIndex index() const { return index_; }  // in that source
  void reset_source();                             // back to the resident one

  // --- Values in the resident source. Under any other source there are none, and data() throws.
  // The initialiser makes the values at first use, with the current context's seed and device. The
  // memory is labelled parameters, that of the gradient gradients.
  Tensor& data();
  bool has_data() const { return data_.has_value(); }
  void drop_data();  // forgets values and gradient; settings can change again
  // Moves the values of resident parameters into one block, one behind the other. Nothing happens
  // where they lie in one block already, where another source has one of them, where another handle
  // of data() exists, or where a size is no multiple of 64 bytes.
  static void join_data(std::span<Parameter* const> parameters);
  // Takes over values: [shape] of this dtype, contiguous. Under the resident source.
  void adopt_data(Tensor values);
  // Marks the values as lost, so that no one mistakes newly initialised values for them. data()
  // throws InvalidArgument with `why` until adopt_data(), overwrite_data() or drop_data().
  void lose_data(std::string why);
  const std::string& loss_of_data() const { return loss_of_data_; }  // empty: not lost
  // data() for a caller that overwrites all of it.
  Tensor& overwrite_data();
  const std::optional<Tensor>& grad() const { return grad_; }
  void zero_grad();  // forgets the gradient: the next backward overwrites

 private:
  friend class ResidentSource;
  void require_no_values(std::string_view change) const;

  std::string name_;
  Shape shape_;
  std::optional<TensorSlice> slice_;
  Initializer initializer_;
  DType dtype_;
  bool requires_grad_ = true;
  bool decays_;
  std::optional<BlockFormat> block_format_;
  ParameterSource* source_;
  ParameterIndex index_;
  std::optional<Tensor> data_;
  std::optional<Tensor> grad_;
  std::string loss_of_data_;
};

}  // namespace zinc::autograd
