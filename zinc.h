// zinc.h: everything that a program which trains a model needs, under one namespace.
//
//   zinc::World world = zinc::connect();                       // mpirun, srun or alone
//   zinc::Config config = zinc::load_config("ds_config.json", world);
//   zinc::nn::Gpt2 model(zinc::nn::Gpt2Config::preset("gpt2-124m"));
//   zinc::Engine engine = zinc::initialize(model, config, world);
//   zinc::Loader loader(dataset, zinc::loader_options(config, world, 512));
//   for (const zinc::Batch& batch : loader) {
//     zinc::Loss loss = engine.forward(batch);
//     engine.backward(loss);
//     zinc::StepResult result = engine.step();
//   }
//
// examples/ has whole programs.
#pragma once

#include <array>
#include <cstdio>
#include <exception>
#include <functional>
#include <utility>

#include "autograd/backward.h"
#include "autograd/functions/losses.h"
#include "autograd/functions/padding.h"
#include "autograd/functions/products.h"
#include "autograd/functions/shapes.h"
#include "autograd/loss_scope.h"
#include "autograd/mode.h"
#include "autograd/operators.h"
#include "autograd/ops/attention.h"
#include "autograd/ops/binary.h"
#include "autograd/ops/cast.h"
#include "autograd/ops/compare.h"
#include "autograd/ops/concat.h"
#include "autograd/ops/cross_entropy.h"
#include "autograd/ops/cumsum.h"
#include "autograd/ops/dropout.h"
#include "autograd/ops/embedding.h"
#include "autograd/ops/expand.h"
#include "autograd/ops/gather.h"
#include "autograd/ops/gather_rows.h"
#include "autograd/ops/gelu.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/linear_cross_entropy.h"
#include "autograd/ops/matmul.h"
#include "autograd/ops/norm.h"
#include "autograd/ops/order.h"
#include "autograd/ops/permute.h"
#include "autograd/ops/reduce.h"
#include "autograd/ops/relative_position.h"
#include "autograd/ops/reshape.h"
#include "autograd/ops/rotary.h"
#include "autograd/ops/scale.h"
#include "autograd/ops/softmax.h"
#include "autograd/ops/split.h"
#include "autograd/ops/swiglu.h"
#include "autograd/ops/unary.h"
#include "autograd/ops/value.h"
#include "autograd/ops/where.h"
#include "autograd/recompute.h"
#include "comm/agreement.h"
#include "comm/local/local.h"
#include "comm/world.h"
#include "core/exit_codes.h"
#include "data/loader.h"
#include "data/token_windows.h"
#include "generate/generate.h"
#include "hub/weights.h"
#include "nn/nn.h"
#include "tensor/tensor.h"
#include "text/scores/labels.h"
#include "train/config/config.h"
#include "train/config/rank_config.h"
#include "train/run.h"
#include "train/train_batch.h"
#include "train/weights/save_model.h"
#include "zero/engine.h"

namespace zinc {

using comm::abort_job;
using comm::connect;
using comm::ConnectOptions;
using comm::run_local_ranks;
using comm::World;

using nn::Batch;
using nn::NamedTensors;
using nn::TensorList;

using data::BatchFields;
using data::Dataset;
using data::EvaluationSet;
using data::LabelsOf;
using data::Loader;
using data::LoaderOptions;
using data::make_dataset;
using data::Sample;
using generate::generate_tokens;
using generate::GenerateOptions;
using hub::SafetensorsWeights;
using hub::save_weights;  // of a module
using text::accuracy;
using text::exact_match;
using text::f1_binary;
using text::f1_macro;
using text::f1_micro;
using text::perplexity;
using train::Config;
using train::eval_batch;
using train::train_batch;

using zero::Engine;
using zero::EngineOptions;
using zero::Loss;
using zero::StepOutcome;
using zero::StepResult;

// --- what a step does, and rewrites of it: zero/program/program.h, zero/program/rewrite.h
using zero::Body;
using zero::ByGroup;
using zero::EventKind;
using zero::Op;
using zero::OpKind;
using zero::Phase;
using zero::Place;
using zero::Program;
using zero::ProgramOps;
using zero::Rewrite;
using zero::RewriteInputs;
using zero::StepProgram;

// --- tensors and their functions, in alphabetical order: docs/ops.md.
using autograd::abs;
using autograd::Activation;
using autograd::add;
using autograd::affine;
using autograd::arange;
using autograd::argmax;
using autograd::argmin;
using autograd::at;
using autograd::attention;
using autograd::AttentionOptions;
using autograd::backward;
using autograd::BackwardOptions;
using autograd::binary;
using autograd::binary_cross_entropy_with_logits;
using autograd::cast;
using autograd::clamp;
using autograd::ClassShare;
using autograd::clear_hooks;
using autograd::compare;
using autograd::CompareOp;
using autograd::concat;
using autograd::contiguous;
using autograd::conv1d;
using autograd::Conv1dOptions;
using autograd::cross_entropy;
using autograd::cumsum;
using autograd::Dims;
using autograd::div;
using autograd::dropout;
using autograd::dropout_residual;
using autograd::DropoutOptions;
using autograd::einsum;
using autograd::embedding;
using autograd::EmbeddingOptions;
using autograd::EnableGrad;
using autograd::erf;
using autograd::exp;
using autograd::expand;
using autograd::flatten;
using autograd::flip;
using autograd::gather;
using autograd::gather_rows;
using autograd::gelu;
using autograd::GeluKind;
using autograd::grad;
using autograd::HeadGradient;
using autograd::Index;
using autograd::index_select;
using autograd::Initializer;
using autograd::kIgnoredLabel;
using autograd::layernorm;
using autograd::leaky_relu;
using autograd::length_mask;
using autograd::linear;
using autograd::linear_cross_entropy;
using autograd::LinearOptions;
using autograd::LinearWeight;
using autograd::log;
using autograd::log_softmax;
using autograd::logical_and;
using autograd::logical_not;
using autograd::logical_or;
using autograd::logsumexp;
using autograd::LossOptions;
using autograd::LossScope;
using autograd::make_alibi_slopes;
using autograd::make_layout_words;
using autograd::make_relative_buckets;
using autograd::make_rotary_table;
using autograd::masked_fill;
using autograd::matmul;
using autograd::MatmulOptions;
using autograd::max;
using autograd::maximum;
using autograd::mean;
using autograd::mean_over_tokens;
using autograd::min;
using autograd::minimum;
using autograd::mse_loss;
using autograd::mul;
using autograd::narrow;
using autograd::neg;
using autograd::nll_loss;
using autograd::NoGrad;
using autograd::one_hot;
using autograd::Ordered;
using autograd::pad;
using autograd::Parameter;
using autograd::permute;
using autograd::pow;
using autograd::reciprocal;
using autograd::recompute;
using autograd::ReduceOver;
using autograd::register_hook;
using autograd::relative_bucket;
using autograd::relative_position_bias;
using autograd::RelativeBuckets;
using autograd::relu;
using autograd::requires_grad_;
using autograd::reshape;
using autograd::residual_layernorm;
using autograd::residual_rmsnorm;
using autograd::ResidualNorm;
using autograd::retain_grad;
using autograd::rmsnorm;
using autograd::rotary;
using autograd::RotaryLayout;
using autograd::RotaryOptions;
using autograd::RotaryTable;
using autograd::rsqrt;
using autograd::scale;
using autograd::scatter_add;
using autograd::scatter_rows;
using autograd::sigmoid;
using autograd::silu;
using autograd::Slice;
using autograd::smoothed_cross_entropy;
using autograd::softmax;
using autograd::softplus;
using autograd::sort;
using autograd::split;
using autograd::sqrt;
using autograd::square;
using autograd::squeeze;
using autograd::stack;
using autograd::sub;
using autograd::sum;
using autograd::sum_to;
using autograd::swiglu;
using autograd::tanh;
using autograd::topk;
using autograd::transpose;
using autograd::tril_mask;
using autograd::triu_mask;
using autograd::unary;
using autograd::unsqueeze;
using autograd::value;
using autograd::var;
using autograd::Weight;
using autograd::WeightLayout;
using autograd::where;
using autograd::z_loss;
using autograd::zero_grad;

// Applies the "zinc" keys to the world, too: see train/config/rank_config.h.
using train::load_config;
using train::save_weights;  // of an engine

// Shards, makes the step program, loads the first weights; see zero/engine.h. Collective. Throws
// ConfigError where the ranks' configurations differ.
inline Engine initialize(nn::Model& model, const Config& config, World& world,
                         EngineOptions options = {}) {
  const uint64_t hash = train::fingerprint_of(config, world.size());
  comm::require_agreement(world, std::array{comm::Fingerprint{"configuration", hash}});
  if (const std::function<void()>& drain = world.settings().drain_trace) {
    options.after_step = [drain, then = std::move(options.after_step)] {
      drain();
      if (then) then();
    };
  }
  return Engine(model, config.engine, world, std::move(options));
}

// The main() of a program: 0, or what `work` throws as an exit code (docs/exit_codes.md), with its
// message on stderr and the other ranks ended. Of several ranks one speaks: let_others_speak().
inline int run_program(const std::function<void()>& work) {
  try {
    work();
    return kDone;
  } catch (...) {
    const Failure failure = describe(std::current_exception());
    std::fflush(stdout);
    comm::let_others_speak(std::current_exception());
    std::fprintf(stderr, "%s\n", failure.message.c_str());
    abort_job(failure.code);  // returns where this process is alone
    return failure.code;
  }
}

// The options of a loader that follow from the run. seq_len: tokens per sequence.
inline LoaderOptions loader_options(const Config& config, const World& world, int64_t seq_len) {
  return {.micro_batch = config.engine.batch.micro_batch,
          .seq_len = seq_len,
          .seed = config.seed,
          .rank = world.data().rank(),
          .world = world.data().size()};
}

}  // namespace zinc
