#include "train/checkpoint/save_checkpoint.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <exception>
#include <filesystem>
#include <map>
#include <set>
#include <string_view>
#include <thread>

#include "autograd/weight_encoding.h"
#include "comm/gather_values.h"
#include "core/convert.h"
#include "core/error.h"
#include "core/parallel.h"
#include "files/atomic_file.h"
#include "hub/model_config.h"
#include "hub/weight_reader.h"
#include "kernels/cpu/past_caches.h"
#include "train/checkpoint/checkpoint_folder.h"
#include "train/checkpoint/state_file.h"
#include "train/weights/finite_weights.h"

namespace zinc::train {
namespace {

using comm::together;

std::vector<NamedShape> parameters_of(nn::Model& model) {
  std::vector<NamedShape> parameters;
  for (const auto& [name, parameter] : model.named_parameters()) {
    parameters.push_back({name, parameter->whole_shape()});
  }
  return parameters;
}

DType wide_dtype(const zero::Engine& engine) {
  return engine.config().precision.dtype == DType::f64 ? DType::f64 : DType::f32;
}

bool is_trained(zero::Engine& engine, const std::string& parameter) {
  return engine.model().parameter(parameter).requires_grad();
}

// The index file of each rank, by rank. Collective.
std::vector<StoredFile> gather_indices(comm::World& world, const StoredFile& mine) {
  const std::array<double, 2> figures{static_cast<double>(mine.bytes),
                                      static_cast<double>(mine.crc)};
  const std::vector<double> all = comm::gather_values(world, figures);
  std::vector<StoredFile> files;
  for (int rank = 0; rank < world.size(); ++rank) {
    const size_t at = 2 * static_cast<size_t>(rank);
    files.push_back({.name = state_file_name(rank, world.size()) + ".json",
                     .bytes = static_cast<int64_t>(all[at]),
                     .crc = static_cast<uint32_t>(all[at + 1])});
  }
  return files;
}

void write_manifest(const zero::TrainingState& state, const comm::World& world,
                    const std::string& folder, std::vector<StoredFile> indices,
                    const SaveCheckpointOptions& options,
                    const std::optional<FrozenWeights>& frozen) {
  Manifest manifest{.world = world.size(),
                    .seed = world.context().random().seed(),
                    .state = state,
                    .client_state = options.client_state,
                    .files = {},
                    .indices = {},
                    .frozen = frozen};
  for (const StoredFile& index : indices) manifest.indices.push_back(index.name);
  manifest.files = std::move(indices);
  for (const auto& [name, text] : options.texts) {
    manifest.files.push_back(write_stored_file(folder, name, text));
  }
  const std::string text = to_json(manifest);
  try {
    parse_manifest(text, "manifest.json");
  } catch (const DataError& error) {
    throw ConfigError(
        str("a checkpoint of this state could not be read again (client_state must "
            "be small): ",
            error.what()));
  }
  write_stored_file(folder, "manifest.json", text);
}

// All threads copy, since training waits.
void copy_past_caches(std::byte* to, const ConstView& values) {
  constexpr int64_t kGrain = int64_t{1} << 20;
  const auto* from = static_cast<const std::byte*>(values.data());
  parallel_for(values.bytes(), kGrain, [&](int64_t begin, int64_t end) {
    kernels::cpu::copy_bytes(to + begin, from + begin, end - begin, /*past_caches=*/true);
    kernels::cpu::flush_past_caches();
  });
}

// The paths of all checkpoints in the folder, the newest first; with a tag, only that one.
std::vector<std::string> candidates(const std::string& folder, const std::string& tag) {
  if (!tag.empty()) return {str(folder, '/', tag)};
  std::vector<std::string> paths;
  for (const FoundCheckpoint& found : find_checkpoints(folder)) paths.push_back(found.path);
  return paths;
}

}  // namespace

std::vector<StateSnapshot::Part> StateSnapshot::take(zero::Engine& engine, bool without_frozen) {
  Context& context = engine.world().context();
  const zero::EngineUsage usage = engine.usage();
  const int64_t room = (usage.can_hold_own ? 0 : usage.own.trained) + usage.own.vectors +
                       (without_frozen ? 0 : usage.own.frozen);
  if (memory_.bytes() < room) {
    memory_.reset();
    memory_ = context.allocate(room, Label::staging, Tier::pinned_host);
  }
  std::vector<Part> parts;
  std::map<std::pair<std::string_view, std::string_view>, size_t> places;  // by name and kind
  int64_t used = 0;
  const auto take_piece = [&](const zero::OwnPiece& piece) {
    if (context.device().meta || (without_frozen && !is_trained(engine, piece.name))) return;
    const auto [place, is_new] = places.try_emplace({piece.name, piece.kind}, parts.size());
    if (is_new) {
      parts.push_back({piece.name, std::string(piece.kind),
                       piece.slice == nullptr ? std::nullopt : std::optional(*piece.slice),
                       piece.shape == nullptr ? std::nullopt : std::optional(*piece.shape),
                       piece.part, wide_dtype(engine)});
      if (!piece.lease) {
        parts.back().copy = static_cast<std::byte*>(memory_.data()) + used;
        used += piece.part.size() * size_of(parts.back().dtype);
        bug_check(used <= room, "a rank hands out more than ", room, " bytes");
      }
    }
    Part& part = parts[place->second];
    if (piece.lease) {
      part.held.push_back({piece.lease, piece.values, piece.read});
    } else {
      const int64_t begin = piece.begin - piece.part.begin;
      copy_past_caches(part.copy + begin * size_of(part.dtype), piece.values);
    }
  };
  engine.read_own(zero::Engine::Own::weights_and_states, take_piece, /*hold=*/true);
  return parts;
}

void StateSnapshot::read(std::vector<Part> parts, const zero::TakeOwn& take) {
  std::vector<std::byte> room;
  for (Part& part : parts) {
    for (int64_t begin = 0; begin < part.range.size(); begin += kBlockNumel) {
      const Shape shape{std::min(kBlockNumel, part.range.size() - begin)};
      ConstView values;
      Held* const held =
          part.held.empty() ? nullptr : &part.held[static_cast<size_t>(begin / kBlockNumel)];
      if (held == nullptr) {
        values = ConstView(part.copy + begin * size_of(part.dtype), part.dtype, shape, kCpu);
      } else if (held->values) {
        values = held->values;
      } else {
        room.resize(static_cast<size_t>(shape.numel() * size_of(part.dtype)));
        const View out(room.data(), part.dtype, shape, kCpu);
        held->read(out);
        values = out;
      }
      take({.name = part.name,
            .kind = part.kind,
            .slice = part.slice ? &*part.slice : nullptr,
            .shape = part.shape ? &*part.shape : nullptr,
            .part = part.range,
            .begin = part.range.begin + begin,
            .values = values});
      if (held != nullptr) held->lease.reset();
    }
  }
}

// A checkpoint under way.
struct CheckpointSaver::Pending {
  std::string target;
  std::string path;                         // of the temporary folder
  std::optional<files::AtomicFolder> made;  // on rank 0
  std::vector<NamedShape> parameters;
  zero::TrainingState state;
  SaveCheckpointOptions options;
  StoredFile index;
  std::exception_ptr failure;
  std::atomic<bool> is_written{false};
  std::thread thread;

  // If the checkpoint is given up, rank 0 removes its folder. Another rank may have made files
  // there since.
  ~Pending() {
    if (thread.joinable()) thread.join();
    std::error_code ignored;
    if (!path.empty()) std::filesystem::remove_all(path, ignored);
  }
};

Block CheckpointSaver::take_buffers(Context& context) {
  return context.allocate(files::AtomicFile::kDirectBytes, Label::staging, Tier::pinned_host);
}

CheckpointSaver::CheckpointSaver(zero::Engine& engine, std::string folder)
    : engine_(engine),
      folder_(std::move(folder)),
      buffers_(take_buffers(engine.world().context())) {}
CheckpointSaver::~CheckpointSaver() = default;

void CheckpointSaver::begin(const std::string& tag, SaveCheckpointOptions options, bool beside) {
  bug_check(pending_ == nullptr, "a checkpoint is under way");
  comm::World& world = engine_.world();
  auto pending = std::make_unique<Pending>();
  pending->state = engine_.state();
  pending->target = str(folder_, '/', tag.empty() ? checkpoint_name(pending->state.steps) : tag);
  pending->parameters = parameters_of(engine_.model());
  pending->options = std::move(options);
  for (const auto& [name, parameter] : engine_.model().named_parameters()) {
    if (!parameter->block_format() || !pending->options.frozen_from.empty()) continue;
    throw ConfigError(str("a checkpoint cannot hold ", name, ", which is kept in ",
                          name_of(*parameter->block_format()),
                          ": name the folder of the base (frozen_from)"));
  }
  if (!pending->options.frozen_from.empty() && world.tensor() != nullptr) {
    throw ConfigError(
        "a checkpoint of a model whose layers ranks share holds all of it: leave frozen_from out");
  }
  if (!pending->options.frozen_from.empty()) describe_frozen(pending->options.frozen_from);
  together(world, "make the folder of a checkpoint", [&] {
    if (!world.is_main()) return;
    files::create_folders(folder_);
    pending->made.emplace(pending->target);
  });
  pending->path = comm::share_text(world, pending->made ? pending->made->path() : std::string());
  if (!beside) {
    together(world, "write a checkpoint", [&] {
      write(*pending, [this](const zero::TakeOwn& take) {
        engine_.read_own(zero::Engine::Own::weights_and_states, take);
      });
    });
    pending->is_written = true;
    pending_ = std::move(pending);
    return;
  }
  std::vector<StateSnapshot::Part> parts;
  together(world, "copy the state",
           [&] { parts = snapshot_.take(engine_, !pending->options.frozen_from.empty()); });
  pending_ = std::move(pending);
  pending_->thread = std::thread([this, now = pending_.get(), parts = std::move(parts)]() mutable {
    // Training comes first where there are fewer processors than threads, but not alone.
    constexpr int kLater = 19;
    ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kLater);
    try {
      write(*now, [&](const zero::TakeOwn& take) { StateSnapshot::read(std::move(parts), take); });
    } catch (...) {
      now->failure = std::current_exception();
    }
    now->is_written = true;
  });
}

void CheckpointSaver::write(Pending& pending,
                            const std::function<void(const zero::TakeOwn&)>& read) const {
  const comm::World& world = engine_.world();
  StateFileWriter file(pending.path, state_file_name(world.rank(), world.size()),
                       pending.parameters, pending.state.kinds, wide_dtype(engine_),
                       {static_cast<std::byte*>(buffers_.data()),
                        static_cast<size_t>(files::AtomicFile::kDirectBytes)});
  const bool without_frozen = !pending.options.frozen_from.empty();
  read([&](const zero::OwnPiece& piece) {
    if (without_frozen && !is_trained(engine_, piece.name)) return;
    if (!pending.options.allow_damaged && piece.kind == zero::kWeightsKind) {
      require_finite(piece, pending.target);
    }
    file.write(piece);
  });
  pending.index = file.finish();
}

// Each rank compares its values with the folder, and computes the checksums of a share. Does so
// again if other parameters are frozen, or values were set by hand since.
void CheckpointSaver::describe_frozen(const std::string& from) {
  comm::World& world = engine_.world();
  const int64_t values_set = engine_.usage().values_set;
  FrozenWeights frozen{.folder = std::filesystem::weakly_canonical(from).string(),
                       .parameters = {}};
  for (const auto& [name, parameter] : engine_.model().named_parameters()) {
    if (parameter->requires_grad()) continue;
    frozen.parameters.push_back(
        {.name = name, .shape = parameter->whole_shape(), .dtype = parameter->dtype()});
  }
  std::ranges::sort(frozen.parameters, {}, &FrozenWeights::Parameter::name);
  const bool is_known =
      frozen_ && frozen_values_set_ == values_set && frozen_->folder == frozen.folder &&
      std::ranges::equal(frozen_->parameters, frozen.parameters, {},
                         &FrozenWeights::Parameter::name, &FrozenWeights::Parameter::name);
  if (is_known) return;
  const auto ranks = static_cast<size_t>(world.size());
  std::vector<double> crcs;
  together(world, "read the frozen weights", [&] {
    const hub::WeightReader reader(hub::WeightFolder::open(frozen.folder),
                                   hub::name_map_of_folder(frozen.folder));
    for (size_t i = 0; i < frozen.parameters.size(); ++i) {
      const auto& [name, shape, dtype, unused] = frozen.parameters[i];
      const bool is_mine = i % ranks == static_cast<size_t>(world.rank());
      crcs.push_back(is_mine ? crc_of_weight(reader, name, shape, dtype) : 0.0);
    }
    std::vector<std::byte> narrow, wide;
    const autograd::ReadValues read = [&](const autograd::Parameter& parameter, int64_t begin,
                                          const View& out) {
      reader.read(parameter.name(), parameter.shape(), begin, out);
    };
    std::optional<autograd::WeightEncoder> encoder;  // encodes `encoded`
    const autograd::Parameter* encoded = nullptr;
    engine_.read_own(zero::Engine::Own::weights, [&](const zero::OwnPiece& piece) {
      const autograd::Parameter& parameter = engine_.model().parameter(piece.name);
      if (parameter.requires_grad()) return;
      const Shape shape{piece.values.numel()};
      narrow.resize(static_cast<size_t>(shape.numel() * size_of(parameter.dtype())));
      wide.resize(static_cast<size_t>(piece.values.bytes()));
      const View values(narrow.data(), parameter.dtype(), shape, kCpu);
      if (!parameter.block_format()) {
        read(parameter, piece.begin, values);
      } else {
        if (encoded != &parameter) encoder.emplace(parameter, read);
        encoded = &parameter;
        encoder->round(piece.begin, values);
      }
      convert_elements(values, View(wide.data(), piece.values.dtype(), shape, kCpu));
      if (std::memcmp(wide.data(), piece.values.data(), wide.size()) == 0) return;
      throw ConfigError(str(frozen.folder, ": ", piece.name,
                            " is not what this run has: save "
                            "its frozen weights with it (an empty frozen_from)"));
    });
  });
  const std::vector<double> all = comm::gather_values(world, crcs);
  for (size_t i = 0; i < frozen.parameters.size(); ++i) {
    frozen.parameters[i].crc =
        static_cast<uint32_t>(all[(i % ranks) * frozen.parameters.size() + i]);
  }
  frozen_ = std::move(frozen);
  frozen_values_set_ = values_set;
}

std::optional<std::string> CheckpointSaver::poll() {
  if (pending_ == nullptr || comm::any_rank(engine_.world(), !pending_->is_written)) return {};
  return commit();
}

std::string CheckpointSaver::finish() {
  bug_check(pending_ != nullptr, "no checkpoint is under way");
  return commit();
}

std::string CheckpointSaver::commit() {
  const std::unique_ptr<Pending> pending = std::move(pending_);
  if (pending->thread.joinable()) pending->thread.join();
  comm::World& world = engine_.world();
  comm::require_all_succeeded(world, "write a checkpoint", pending->failure);
  std::vector<StoredFile> indices = gather_indices(world, pending->index);
  pending->path.clear();  // from here on only rank 0 uses the folder
  together(world, "commit a checkpoint", [&] {
    if (!world.is_main()) return;
    write_manifest(pending->state, world, pending->made->path(), std::move(indices),
                   pending->options, pending->options.frozen_from.empty() ? std::nullopt : frozen_);
    pending->made->commit(/*replace=*/true);
  });
  return pending->target;
}

std::string save_checkpoint(zero::Engine& engine, const std::string& folder, const std::string& tag,
                            const SaveCheckpointOptions& options) {
  CheckpointSaver saver(engine, folder);
  saver.begin(tag, options, /*beside=*/false);
  return saver.finish();
}

Checkpoint open_checkpoint(comm::World& world, const std::string& folder,
                           const OpenCheckpointOptions& options, std::vector<std::string>* notes) {
  const std::string& tag = options.tag;
  // Rank 0 looks: other ranks may see a new folder later.
  std::string list;
  together(world, "look for checkpoints", [&] {
    if (!world.is_main()) return;
    for (const std::string& path : candidates(folder, tag)) list += path + '\n';
  });
  list = comm::share_text(world, list);
  std::optional<Checkpoint> found;
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = list.find('\n', begin);
    const std::string path = list.substr(begin, end - begin);
    begin = end + 1;
    std::exception_ptr failure;
    std::string why;
    try {
      found.emplace(Checkpoint::open(path));
      if (!options.frozen_from.empty()) found->look_for_frozen_in(options.frozen_from);
      found->verify(world.rank(), world.size());
      found->verify_frozen(world.rank(), world.size());
    } catch (const DataError& error) {
      failure = std::current_exception();
      why = error.what();
    } catch (...) {
      failure = std::current_exception();
    }
    const bool passes_by = tag.empty() && !why.empty();
    if (comm::any_rank(world, failure != nullptr && !passes_by)) {
      comm::require_all_succeeded(world, "open a checkpoint", failure);
    }
    if (!comm::any_rank(world, failure != nullptr)) return std::move(*found);
    if (notes != nullptr) {
      notes->push_back(why.empty() ? str(path, ": another rank found it damaged") : why);
    }
  }
  throw DataError(str(folder, ": there is no checkpoint that is whole"));
}

void load_checkpoint(zero::Engine& engine, const Checkpoint& checkpoint,
                     const zero::ImportOptions& options) {
  const uint64_t seed = engine.world().context().random().seed();
  if (checkpoint.manifest().seed != seed && options.counters) {
    throw ConfigError(str(checkpoint.path(), ": trained with the seed ", checkpoint.manifest().seed,
                          ", and this run has ", seed, ": go on with --seed ",
                          checkpoint.manifest().seed));
  }
  const std::string optimizer = engine.state().optimizer;
  if (checkpoint.state().optimizer != optimizer && options.optimizer_states) {
    throw ConfigError(str(checkpoint.path(), ": trained by ", checkpoint.state().optimizer,
                          ", and this run has ", optimizer,
                          ": configure that, or take the checkpoint without its optimizer states: "
                          "--reset-optimizer"));
  }
  engine.import_state(checkpoint, options);
}

files::json::Object load_checkpoint(zero::Engine& engine, const std::string& folder,
                                    const std::string& tag, const zero::ImportOptions& options) {
  const Checkpoint checkpoint = open_checkpoint(engine.world(), folder, {.tag = tag});
  std::set<std::string> known;
  for (const auto& [name, parameter] : engine.model().named_parameters()) known.insert(name);
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (!options.strict || known.contains(name)) continue;
    throw ConfigError(
        str(checkpoint.path(), ": it has ", name, ", and this model has no such parameter"));
  }
  load_checkpoint(engine, checkpoint, options);
  return checkpoint.manifest().client_state;
}

}  // namespace zinc::train
