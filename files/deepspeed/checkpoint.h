// files/deepspeed/checkpoint.h: reads checkpoints of DeepSpeed: weights, moments and counters, by
// the names of the module's parameters.
//
// | saved by | weights | moments |
// |---|---|---|
// | ZeRO 1, 2; bf16 with f32 gradients | f32 masters, out of each rank's flat partition | of Adam |
// | ZeRO 3 | f32 masters, out of each rank's share of each parameter | of Adam |
// | a universal checkpoint (ds_to_universal) | f32, one file for each parameter | of Adam |
// | stage 0 | the module's own, in its dtype | none: their states have no names |
//
// Frozen parameters have weights alone, in the module's dtype. Source of the layout: DeepSpeed
// 0.19 (docs of zero_to_fp32 and of universal checkpoints), and files that it wrote
// (tests/reference/make_deepspeed.py). Refused by name: tensor and pipeline parallel files, mixture
// of experts and expert groups (convert them with deepspeed.checkpoint.ds_to_universal first).
//
// Files are pickles: they are read as data, and nothing in them is run (files/torch/pickle.h).
// Entries that the client added to the state are ignored.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/shape.h"
#include "core/view.h"
#include "files/deepspeed/flat_states.h"

namespace zinc::files {

struct DeepSpeedCounters {
  int64_t global_steps = 0;    // steps of the engine, skipped ones too
  int64_t skipped_steps = 0;   // because a gradient was not finite
  int64_t global_samples = 0;  // of all ranks
  double loss_scale = 1.0;
  std::optional<int64_t> scheduler_last_step;  // last_batch_iteration, or last_epoch of PyTorch's
};

// Safe to share between threads.
class DeepSpeedCheckpoint {
 public:
  // `path`: the folder that was saved into, or one of its tags' folders. `tag`: empty for the one
  // that the file `latest` (or latest_universal) names. Reads headers, no data; a file of each rank
  // stays open. DataError with file and cure if something is missing, damaged or refused.
  static DeepSpeedCheckpoint open(const std::string& path, const std::string& tag = "");

  struct Parameter {
    std::string name;
    Shape shape;
    bool trained = true;  // false: frozen
  };
  // The parameters, in the order of the optimizer's groups; those of a universal checkpoint sorted
  // by name. Frozen ones come last. Without the names of aliases() and without buffers.
  const std::vector<Parameter>& parameters() const { return parameters_; }
  // Other names of a parameter: "lm_head.weight" -> "transformer.wte.weight".
  const std::map<std::string, std::string, std::less<>>& aliases() const { return aliases_; }
  const DeepSpeedCounters& counters() const { return counters_; }
  const std::string& folder() const { return folder_; }  // the tag's

  bool has(std::string_view parameter, StateKind kind) const;
  // Elements [begin, begin + out.numel()) of a state of the parameter, flat row-major. `out`: [n]
  // contiguous host memory, f32 or another float. DataError where has() is false.
  void read(std::string_view parameter, StateKind kind, int64_t begin, View out) const;

 private:
  friend class DeepSpeedReader;

  // Elements [begin, begin + count) of a parameter lie in flats_[flat] from `offset` on.
  struct Piece {
    int64_t begin, count;
    size_t flat;
    int64_t offset;
  };

  size_t index_of(std::string_view parameter) const;

  std::string folder_;
  std::vector<Parameter> parameters_;
  std::vector<std::vector<Piece>> pieces_;  // for each parameter, without a hole, in their order
  std::vector<std::unique_ptr<const FlatStates>> flats_;
  std::map<std::string, size_t, std::less<>> by_name_;
  std::map<std::string, std::string, std::less<>> aliases_;
  DeepSpeedCounters counters_;
};

}  // namespace zinc::files
