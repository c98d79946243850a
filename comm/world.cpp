#include "comm/world.h"

#include <exception>
#include <utility>

#include "core/cuda_backend.h"
#include "core/error.h"

namespace zinc::comm {

World::World(RankInfo info, std::unique_ptr<Communicator> communicator,
             std::unique_ptr<Context> context, std::unique_ptr<CpuBinding> binding,
             DeviceCollectives collectives)
    : info_(std::move(info)),
      exceptions_at_start_(std::uncaught_exceptions()),
      binding_(std::move(binding)),
      context_(std::move(context)),
      communicator_(std::move(communicator)) {
  require(communicator_ != nullptr && context_ != nullptr,
          "world: needs a communicator and a context");
  require(communicator_->rank() == info_.rank && communicator_->size() == info_.size,
          "world: rank ", info_.rank, " of ", info_.size, " was given the communicator of rank ",
          communicator_->rank(), " of ", communicator_->size());
  scope_ = std::make_unique<ContextScope>(*context_);
  const Device device = context_->device();
  if (!device.is_cuda() && collectives != DeviceCollectives::absent) return;
  ChosenCollectives chosen = serve_device(std::move(communicator_), device, collectives);
  communicator_ = std::move(chosen.communicator);
  device_collectives_ = std::move(chosen.how);
}

World::~World() {
  if (communicator_ != nullptr && std::uncaught_exceptions() > exceptions_at_start_) {
    communicator_->abort("ends because of an exception");
  }
}

World::World(World&&) noexcept = default;

ContextOptions context_options(const ConnectOptions& options, int local_rank, int num_cpus) {
  ContextOptions context;
  context.device = options.device;
  if (options.spread_devices && options.device.is_cuda()) {
    const auto gpus = static_cast<int>(cuda_devices().size());
    if (gpus > 0) context.device.index = static_cast<int16_t>(local_rank % gpus);
  }
  context.seed = options.seed;
  context.num_threads = options.num_threads > 0 ? options.num_threads : num_cpus;
  context.memory = options.memory;
  context.execution = options.execution;
  context.shuffle_seed = options.shuffle_seed;
  context.trace = options.trace;
  return context;
}

}  // namespace zinc::comm
