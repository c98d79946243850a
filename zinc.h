// zinc.h: everything that a program which trains a model needs, under one namespace.
//
//   #include <zinc/zinc.h>
//
//   zinc::World world = zinc::connect();
//   zinc::Config config = zinc::load_config("ds_config.json", world);
//   zinc::nn::Gpt2 model(zinc::nn::Gpt2Config::preset("gpt2-124m"));
//   auto engine = zinc::initialize(model, config, world);
//
// examples/ has whole programs.
#pragma once

#include "autograd/autograd.h"
#include "comm/world.h"
#include "nn/nn.h"
#include "tensor/tensor.h"
#include "train/config/config.h"
#include "train/data/loader.h"
#include "zero/engine.h"

namespace zinc {

using comm::connect;
using comm::ConnectOptions;
using comm::World;

using nn::Batch;

using zero::Engine;
using zero::EngineOptions;
using zero::Loss;
using zero::StepOutcome;
using zero::StepResult;

using train::Config;
using train::Dataset;
using train::Loader;

using namespace autograd;  // NOLINT: ops, recompute, NoGrad
}  // namespace zinc
