// plan/phantom_run.h: what a run on a meta device needs in place of ranks and data.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "comm/phantom/phantom.h"
#include "comm/world.h"
#include "core/allocator.h"
#include "core/work_log.h"
#include "data/dataset.h"
#include "hub/model_config.h"
#include "plan/plan.h"
#include "train/config/config.h"

namespace zinc::plan {

// The labels that records have for the model.
data::LabelsOf labels_of(const hub::ModelConfig& model);
// The tensors of a batch: those of the options, or tokens and labels.
data::BatchFields batch_fields(const PlanOptions& options, const hub::ModelConfig& model);

// Samples of one length, of zeros.
class PhantomData final : public data::Dataset {
 public:
  // `on_read`: called ahead of every sample that is read; may be empty.
  PhantomData(int64_t num_samples, int64_t seq, data::BatchFields fields,
              std::function<void()> on_read = {});
  int64_t num_samples() const override { return num_samples_; }
  data::BatchFields fields() const override { return fields_; }
  void read(int64_t index, data::Sample& sample) const override;
  std::string describe() const override { return "no data"; }

 private:
  int64_t num_samples_;
  int64_t seq_;
  data::BatchFields fields_;
  std::function<void()> on_read_;
};

// A rank of options.world ranks on a meta device, with the configuration's mesh and limits. The
// ledger gets the traffic, `log` the work; `on_peak` is AllocatorOptions::on_peak. `log` must
// outlive the world.
comm::World phantom_world(const PlanOptions& options, const train::Config& config,
                          std::shared_ptr<comm::PhantomLedger> ledger, WorkLog& log,
                          std::function<void(Tier, const MemoryReport&)> on_peak);

}  // namespace zinc::plan
