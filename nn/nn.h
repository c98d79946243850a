// nn/nn.h: all layers and models.
#pragma once

#include "nn/attention.h"
#include "nn/batch.h"
#include "nn/buffer.h"
#include "nn/dropout.h"
#include "nn/embedding.h"
#include "nn/gradcheck.h"
#include "nn/linear.h"
#include "nn/mlp.h"
#include "nn/model.h"
#include "nn/models/bert.h"
#include "nn/models/gpt2.h"
#include "nn/models/llama.h"
#include "nn/module.h"
#include "nn/norm.h"
#include "nn/stages.h"
