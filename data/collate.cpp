#include "data/collate.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/error.h"

namespace zinc::data {
namespace {

void check(const Sample& sample, int64_t index, int64_t seq_len, const BatchFields& fields,
           const Dataset& dataset) {
  const auto tokens = std::ssize(sample.tokens), labels = std::ssize(sample.labels);
  const auto fail = [&](const auto&... what) {
    throw DataError(str(dataset.describe(), ": sample ", index, " has ", what...));
  };
  if (tokens > seq_len) fail(tokens, " tokens, more than the sequence length of ", seq_len);
  if (fields.labels == LabelsOf::text) {
    if (labels > seq_len) fail(labels, " labels, more than the sequence length of ", seq_len);
  } else if (labels != (fields.labels == LabelsOf::row ? 1 : tokens)) {
    fail(tokens, " tokens but ", labels, " labels",
         fields.labels == LabelsOf::row ? " where one belongs" : "");
  }
  const auto starts = std::ssize(sample.document_starts);
  if (starts != (fields.document_starts ? tokens : 0)) {
    fail(starts, " document starts where ", fields.document_starts ? tokens : 0, " belong");
  }
  if (sample.more.size() != fields.more.size()) {
    fail(sample.more.size(), " further fields where ", fields.more.size(), " belong");
  }
  for (size_t i = 0; i < fields.more.size(); ++i) {
    if (std::ssize(sample.more[i]) != tokens) {
      fail(sample.more[i].size(), " values of ", fields.more[i], " but ", tokens, " tokens");
    }
  }
}

int64_t padded_length(int64_t longest, const BatchShape& shape) {
  if (shape.pad_multiple == 0) return shape.seq_len;
  const int64_t multiples = (longest + shape.pad_multiple - 1) / shape.pad_multiple;
  return std::min(multiples * shape.pad_multiple, shape.seq_len);
}

Shape shape_of_labels(const BatchFields& fields, const Shape& tokens, int64_t text_length) {
  switch (fields.labels) {
    case LabelsOf::tokens:
    case LabelsOf::masked:
      return tokens;
    case LabelsOf::row:
      return {tokens.dim(0)};
    case LabelsOf::text:
      return {tokens.dim(0), text_length};
  }
  return tokens;
}

HostBatch::Column column(std::string name, const Shape& shape, int32_t padding) {
  return {std::move(name), shape,
          std::vector<int32_t>(static_cast<size_t>(shape.numel()), padding)};
}
// Copies `values` to the front of the row; returns the beginning of the row's padding.
auto put_row(HostBatch::Column& to, size_t row, const std::vector<int32_t>& values) {
  const int64_t width = to.shape.rank() == 1 ? 1 : to.shape.dim(1);
  return std::copy(values.begin(), values.end(),
                   to.values.begin() + static_cast<std::ptrdiff_t>(row) * width);
}

}  // namespace

void mask_tokens(Sample& sample, const Masking& masking, const RandomKey& key) {
  for (size_t i = 0; i < sample.tokens.size(); ++i) {
    if (sample.labels[i] == nn::kIgnoredLabel) continue;
    const PhiloxBlock draws = philox4x32(i, key.counter_high, key.key);
    if (RandomKey::to_uniform(draws.word[0]) >= masking.share) {
      sample.labels[i] = nn::kIgnoredLabel;
      continue;
    }
    const float kind = RandomKey::to_uniform(draws.word[1]);
    if (kind < 0.8f) {
      sample.tokens[i] = masking.mask_token;
    } else if (kind < 0.9f) {
      const auto size = static_cast<uint64_t>(masking.vocabulary_size);
      sample.tokens[i] = static_cast<int32_t>((draws.word[2] * size) >> 32);
    }
  }
}

HostBatch collate(const Dataset& dataset, std::span<const int64_t> indices, const BatchShape& shape,
                  std::span<const RandomKey> keys) {
  require(static_cast<int64_t>(indices.size()) <= shape.batch_size, "collate: ", indices.size(),
          " samples for a batch of ", shape.batch_size);
  const BatchFields fields = dataset.fields();
  require(fields.labels != LabelsOf::masked || keys.size() == indices.size(),
          "collate: ", keys.size(), " keys of ", indices.size(),
          " samples whose tokens are hidden");
  std::vector<Sample> samples(indices.size());
  int64_t longest = 1, longest_labels = 1;
  for (size_t row = 0; row < indices.size(); ++row) {
    dataset.read(indices[row], samples[row]);
    check(samples[row], indices[row], shape.seq_len, fields, dataset);
    if (fields.labels == LabelsOf::masked) mask_tokens(samples[row], fields.masking, keys[row]);
    longest = std::max<int64_t>(longest, std::ssize(samples[row].tokens));
    longest_labels = std::max<int64_t>(longest_labels, std::ssize(samples[row].labels));
  }
  const int64_t B = shape.batch_size;
  const Shape tokens{B, padded_length(longest, shape)};
  HostBatch batch;
  HostBatch::Column ids = column("input_ids", tokens, fields.pad_token);
  HostBatch::Column labels =
      column("labels", shape_of_labels(fields, tokens, padded_length(longest_labels, shape)),
             nn::kIgnoredLabel);
  HostBatch::Column lengths = column("lengths", {B}, 1);
  HostBatch::Column starts = column("document_starts", tokens, 0);
  HostBatch::Column positions = column("positions", tokens, 0);
  std::vector<HostBatch::Column> more;
  for (const std::string& name : fields.more) more.push_back(column(name, tokens, 0));

  for (size_t row = 0; row < samples.size(); ++row) {
    const Sample& sample = samples[row];
    const auto size = static_cast<int32_t>(sample.tokens.size());
    put_row(ids, row, sample.tokens);
    put_row(labels, row, sample.labels);
    if (fields.document_starts) {
      // Padding is a separate document, so that it never sees, nor is seen by, real tokens.
      std::fill_n(put_row(starts, row, sample.document_starts), tokens.dim(1) - size, size);
    }
    lengths.values[row] = std::max(1, size);
    for (size_t i = 0; i < more.size(); ++i) put_row(more[i], row, sample.more[i]);
    batch.num_tokens += size;
    batch.num_targets += std::count_if(sample.labels.begin(), sample.labels.end(),
                                       [](int32_t label) { return label != nn::kIgnoredLabel; });
  }
  batch.columns.push_back(std::move(ids));
  batch.columns.push_back(std::move(labels));
  if (fields.lengths) batch.columns.push_back(std::move(lengths));
  if (fields.document_starts) {
    for (size_t i = 0; i < positions.values.size(); ++i) {
      positions.values[i] =
          static_cast<int32_t>(static_cast<int64_t>(i) % tokens.dim(1)) - starts.values[i];
    }
    batch.columns.push_back(std::move(starts));
    batch.columns.push_back(std::move(positions));
  }
  std::move(more.begin(), more.end(), std::back_inserter(batch.columns));
  return batch;
}

nn::Batch example_batch(const BatchFields& fields, const BatchShape& shape) {
  const auto zeros = [](const Shape& extents) { return Tensor::zeros(extents, DType::i32); };
  const Shape rows{shape.batch_size}, tokens{shape.batch_size, shape.seq_len};
  const Shape labels = shape_of_labels(fields, tokens, shape.seq_len);
  nn::Batch batch{.tensors = {{"input_ids", zeros(tokens)}, {"labels", zeros(labels)}},
                  .num_targets = labels.numel(),
                  .num_tokens = tokens.numel()};
  if (fields.lengths) batch.tensors.set("lengths", zeros(rows));
  if (fields.document_starts) {
    batch.tensors.set("document_starts", zeros(tokens));
    batch.tensors.set("positions", zeros(tokens));
  }
  for (const std::string& name : fields.more) batch.tensors.set(name, zeros(tokens));
  return batch;
}

nn::Batch to_batch(const HostBatch& host) {
  nn::Batch batch{.num_targets = host.num_targets,
                  .num_tokens = host.num_tokens,
                  .global_micro_batch = host.global_micro_batch};
  for (const HostBatch::Column& column : host.columns) {
    batch.tensors.set(column.name, Tensor::from(std::span<const int32_t>(column.values),
                                                column.shape, DType::i32));
  }
  return batch;
}

}  // namespace zinc::data
