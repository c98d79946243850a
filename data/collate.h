// data/collate.h: makes a batch of one shape from samples.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/philox.h"
#include "core/shape.h"
#include "data/dataset.h"
#include "nn/batch.h"

namespace zinc::data {

// A batch in host memory, filled by a loader's thread, before it becomes tensors.
struct HostBatch {
  struct Column {
    std::string name;
    Shape shape;
    std::vector<int32_t> values;
  };
  std::vector<Column> columns{};  // see nn::Batch
  int64_t num_targets = 0;
  int64_t num_tokens = 0;
  int64_t global_micro_batch = -1;
};

struct BatchShape {
  int64_t batch_size = 0;  // B
  int64_t seq_len = 0;     // T; with pad_multiple the largest T
  // 0: T is seq_len. Otherwise T is the longest sample's length rounded up to a multiple of this:
  // at least one multiple, at most seq_len.
  int64_t pad_multiple = 0;
};

// Hides tokens of a sample of LabelsOf::masked as Masking says. `key` draws them.
void mask_tokens(Sample& sample, const Masking& masking, const RandomKey& key);

// Reads the samples `indices`, pads each to T (pad_token, label kIgnoredLabel) and fills up with
// empty rows to batch_size. Lengths of empty rows are 1, so that attention always has a key.
// `keys`: for LabelsOf::masked, one per sample. Throws a DataError for a sample that is longer than
// seq_len, or whose labels or further fields do not match its tokens.
HostBatch collate(const Dataset& dataset, std::span<const int64_t> indices, const BatchShape& shape,
                  std::span<const RandomKey> keys = {});

// Tensors on the current context's device.
nn::Batch to_batch(const HostBatch& host);
// Zeros of the largest shapes that collate() gives, on the current context's device, with the
// largest number of targets. An engine records a model with this batch
// (zero::EngineOptions::example).
nn::Batch example_batch(const BatchFields& fields, const BatchShape& shape);

}  // namespace zinc::data
