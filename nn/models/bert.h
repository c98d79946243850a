// nn/models/bert.h: BERT (Devlin et al. 2019) and RoBERTa (Liu et al. 2019), as Hugging Face's
// BertForMaskedLM, ...ForSequenceClassification, ...ForTokenClassification, BertModel, and
// RoBERTa's classes of the same kinds.
//
// Padding lies behind a row's end, where the batch's "lengths" say; every token before it counts,
// whatever its id, so that RoBERTa's positions are pad_token + 1, + 2, ...
#pragma once

#include <optional>

#include "nn/attention/self_attention.h"
#include "nn/dropout.h"
#include "nn/embedding.h"
#include "nn/linear.h"
#include "nn/lm_head.h"
#include "nn/model.h"
#include "nn/models/bert_config.h"
#include "nn/norm.h"
#include "nn/stages.h"

namespace zinc::nn {

// LayerNorm(residual + dropout(dense(x))): behind attention, and behind the feed-forward part.
class BertOutput : public Module {
 public:
  BertOutput(Module& parent, std::string name, const BertConfig& config, int64_t in);
  Tensor forward(const Tensor& x, const Tensor& residual);

 private:
  Linear dense_;
  LayerNorm norm_;
  Dropout dropout_;
};

class BertLayer : public Module {
 public:
  BertLayer(Module& parent, std::string name, const BertConfig& config);
  Tensor forward(const Tensor& x, const AttentionScope& scope);  // [B, T, C] -> [B, T, C]

 private:
  struct SelfAttention : AttentionLayer {
    SelfAttention(Module& parent, std::string name, const BertConfig& config);
    Tensor forward(const Tensor& x, const AttentionScope& scope);  // each head's mix of values
    Linear query;
    Linear key;
    Linear value;
  };
  struct Attention : Module {
    Attention(Module& parent, std::string name, const BertConfig& config);
    SelfAttention self;
    BertOutput output;
  };
  struct Intermediate : Module {
    Intermediate(Module& parent, std::string name, const BertConfig& config);
    Linear dense;  // with GELU
  };

  Attention attention_;
  Intermediate intermediate_;
  BertOutput output_;
};

class Bert : public Model, public Staged, public HasOutputs {
 public:
  explicit Bert(const BertConfig& config);  // throws ConfigError where it is inconsistent

  // Throws InvalidArgument where the task is EncoderTask::none.
  Tensor loss(const Batch& batch) override { return loss_of_stages(*this, batch); }
  Batch example(int64_t sequences, int64_t positions) const override;
  // hidden; logits with a task, pooled without one
  NamedTensors outputs(const Batch& batch) override;
  int64_t num_stages() override;  // the embeddings, every layer, the head
  TensorList stage(int64_t index, const Batch& batch, TensorList x) override;
  std::string_view model_type() const override { return config_.model_type(); }
  int64_t vocab_size() const override { return config_.vocab_size; }
  int64_t max_sequence() const override { return config_.max_positions; }
  double flops_per_token(int64_t sequence) override;
  const BertConfig& config() const { return config_; }

 private:
  struct Embeddings : Module {
    Embeddings(Module& parent, std::string name, const BertConfig& config);
    Embedding word_embeddings;
    Embedding position_embeddings;
    Embedding token_type_embeddings;
    LayerNorm norm;
    Dropout dropout;
  };
  struct Encoder : Module {
    Encoder(Module& parent, std::string name, const BertConfig& config);
    ModuleList<BertLayer> layer;
  };
  struct Pooler : Module {
    Pooler(Module& parent, std::string name, const BertConfig& config);
    Linear dense;
  };
  struct Body : Module {
    Body(Module& parent, const BertConfig& config);
    Embeddings embeddings;
    Encoder encoder;
    std::optional<Pooler> pooler;
  };
  // LayerNorm(gelu(dense(x))) before the tied product, which has a bias. BERT's names are
  // cls.predictions.transform.dense and so on, RoBERTa's lm_head.dense.
  struct LmHead : Module {
    LmHead(Module& parent, const BertConfig& config);
    std::optional<Module> predictions;
    std::optional<Module> transform;
    Linear dense;
    LayerNorm norm;
    Parameter bias;
  };
  // RoBERTa's head for classes of texts.
  struct ClassificationHead : Module {
    ClassificationHead(Module& parent, std::string name, const BertConfig& config);
    Linear dense;
    Linear out_proj;
  };

  Tensor embed(const Batch& batch);
  Tensor with_positions(const Tensor& ids);
  Tensor lm_hidden(const Tensor& hidden);
  Tensor lm_logits(const Tensor& hidden);
  Tensor pooled(const Tensor& hidden, const Batch& batch);
  Tensor class_logits(const Tensor& hidden, const Batch& batch);
  Tensor loss_of(const Tensor& hidden, const Batch& batch);

  BertConfig config_;
  Body body_;
  std::optional<LmHead> lm_head_;
  std::optional<TiedHead> tied_head_;  // behind lm_head_
  std::optional<Dropout> dropout_;     // before the head, and in it, for heads that classify
  std::optional<Linear> classifier_;
  std::optional<ClassificationHead> classification_head_;
};

}  // namespace zinc::nn
