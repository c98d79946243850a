// nn/lora.h: low-rank adapters of linear layers and embeddings (E. Hu et al., LoRA, 2021).
//
//   y = x W^T + b + s (dropout(x) A^T) B^T
//
// A [r, in] and B [out, r] are trained; W and b are frozen. s = alpha / r, or alpha / sqrt(r) (D.
// Kalajdzievski, rsLoRA, 2023). B starts at zero, so the model starts unchanged. A frozen weight
// has neither gradient nor optimizer states, on every ZeRO stage. All of this is as in Hugging
// Face's peft.
//
// DoRA (S. Liu et al., 2024) also trains the length m [out] of each row of the sum:
//
//   y = x W'^T + b,  W' = diag(m / |W + s B A|) (W + s B A),  |.|: norms of rows, [out]
//
// The norms count as constants in backward. With dropout, W multiplies x, while (m / |.| - 1) and B
// A multiply dropout(x). m starts as the norms of W. A source of weights must give these norms;
// hub::AdaptedWeights does.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nn/dropout.h"
#include "nn/embedding.h"
#include "nn/linear.h"
#include "nn/module.h"

namespace zinc::nn {

// Patterns are regular expressions (ECMAScript's, as std::regex).
struct LoraOptions {
  int64_t rank = 8;              // r, > 0
  double alpha = 16.0;           // > 0
  double dropout = 0.0;          // of the adapter's input, 0 <= p < 1; not for embeddings
  bool rank_stabilized = false;  // s = alpha / sqrt(r)
  bool dora = false;             // for linear layers only
  // Layers, by the end of their path: "q_proj", "attn.c_proj", "embed_tokens". "all-linear": every
  // linear layer but Model::logits_layer().
  std::vector<std::string> targets{};
  std::string target_pattern{};        // in place of targets: matches whole paths
  std::vector<std::string> exclude{};  // targets that are left out, by the end of their path
  // Only layers in blocks with these numbers: the first number in a path, behind two names, or
  // behind one of the names (patterns) of block_names. Empty: all. Not together with
  // target_pattern.
  std::vector<int64_t> layers{};
  std::vector<std::string> block_names{};
  // Rank or alpha of layers whose path ends with a match of the pattern. The first matching pattern
  // counts.
  std::vector<std::pair<std::string, int64_t>> rank_pattern{};
  std::vector<std::pair<std::string, double>> alpha_pattern{};
  // Further modules that are trained whole, by the end of their path: "score". They have no
  // adapters.
  std::vector<std::string> modules_to_save{};

  double scale() const;
  void validate() const;                          // ConfigError
  LoraOptions at(const std::string& path) const;  // with rank and alpha of that layer
  friend bool operator==(const LoraOptions&, const LoraOptions&) = default;
};

// Where tensor ranks share the layer, B is sliced along with the layer's columns, or A with its
// rows.
//
// Parameters below the layer, named as peft names them in files: "lora_A.weight", "lora_B.weight",
// and with DoRA "lora_magnitude_vector".
class LoraAdapter {
 public:
  LoraAdapter(Linear& layer, const LoraOptions& options);
  Tensor forward(const Tensor& x);  // the whole layer: [..., in] -> [..., out]

  double scale() const { return scale_; }
  Parameter& weight() { return layer_.weight_; }                          // W
  Linear& down() { return down_; }                                        // A
  Linear& up() { return up_; }                                            // B
  Parameter* magnitude() { return magnitude_ ? &*magnitude_ : nullptr; }  // [out]; null: no DoRA
  // Gives the layer an adapter. Throws InvalidArgument if it has one.
  static void attach(Linear& layer, const LoraOptions& options);

 private:
  Tensor narrowed(const Tensor& x);
  Tensor decomposed(const Tensor& x);  // DoRA's output, before the activation
  Tensor row_norms();                  // |W + s B A|, [out] f32 (f64)

  Linear& layer_;
  double scale_;
  Dropout dropout_;
  Linear down_;
  Linear up_;
  std::optional<Parameter> magnitude_;
};

// For a table W [count, C]: rows W[id] + s (A^T)[id] B^T. Parameters below the layer:
// "lora_embedding_A" [r, count], which starts at zero, and "lora_embedding_B" [C, r].
class EmbeddingAdapter {
 public:
  EmbeddingAdapter(Embedding& layer, const LoraOptions& options);
  Tensor add_to(const Tensor& rows, const Tensor& ids);  // [..., C], [...] -> [..., C]
  static void attach(Embedding& layer, const LoraOptions& options);

  double scale() const { return scale_; }
  Parameter& a() { return a_; }
  Parameter& b() { return b_; }

 private:
  double scale_;
  Parameter a_;
  Parameter b_;
};

// The treatment of a target, or of a module to save, that matches nothing in the model.
enum class NamesNothing : uint8_t {
  refused,
  ignored,  // where another target matches: as in peft, whose lists name modules of several
            // families
};

// Freezes the model and gives the targets adapters. Adapters and modules_to_save stay trainable.
// Call before the parameters have values. Returns the paths of the adapted layers, in the model's
// order. Throws ConfigError for a target or module that matches nothing, with the nearest names.
std::vector<std::string> add_lora(Module& model, const LoraOptions& options,
                                  NamesNothing names_nothing = NamesNothing::refused);

// An adapter as a change of its weight: W + s B A, or W + s (B A)^T if `transposed` (a weight [in,
// out], or a table). With a magnitude, the rows of the sum get that length.
struct LoraTerms {
  Parameter* weight = nullptr;
  Parameter* a = nullptr;          // [r, in]
  Parameter* b = nullptr;          // [out, r]
  Parameter* magnitude = nullptr;  // [out], or null
  double scale = 1.0;
  bool transposed = false;
  bool is_embedding = false;
};
std::vector<LoraTerms> lora_terms(Module& model);

// True for a parameter of an adapter.
bool is_lora_parameter(std::string_view name);

}  // namespace zinc::nn
