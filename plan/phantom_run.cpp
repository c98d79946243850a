#include "plan/phantom_run.h"

#include <utility>

#include "core/context.h"
#include "hub/family.h"

namespace zinc::plan {

data::LabelsOf labels_of(const hub::ModelConfig& model) {
  switch (objective(model).kind) {
    case hub::Objective::class_of_text:
      return data::LabelsOf::row;
    case hub::Objective::answer:
      return data::LabelsOf::text;
    default:
      return data::LabelsOf::tokens;
  }
}

data::BatchFields batch_fields(const PlanOptions& options, const hub::ModelConfig& model) {
  return options.fields.value_or(data::BatchFields{.labels = labels_of(model)});
}

PhantomData::PhantomData(int64_t num_samples, int64_t seq, data::BatchFields fields,
                         std::function<void()> on_read)
    : num_samples_(num_samples),
      seq_(seq),
      fields_(std::move(fields)),
      on_read_(std::move(on_read)) {
  if (fields_.labels == data::LabelsOf::masked)
    fields_.labels = data::LabelsOf::tokens;  // has the same shape
}

void PhantomData::read(int64_t, data::Sample& sample) const {
  if (on_read_) on_read_();
  const auto length = static_cast<size_t>(seq_);
  sample.tokens.assign(length, 0);
  sample.labels.assign(fields_.labels == data::LabelsOf::row ? 1 : length, 0);
  if (fields_.document_starts) sample.document_starts.assign(length, 0);
  sample.more.assign(fields_.more.size(), std::vector<int32_t>(length, 0));
}

comm::World phantom_world(const PlanOptions& options, const train::Config& config,
                          std::shared_ptr<comm::PhantomLedger> ledger, WorkLog& log,
                          std::function<void(Tier, const MemoryReport&)> on_peak) {
  Device device = options.device;
  device.meta = true;
  ContextOptions context{.device = device,
                         .seed = config.seed,
                         .num_threads = options.num_threads,
                         .execution = ContextOptions::Execution::inline_all,
                         .work_log = &log};
  context.memory.limits[static_cast<size_t>(Tier::device)] = config.device_memory_limit;
  context.memory.on_peak = std::move(on_peak);
  // nccl serves the GPU itself, the others are staged where there is one.
  const bool is_nccl = options.backend == "nccl";
  auto communicator =
      comm::make_phantom({.rank = options.rank.value_or(0),
                          .size = options.world,
                          .imitates = options.backend,
                          .device = is_nccl ? device : Device{.meta = true},
                          .wishes =
                              [mesh = config.mesh](int split, int rank) {
                                const auto [color, key] = comm::group_along(
                                    mesh, mesh.axes().at(static_cast<size_t>(split)), rank);
                                return comm::PhantomOptions::Wish{color, key};
                              },
                          .ranks_per_host = options.ranks_per_host,
                          .ledger = std::move(ledger)});
  comm::World world({.rank = options.rank.value_or(0),
                     .size = options.world,
                     .local_rank = 0,
                     .local_size = 1,
                     .source = "phantom"},
                    std::move(communicator), std::make_unique<Context>(std::move(context)), nullptr,
                    is_nccl ? comm::DeviceCollectives::given : comm::DeviceCollectives::staged);
  world.configure({.mesh = config.mesh});
  return world;
}

}  // namespace zinc::plan
