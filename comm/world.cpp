#include "comm/world.h"

#include <exception>
#include <utility>

#include "core/cuda_backend.h"
#include "core/error.h"

namespace zinc::comm {
namespace {

RankSettings settings_of(const ConnectOptions& options) {
  RankSettings settings;
  settings.seed = options.seed;
  settings.num_threads = options.num_threads;
  settings.device_memory_limit = options.memory.limits[static_cast<size_t>(Tier::device)];
  settings.deadline = options.deadline;
  return settings;
}

int64_t live_bytes(Context& context) {
  int64_t bytes = 0;
  const MemoryReport report = context.allocator().report();
  for (const MemoryFigures& tier : report.total) bytes += tier.live;
  return bytes;
}

// Names the settings that differ, for a message; empty: no setting of a context differs.
std::string changes(const RankSettings& from, const RankSettings& to) {
  std::string names;
  const auto add = [&](bool differs, std::string_view name) {
    if (differs) names += str(names.empty() ? "" : ", ", name);
  };
  add(from.seed != to.seed, "seed");
  add(from.num_threads != to.num_threads, "num_threads");
  add(from.device_memory_limit != to.device_memory_limit, "device_memory_limit");
  add(from.trace != to.trace, "trace");
  return names;
}

}  // namespace

World::World(RankInfo info, std::unique_ptr<Communicator> communicator,
             std::unique_ptr<Context> context, std::unique_ptr<CpuBinding> binding,
             DeviceCollectives collectives, std::unique_ptr<ContextRecipe> recipe)
    : info_(std::move(info)),
      recipe_(std::move(recipe)),
      exceptions_at_start_(std::uncaught_exceptions()),
      binding_(std::move(binding)),
      context_(std::move(context)),
      communicator_(std::move(communicator)) {
  require(communicator_ != nullptr && context_ != nullptr,
          "world: needs a communicator and a context");
  require(communicator_->rank() == info_.rank && communicator_->size() == info_.size,
          "world: rank ", info_.rank, " of ", info_.size, " was given the communicator of rank ",
          communicator_->rank(), " of ", communicator_->size());
  if (recipe_ != nullptr) given_ = settings_of(recipe_->options);
  settings_ = given_;
  scope_ = std::make_unique<ContextScope>(*context_);
  const Device device = context_->device();
  if (!device.is_cuda() && collectives != DeviceCollectives::absent) return;
  ChosenCollectives chosen = serve_device(std::move(communicator_), device, collectives);
  communicator_ = std::move(chosen.communicator);
  device_collectives_ = std::move(chosen.how);
}

World::World(const World& whole, std::unique_ptr<Communicator> group)
    : info_(whole.info_),
      device_collectives_(whole.device_collectives_),
      settings_(whole.settings_),
      exceptions_at_start_(std::uncaught_exceptions()),
      context_(whole.context_),
      communicator_(std::move(group)) {
  info_.rank = communicator_->rank();
  info_.size = communicator_->size();
  settings_.mesh = {};
}

std::unique_ptr<World> World::group(MeshAxis axis) const {
  const MeshGroup mine = group_along(settings_.mesh, axis, info_.rank);
  return std::unique_ptr<World>(new World(*this, communicator_->split(mine.color, mine.key)));
}

std::unique_ptr<World>& World::along(MeshAxis axis) {
  switch (axis) {
    case MeshAxis::shards:
      return shards_;
    case MeshAxis::sequence:
      return sequence_;
    case MeshAxis::pipe:
      return pipe_;
    case MeshAxis::tensor:
      break;
  }
  return tensor_;
}

void World::leave_groups() {
  shards_.reset();
  sequence_.reset();
  pipe_.reset();
  tensor_.reset();
}

World::~World() {
  if (communicator_ != nullptr && std::uncaught_exceptions() > exceptions_at_start_) {
    communicator_->abort("ends because of an exception");
  }
}

World::World(World&&) noexcept = default;

void World::configure(RankSettings settings) {
  const std::string names = changes(settings_, settings);
  if (!names.empty()) {
    const auto refuse = [&names](std::string_view why) {
      throw ConfigError(str("this rank's ", names, " cannot be changed: ", why));
    };
    if (recipe_ == nullptr) refuse("its context is the program's own; set it there");
    if (context_->device().is_cuda() && info_.size > 1) {
      refuse("ranks on several GPUs are bound to their context; give it to connect()");
    }
    if (settings.trace != nullptr && recipe_->options.trace != nullptr) {
      refuse("it records into ConnectOptions::trace; leave one of them out");
    }
    if (live_bytes(*context_) > 0 || Context::current_or_null() != context_.get()) {
      refuse(
          "tensors were made since connect(); load the configuration before anything else, or "
          "give it to connect()");
    }
    ConnectOptions options = recipe_->options;
    options.seed = settings.seed;
    options.num_threads = settings.num_threads;
    options.memory.limits[static_cast<size_t>(Tier::device)] = settings.device_memory_limit;
    ContextOptions made = context_options(options, info_.local_rank, recipe_->num_cpus);
    made.device = context_->device();
    if (settings.trace != nullptr) {
      made.trace = settings.trace.get();
    } else if (!options.rank_traces.empty()) {
      made.trace = options.rank_traces.at(static_cast<size_t>(info_.rank));
    }
    if (settings.num_threads > 0) info_.threads_from.clear();
    auto context = std::make_shared<Context>(std::move(made));
    leave_groups();
    scope_.reset();
    context_ = std::move(context);
    scope_ = std::make_unique<ContextScope>(*context_);
  }
  settings.mesh.require_fit(size());
  communicator_->set_deadline(settings.deadline);
  const bool keeps_groups = settings.mesh == settings_.mesh &&
                            (sequence_ != nullptr || pipe_ != nullptr || tensor_ != nullptr);
  settings_ = std::move(settings);
  if (!keeps_groups) leave_groups();
  if (settings_.mesh.is_flat()) {
    communicator_->describe_ranks({});
  } else {
    communicator_->describe_ranks(
        [mesh = settings_.mesh](int rank) { return mesh.describe(rank); });
  }
  for (const MeshAxis axis : settings_.mesh.axes()) {
    std::unique_ptr<World>& mine = along(axis);
    if (mine == nullptr) mine = group(axis);
    mine->communicator_->set_deadline(settings_.deadline);
  }
}

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
