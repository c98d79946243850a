#include "train/data/collate.h"

#include <algorithm>

#include "core/error.h"

namespace zinc::train {
namespace {

void check(const Sample& sample, int64_t index, int64_t seq_len, const BatchFields& fields,
           const Dataset& dataset) {
  const auto tokens = static_cast<int64_t>(sample.tokens.size());
  const auto place = [&] { return concat(dataset.describe(), ": sample ", index); };
  if (tokens > seq_len) {
    throw DataError(
        concat(place(), " has ", tokens, " tokens, more than the sequence length of ", seq_len));
  }
  if (sample.labels.size() != sample.tokens.size()) {
    throw DataError(
        concat(place(), " has ", tokens, " tokens but ", sample.labels.size(), " labels"));
  }
  const size_t starts = fields.document_starts ? sample.tokens.size() : 0;
  if (sample.document_starts.size() != starts) {
    throw DataError(concat(place(), " has ", sample.document_starts.size(),
                           " document starts where ", starts, " belong"));
  }
}

}  // namespace

HostBatch collate(const Dataset& dataset, std::span<const int64_t> indices, int64_t batch_size,
                  int64_t seq_len) {
  require(static_cast<int64_t>(indices.size()) <= batch_size, "collate: ", indices.size(),
          " samples for a batch of ", batch_size);
  const BatchFields fields = dataset.fields();
  const auto elements = static_cast<size_t>(batch_size * seq_len);
  HostBatch batch{.batch_size = batch_size, .seq_len = seq_len};
  batch.input_ids.assign(elements, 0);
  batch.labels.assign(elements, nn::kIgnoredLabel);
  if (fields.lengths) batch.lengths.assign(static_cast<size_t>(batch_size), 1);
  if (fields.document_starts) batch.document_starts.assign(elements, 0);

  Sample sample;
  for (size_t row = 0; row < indices.size(); ++row) {
    sample.clear();
    dataset.read(indices[row], sample);
    check(sample, indices[row], seq_len, fields, dataset);
    const auto offset = static_cast<std::ptrdiff_t>(row) * seq_len;
    std::copy(sample.tokens.begin(), sample.tokens.end(), batch.input_ids.begin() + offset);
    std::copy(sample.labels.begin(), sample.labels.end(), batch.labels.begin() + offset);
    if (fields.document_starts) {
      const auto end = std::copy(sample.document_starts.begin(), sample.document_starts.end(),
                                 batch.document_starts.begin() + offset);
      // Padding is a document of its own, so that it never sees, nor is seen by, real tokens.
      std::fill(end, batch.document_starts.begin() + offset + seq_len,
                static_cast<int32_t>(sample.tokens.size()));
    }
    if (fields.lengths) batch.lengths[row] = std::max(1, static_cast<int>(sample.tokens.size()));
    batch.num_tokens += static_cast<int64_t>(sample.tokens.size());
    batch.num_targets += std::count_if(sample.labels.begin(), sample.labels.end(),
                                       [](int32_t label) { return label != nn::kIgnoredLabel; });
  }
  return batch;
}

nn::Batch to_batch(const HostBatch& host) {
  const Shape shape{host.batch_size, host.seq_len};
  const auto tensor = [](const std::vector<int32_t>& values, const Shape& extents) {
    if (values.empty()) return Tensor();
    return Tensor::from(std::span<const int32_t>(values), extents, DType::i32);
  };
  return {.input_ids = tensor(host.input_ids, shape),
          .labels = tensor(host.labels, shape),
          .lengths = tensor(host.lengths, Shape{host.batch_size}),
          .document_starts = tensor(host.document_starts, shape),
          .num_targets = host.num_targets,
          .num_tokens = host.num_tokens,
          .global_micro_batch = host.global_micro_batch};
}

}  // namespace zinc::train
