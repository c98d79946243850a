#include "files/deepspeed/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "files/deepspeed/checkpoint_files.h"
#include "files/torch/in_quotes.h"
#include "files/torch/torch_file.h"

namespace zinc::files {

// Fills a checkpoint from the files of its folder.
class DeepSpeedReader {
 public:
  explicit DeepSpeedReader(DeepSpeedFiles files) : files_(std::move(files)) {}
  DeepSpeedCheckpoint read();

 private:
  using Parameter = DeepSpeedCheckpoint::Parameter;
  using Piece = DeepSpeedCheckpoint::Piece;
  using FilePointer = std::shared_ptr<const torch::TorchFile>;

  static FilePointer open(const std::string& path) {
    return std::make_shared<const torch::TorchFile>(torch::TorchFile::open(path));
  }
  torch::Value model() const { return model_files_.front()->root(); }
  [[noreturn]] void fail(std::string_view what) const {
    throw DataError(str(files_.folder, ": ", what));
  }

  void read_counters();
  void read_aliases();
  template <class Visit>
  void for_each_trained(Visit&& visit) const;
  void read_frozen();
  std::set<std::string, std::less<>> names_of(std::string_view key) const;
  void read_module(bool trained);
  void read_universal();
  void read_ranks();
  void read_partitions();  // ZeRO 1 and 2
  void read_shares();      // ZeRO 3
  size_t add_parameter(std::string_view name, const Shape& shape, bool trained);
  size_t parameter_of(const torch::Value& name) const;
  size_t add_flat(const FilePointer& file, const FlatTensors& tensors);
  static FlatTensors flat_tensors(const torch::Value& weights,
                                  const std::optional<torch::Value>& states);
  void add_piece(size_t parameter, int64_t count, size_t flat, int64_t offset);
  void check_pieces() const;

  DeepSpeedFiles files_;
  DeepSpeedCheckpoint checkpoint_;
  std::vector<FilePointer> model_files_;
  std::vector<FilePointer> rank_files_;
  std::vector<int64_t> placed_;  // elements of each parameter that pieces hold
};

namespace {

// A tuple of sizes, or torch.Size.
Shape shape_of(const torch::Value& sizes) {
  if (sizes.size() > kMaxRank) {
    sizes.fail(str("a parameter with ", sizes.size(), " dimensions; at most ", kMaxRank,
                   " are supported"));
  }
  Shape shape;
  int64_t elements = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t extent = sizes.at(i).as_int64();
    if (extent < 0 || __builtin_mul_overflow(elements, extent, &elements)) {
      sizes.fail("a parameter's shape is negative or overflows");
    }
    shape.push_back(extent);
  }
  return shape;
}

// The value under a key that older and newer versions may leave out or set to None.
std::optional<torch::Value> given(const torch::Value& dict, std::string_view key) {
  const std::optional<torch::Value> found = dict.find(key);
  return found && !found->is_none() ? found : std::nullopt;
}

int64_t integer(const torch::Value& dict, std::string_view key) {
  const std::optional<torch::Value> found = given(dict, key);
  return found ? found->as_int64() : 0;
}

// The state of group number `group`: of a dict by number, or of a list.
std::optional<torch::Value> state_of_group(const torch::Value& states, size_t group) {
  if (states.is_list()) {
    return group < states.size() ? std::optional(states.at(group)) : std::nullopt;
  }
  for (size_t i = 0; i < states.size(); ++i) {
    const torch::Value key = states.key(i);
    if (key.is_integer() && key.as_int64() == static_cast<int64_t>(group)) return states.value(i);
  }
  return std::nullopt;
}

int64_t stage_of(const torch::Value& optimizer) {
  const auto stage = given(optimizer, "zero_stage");
  if (!stage)
    return 1;  // the optimizer of bf16 with f32 gradients: partitions like those of ZeRO 1
  // An enum is made from its number.
  return (stage->is_object() ? stage->arguments().at(size_t{0}) : *stage).as_int64();
}

}  // namespace

DeepSpeedCheckpoint DeepSpeedReader::read() {
  checkpoint_.folder_ = files_.folder;
  for (const std::string& path : files_.model_states) model_files_.push_back(open(path));
  read_counters();
  read_aliases();
  if (files_.universal) {
    read_universal();
  } else if (files_.optimizer_states.empty()) {
    read_module(true);
  } else {
    for_each_trained([&](const torch::Value& name, const torch::Value& shape) {
      add_parameter(name.as_name(), shape_of(shape), true);
    });
    read_ranks();
    read_frozen();
  }
  check_pieces();
  return std::move(checkpoint_);
}

void DeepSpeedReader::read_counters() {
  DeepSpeedCounters& counters = checkpoint_.counters_;
  counters.global_steps = integer(model(), "global_steps");
  counters.skipped_steps = integer(model(), "skipped_steps");
  counters.global_samples = integer(model(), "global_samples");
  if (const auto scheduler = given(model(), "lr_scheduler"); scheduler && scheduler->is_dict()) {
    for (const std::string_view key : {"last_batch_iteration", "last_epoch"}) {
      const auto last = given(*scheduler, key);
      if (last && last->is_integer()) counters.scheduler_last_step = last->as_int64();
    }
  }
}

// The strings of a list, or the keys of a dict, in the model's file; empty where it has none.
std::set<std::string, std::less<>> DeepSpeedReader::names_of(std::string_view key) const {
  std::set<std::string, std::less<>> names;
  const auto found = given(model(), key);
  for (size_t i = 0; found && i < found->size(); ++i) {
    names.emplace((found->is_dict() ? found->key(i) : found->at(i)).as_string());
  }
  return names;
}

// {alias: name}, or pairs of both.
void DeepSpeedReader::read_aliases() {
  const auto shared = given(model(), "shared_params");
  if (!shared) return;
  for (size_t i = 0; i < shared->size(); ++i) {
    const torch::Value alias = shared->is_dict() ? shared->key(i) : shared->at(i).at(size_t{0});
    const torch::Value name = shared->is_dict() ? shared->value(i) : shared->at(i).at(size_t{1});
    checkpoint_.aliases_.emplace(alias.as_name(), name.as_name());
  }
}

size_t DeepSpeedReader::add_parameter(std::string_view name, const Shape& shape, bool trained) {
  const size_t index = checkpoint_.parameters_.size();
  if (!checkpoint_.by_name_.emplace(name, index).second) {
    fail(str("two parameters are called ", torch::in_quotes(name)));
  }
  checkpoint_.parameters_.push_back({std::string(name), shape, trained});
  checkpoint_.pieces_.emplace_back();
  placed_.push_back(0);
  return index;
}

size_t DeepSpeedReader::parameter_of(const torch::Value& name) const {
  const auto found = checkpoint_.by_name_.find(name.as_string());
  if (found == checkpoint_.by_name_.end()) {
    name.fail(str("the parameter ", torch::in_quotes(name.as_string()),
                  " is not among param_shapes of the model's file"));
  }
  return found->second;
}

size_t DeepSpeedReader::add_flat(const FilePointer& file, const FlatTensors& tensors) {
  checkpoint_.flats_.push_back(make_flat_states(file, tensors));
  return checkpoint_.flats_.size() - 1;
}

FlatTensors DeepSpeedReader::flat_tensors(const torch::Value& weights,
                                          const std::optional<torch::Value>& states) {
  FlatTensors tensors{};
  tensors[0] = &weights.as_tensor();
  if (!states) return tensors;
  const auto first = given(*states, "exp_avg"), second = given(*states, "exp_avg_sq");
  if (!first || !second) return tensors;  // an optimizer without Adam's moments
  tensors[1] = &first->as_tensor();
  tensors[2] = &second->as_tensor();
  return tensors;
}

// Adds a piece: the next `count` elements of a parameter.
void DeepSpeedReader::add_piece(size_t parameter, int64_t count, size_t flat, int64_t offset) {
  if (count == 0) return;
  const FlatStates& states = *checkpoint_.flats_[flat];
  for (const StateKind kind : kStateKinds) {
    if (!states.has(kind)) continue;
    if (offset < 0 || count < 0 || offset > states.size(kind) ||
        count > states.size(kind) - offset) {
      fail(str(name_of(kind), " of ", checkpoint_.parameters_[parameter].name, ": elements from ",
               offset, " on do not lie in a partition of ", states.size(kind),
               ": files of different runs?"));
    }
  }
  int64_t& placed = placed_[parameter];
  checkpoint_.pieces_[parameter].push_back({placed, count, flat, offset});
  placed += count;
}

void DeepSpeedReader::check_pieces() const {
  for (size_t i = 0; i < placed_.size(); ++i) {
    const Parameter& parameter = checkpoint_.parameters_[i];
    if (placed_[i] != parameter.shape.numel()) {
      fail(str("the ranks' files hold ", placed_[i], " elements of ", parameter.name, " ",
               parameter.shape, ": files of different runs, or of a missing rank"));
    }
  }
}

// Calls visit(name, shape) for the parameters of each group of the optimizer, in their order.
template <class Visit>
void DeepSpeedReader::for_each_trained(Visit&& visit) const {
  const torch::Value groups = model().at("param_shapes");
  for (size_t g = 0; g < groups.size(); ++g) {
    const torch::Value group = groups.at(g);
    for (size_t i = 0; i < group.size(); ++i) visit(group.key(i), group.value(i));
  }
}

void DeepSpeedReader::read_ranks() {
  for (const std::string& path : files_.optimizer_states) rank_files_.push_back(open(path));
  const auto world = static_cast<int64_t>(rank_files_.size());
  const int64_t saved_world = integer(model(), "dp_world_size");
  if (saved_world != 0 && saved_world != world) {
    fail(str("there are optimizer files of ", world, " ranks, but ", saved_world,
             " saved: copy the folders of all machines into one, without files of other runs"));
  }
  const torch::Value first = rank_files_.front()->root().at("optimizer_state_dict");
  const int64_t stage = stage_of(first);
  for (const FilePointer& file : rank_files_) {
    const torch::Value optimizer = file->root().at("optimizer_state_dict");
    if (stage_of(optimizer) != stage) optimizer.fail("the ranks' files are of different stages");
    if (given(optimizer, "ds_zero_partition_groups")) {
      optimizer.fail(
          "partitions of other groups than all ranks (experts): convert the checkpoint with python "
          "-m deepspeed.checkpoint.ds_to_universal first");
    }
  }
  if (const auto scaler = given(first, "loss_scaler"); scaler && scaler->is_object()) {
    const torch::Value state = scaler->state();
    const auto scale = state.is_dict() ? given(state, "cur_scale") : std::nullopt;
    if (scale) checkpoint_.counters_.loss_scale = scale->as_double();
  }
  switch (stage) {
    case 1:
    case 2:
      return read_partitions();
    case 3:
      return read_shares();
    default:
      fail(str("ZeRO stage ", stage, " is none that DeepSpeed has"));
  }
}

// Each rank has a stretch of the flat row of each group. The rank's mapping says which part belongs
// to which parameter; the rest is padding. A parameter's parts follow each other in the order of
// the ranks.
void DeepSpeedReader::read_partitions() {
  for (const FilePointer& file : rank_files_) {
    const torch::Value optimizer = file->root().at("optimizer_state_dict");
    const torch::Value weights = optimizer.at("single_partition_of_fp32_groups");
    const torch::Value base = optimizer.at("base_optimizer_state");
    const auto mappings = given(optimizer, "param_slice_mappings");
    if (!mappings) {
      optimizer.fail(
          "there are no param_slice_mappings: saved by a DeepSpeed from before 0.7; load and save "
          "it "
          "with a newer one");
    }
    if (mappings->size() != weights.size()) mappings->fail("one mapping for each group is needed");
    for (size_t g = 0; g < weights.size(); ++g) {
      const std::optional<torch::Value> states =
          state_of_group(base.is_dict() ? base.at("state") : base, g);
      const size_t flat = add_flat(file, flat_tensors(weights.at(g), states));
      const torch::Value mapping = mappings->at(g);
      for (size_t i = 0; i < mapping.size(); ++i) {
        const torch::Value fragment = mapping.value(i).state();
        add_piece(parameter_of(mapping.key(i)), fragment.at("numel").as_int64(), flat,
                  fragment.at("start").as_int64());
      }
    }
  }
}

// Every parameter is divided on its own: rank r has elements [r n, (r + 1) n) of it, n being its
// size over the number of ranks, rounded up; the last ranks' shares are padded. A rank's shares lie
// in the order of param_shapes in its flat groups, one behind the other.
void DeepSpeedReader::read_shares() {
  const auto world = static_cast<int64_t>(rank_files_.size());
  for (int64_t rank = 0; rank < world; ++rank) {
    const FilePointer& file = rank_files_[static_cast<size_t>(rank)];
    const torch::Value optimizer = file->root().at("optimizer_state_dict");
    const torch::Value weights = optimizer.at("fp32_flat_groups");
    const torch::Value states = optimizer.at("optimizer_state_dict").at("state");
    std::vector<size_t> flats;
    for (size_t g = 0; g < weights.size(); ++g) {
      flats.push_back(add_flat(file, flat_tensors(weights.at(g), state_of_group(states, g))));
    }
    size_t group = 0;
    int64_t at = 0;  // in flats[group]
    const auto left_in_group = [&] {
      while (group < flats.size()) {
        const int64_t size = checkpoint_.flats_[flats[group]]->size(StateKind::weights);
        if (at < size) return size - at;
        ++group;
        at = 0;
      }
      return int64_t{0};
    };
    for (size_t p = 0; p < checkpoint_.parameters_.size(); ++p) {
      const int64_t numel = checkpoint_.parameters_[p].shape.numel();
      const int64_t share = numel / world + (numel % world != 0 ? 1 : 0);
      int64_t own = std::clamp<int64_t>(numel - rank * share, 0, share);
      for (int64_t left = share; left > 0;) {
        const int64_t n = std::min(left, left_in_group());
        if (n == 0) weights.fail("a rank's groups are shorter than its parameters");
        add_piece(p, std::min(n, own), flats[group], at);
        own -= std::min(n, own);
        left -= n;
        at += n;
      }
    }
    if (left_in_group() != 0) weights.fail("a rank's groups are longer than its parameters");
  }
}

// Newer versions name frozen parameters with their shapes and fragments: whole in the one file of
// stages 1 and 2, a share in each rank's file of stage 3. In older versions every tensor of the
// module that is neither a trained parameter nor a buffer is frozen. A universal checkpoint may
// have them among its own files.
void DeepSpeedReader::read_frozen() {
  std::set<std::string_view> wanted;
  if (const auto shapes = given(model(), "frozen_param_shapes")) {
    for (size_t i = 0; i < shapes->size(); ++i) {
      const std::string_view name = shapes->key(i).as_name();
      if (files_.universal && checkpoint_.by_name_.contains(name)) continue;
      add_parameter(name, shape_of(shapes->value(i)), false);
      wanted.insert(name);
    }
  }
  for (const FilePointer& file : model_files_) {
    const auto fragments = given(file->root(), "frozen_param_fragments");
    for (size_t i = 0; fragments && i < fragments->size(); ++i) {
      if (!wanted.contains(fragments->key(i).as_string())) continue;
      const size_t parameter = parameter_of(fragments->key(i));
      const FlatTensors tensors = flat_tensors(fragments->value(i), std::nullopt);
      const int64_t left = checkpoint_.parameters_[parameter].shape.numel() - placed_[parameter];
      add_piece(parameter, std::min(tensors[0]->shape.numel(), left), add_flat(file, tensors), 0);
    }
  }
  read_module(false);
}

// The parameters of the module's own dict that are not known yet. It has buffers too, tied
// parameters under every name, and under stage 3 nothing but empty tensors.
void DeepSpeedReader::read_module(bool trained) {
  const auto module = given(model(), "module");
  if (!module) return;
  const std::set<std::string, std::less<>> buffers = names_of("buffer_names");
  std::map<std::pair<std::string_view, int64_t>, std::string_view> seen;
  for (size_t i = 0; i < module->size(); ++i) {
    const std::string_view name = module->key(i).as_name();
    const torch::Value value = module->value(i);
    if (!value.is_tensor() || value.as_tensor().shape.numel() == 0 || buffers.contains(name) ||
        checkpoint_.by_name_.contains(name) || checkpoint_.aliases_.contains(name)) {
      continue;
    }
    const torch::TensorRecord& tensor = value.as_tensor();
    const auto [place, is_new] = seen.emplace(std::pair(tensor.storage, tensor.offset), name);
    if (!is_new) {
      checkpoint_.aliases_.emplace(name, place->second);
      continue;
    }
    const size_t parameter = add_parameter(name, tensor.shape, trained);
    add_piece(parameter, tensor.shape.numel(),
              add_flat(model_files_.front(), flat_tensors(value, std::nullopt)), 0);
  }
}

void DeepSpeedReader::read_universal() {
  const std::string root = files_.folder + "/zero";
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(root, error), end; !error && it != end;
       it.increment(error)) {
    if (it->is_directory()) names.push_back(it->path().filename().string());
  }
  if (error) throw IoError("read folder", root, -1, error.value());
  std::sort(names.begin(), names.end());
  // Newer versions have buffers, other names and frozen parameters there too.
  const std::set<std::string, std::less<>> buffers = names_of("buffer_names");
  std::set<std::string_view> trained_names;
  for_each_trained(
      [&](const torch::Value& name, const torch::Value&) { trained_names.insert(name.as_name()); });
  for (const bool trained : {true, false}) {
    for (const std::string& name : names) {
      if (trained_names.contains(name) != trained || buffers.contains(name) ||
          checkpoint_.aliases_.contains(name)) {
        continue;
      }
      UniversalStates states = open_universal_states(str(root, '/', name));
      const size_t parameter = add_parameter(name, states.shape, trained);
      checkpoint_.flats_.push_back(std::move(states.states));
      add_piece(parameter, states.shape.numel(), checkpoint_.flats_.size() - 1, 0);
    }
  }
  if (names.empty()) fail("the folder zero/ of a universal checkpoint holds no parameter");
  read_frozen();
}

// --- the checkpoint -----------------------------------------------------------------------------

DeepSpeedCheckpoint DeepSpeedCheckpoint::open(const std::string& path, const std::string& tag) {
  return DeepSpeedReader(find_deepspeed_files(path, tag)).read();
}

size_t DeepSpeedCheckpoint::index_of(std::string_view parameter) const {
  const auto alias = aliases_.find(parameter);
  const auto found = by_name_.find(alias == aliases_.end() ? parameter : alias->second);
  return found == by_name_.end() ? parameters_.size() : found->second;
}

bool DeepSpeedCheckpoint::has(std::string_view parameter, StateKind kind) const {
  const size_t index = index_of(parameter);
  if (index == parameters_.size()) return false;
  return std::all_of(pieces_[index].begin(), pieces_[index].end(),
                     [&](const Piece& piece) { return flats_[piece.flat]->has(kind); });
}

void DeepSpeedCheckpoint::read(std::string_view parameter, StateKind kind, int64_t begin,
                               View out) const {
  if (!has(parameter, kind)) {
    throw DataError(
        str(folder_, ": there are no ", name_of(kind), " of ", torch::in_quotes(parameter)));
  }
  require(out.device() == kCpu && out.is_contiguous(),
          "deepspeed: read into contiguous host memory, not ", out);
  const size_t index = index_of(parameter);
  const int64_t end = begin + out.numel();
  require(begin >= 0 && end <= parameters_[index].shape.numel(), "deepspeed: elements [", begin,
          ", ", end, ") of ", parameter, " ", parameters_[index].shape);
  const std::vector<Piece>& pieces = pieces_[index];
  auto piece = std::upper_bound(pieces.begin(), pieces.end(), begin,
                                [](int64_t at, const Piece& p) { return at < p.begin; });
  if (piece != pieces.begin()) --piece;
  for (int64_t at = begin; at < end; ++piece) {
    const int64_t inside = at - piece->begin;
    const int64_t n = std::min(end - at, piece->count - inside);
    void* target = static_cast<std::byte*>(out.data()) + (at - begin) * size_of(out.dtype());
    flats_[piece->flat]->read(kind, piece->offset + inside, View(target, out.dtype(), Shape{n}));
    at += n;
  }
}

}  // namespace zinc::files
