#include "nn/encoder.h"

#include "autograd/ops/cast.h"
#include "autograd/ops/reshape.h"
#include "autograd/ops/split.h"
#include "core/error.h"

namespace zinc::nn {

std::string_view name_of(EncoderTask task) {
  switch (task) {
    case EncoderTask::none:
      return "none";
    case EncoderTask::masked_lm:
      return "masked_lm";
    case EncoderTask::sequence_classification:
      return "sequence_classification";
    case EncoderTask::token_classification:
      return "token_classification";
  }
  return "none";
}

void require_one_document(const Model& model, const Batch& batch) {
  require(!batch.find("document_starts").defined(), model.model_type(),
          ": the batch has several documents in a row, which attention in both directions would "
          "mix; give each a row of its own (\"packing\": false)");
}

void require_labels(const Model& model, EncoderTask task, const Tensor& ids, const Tensor& labels) {
  if (task == EncoderTask::sequence_classification) {
    require(labels.shape() == Shape{ids.dim(0)}, model.model_type(),
            ": sequence_classification takes a label of each text, [", ids.dim(0), "], not ",
            labels.shape(), "; for labels of tokens make the model for token_classification");
    return;
  }
  require(labels.shape() == ids.shape(), model.model_type(), ": ", name_of(task),
          " takes a label of each token, ", ids.shape(), ", not ", labels.shape(),
          "; for labels of texts make the model for sequence_classification");
}

Tensor first_token(const Tensor& hidden) {
  const Tensor first = autograd::contiguous(autograd::narrow(hidden, 1, 0, 1));
  return autograd::reshape(first, Shape{hidden.dim(0), hidden.dim(2)});
}

double encoder_flops_per_token(int64_t multiplied_weights, int64_t num_layers, int64_t width,
                               int64_t sequence) {
  return 6.0 * static_cast<double>(multiplied_weights) + 12.0 * static_cast<double>(num_layers) *
                                                             static_cast<double>(width) *
                                                             static_cast<double>(sequence);
}

}  // namespace zinc::nn
