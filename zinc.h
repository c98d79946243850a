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
#include <functional>
#include <utility>

#include "autograd/backward.h"
#include "autograd/mode.h"
#include "autograd/ops/attention.h"
#include "autograd/ops/binary.h"
#include "autograd/ops/cast.h"
#include "autograd/ops/concat.h"
#include "autograd/ops/cross_entropy.h"
#include "autograd/ops/dropout.h"
#include "autograd/ops/embedding.h"
#include "autograd/ops/gather_rows.h"
#include "autograd/ops/gelu.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/linear_cross_entropy.h"
#include "autograd/ops/matmul.h"
#include "autograd/ops/norm.h"
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
#include "autograd/recompute.h"
#include "comm/local/local.h"
#include "comm/world.h"
#include "nn/nn.h"
#include "tensor/tensor.h"
#include "train/config/config.h"
#include "train/config/rank_config.h"
#include "train/data/loader.h"
#include "train/data/token_windows.h"
#include "train/run.h"
#include "zero/agreement.h"
#include "zero/engine.h"

namespace zinc {

using comm::abort_job;
using comm::connect;
using comm::ConnectOptions;
using comm::run_local_ranks;
using comm::World;

using nn::Batch;

using train::Config;
using train::Dataset;
using train::Loader;
using train::LoaderOptions;

using zero::Engine;
using zero::EngineOptions;
using zero::Loss;
using zero::StepOutcome;
using zero::StepResult;

// --- what a step does, and passes over it: zero/program/program.h, zero/program/pass.h
using zero::Body;
using zero::EventKind;
using zero::Op;
using zero::OpKind;
using zero::Pass;
using zero::PassInputs;
using zero::Phase;
using zero::Place;
using zero::Program;
using zero::StepProgram;

// --- functions of tensors that are differentiated
using autograd::add;
using autograd::attention;
using autograd::AttentionOptions;
using autograd::backward;
using autograd::cast;
using autograd::contiguous;
using autograd::cross_entropy;
using autograd::div;
using autograd::dropout;
using autograd::embedding;
using autograd::gelu;
using autograd::grad;
using autograd::layernorm;
using autograd::linear;
using autograd::linear_cross_entropy;
using autograd::make_alibi_slopes;
using autograd::make_relative_buckets;
using autograd::matmul;
using autograd::mul;
using autograd::narrow;
using autograd::NoGrad;
using autograd::permute;
using autograd::recompute;
using autograd::relative_position_bias;
using autograd::relu;
using autograd::requires_grad_;
using autograd::reshape;
using autograd::rmsnorm;
using autograd::rotary;
using autograd::softmax;
using autograd::split;
using autograd::sub;
using autograd::sum;
using autograd::swiglu;
using autograd::transpose;

// Applies the "zinc" keys to the world, too: see train/config/rank_config.h.
using train::load_config;

// Shards, makes the step program, loads the first weights; see zero/engine.h. Collective. Throws

// ConfigError where the ranks' configurations differ.
inline Engine initialize(nn::Model& model, const Config& config, World& world,
                         EngineOptions options = {}) {
  const uint64_t hash = train::fingerprint_of(config, world.size());
  zero::require_agreement(world, std::array{zero::Fingerprint{"configuration", hash}});
  if (const std::function<void()>& drain = world.settings().drain_trace) {
    options.after_step = [drain, then = std::move(options.after_step)] {
      drain();
      if (then) then();
    };
  }
  return Engine(model, config.engine, world, std::move(options));
}

// What a loader needs to know of a run. seq_len: tokens per sequence.
inline LoaderOptions loader_options(const Config& config, const World& world, int64_t seq_len) {
  return {.micro_batch = config.engine.batch.micro_batch,
          .seq_len = seq_len,
          .seed = config.seed,
          .rank = world.rank(),
          .world = world.size()};
}

}  // namespace zinc
