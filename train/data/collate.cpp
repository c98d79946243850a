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

int64_t padded_length(int64_t longest, const BatchShape& shape) {
  if (shape.pad_multiple == 0) return shape.seq_len;
  const int64_t multiples = (longest + shape.pad_multiple - 1) / shape.pad_multiple;
  return std::min(multiples * shape.pad_multiple, shape.seq_len);
}

}  // namespace

HostBatch collate(const Dataset& dataset, std::span<const int64_t> indices,
                  const BatchShape& shape) {
  require(static_cast<int64_t>(indices.size()) <= shape.batch_size, "collate: ", indices.size(),
          " samples for a batch of ", shape.batch_size);
  const BatchFields fields = dataset.fields();
  std::vector<Sample> samples(indices.size());
  int64_t longest = 1;
  for (size_t row = 0; row < indices.size(); ++row) {
    dataset.read(indices[row], samples[row]);
    check(samples[row], indices[row], shape.seq_len, fields, dataset);
    longest = std::max(longest, static_cast<int64_t>(samples[row].tokens.size()));
  }
  const int64_t T = padded_length(longest, shape);
  const auto elements = static_cast<size_t>(shape.batch_size * T);
  HostBatch batch{.batch_size = shape.batch_size, .seq_len = T};
  batch.input_ids.assign(elements, 0);
  batch.labels.assign(elements, nn::kIgnoredLabel);
  if (fields.lengths) batch.lengths.assign(static_cast<size_t>(shape.batch_size), 1);
  if (fields.document_starts) batch.document_starts.assign(elements, 0);

  for (size_t row = 0; row < samples.size(); ++row) {
    const Sample& sample = samples[row];
    const auto offset = static_cast<std::ptrdiff_t>(row) * T;
    std::copy(sample.tokens.begin(), sample.tokens.end(), batch.input_ids.begin() + offset);
    std::copy(sample.labels.begin(), sample.labels.end(), batch.labels.begin() + offset);
    if (fields.document_starts) {
      const auto end = std::copy(sample.document_starts.begin(), sample.document_starts.end(),
                                 batch.document_starts.begin() + offset);
      // Padding is a document of its own, so that it never sees, nor is seen by, real tokens.
      std::fill(end, batch.document_starts.begin() + offset + T,
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
