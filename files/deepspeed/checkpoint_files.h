// files/deepspeed/checkpoint_files.h: which files the folder of a DeepSpeed checkpoint holds.
//
//   <folder>/latest                                         the tag, as text
//   <folder>/latest_universal                               the tag of a universal checkpoint
//   in <folder>/<tag>/:
//   mp_rank_00_model_states.pt                              stages 0 to 2
//   zero_pp_rank_<rank>_mp_rank_00_model_states.pt          stage 3
//   [bf16_|fp16_]zero_pp_rank_<rank>_mp_rank_00_optim_states.pt
//                                                           stages 1 to 3
//   zero/<parameter>/fp32.pt                                universal
//
// "pp_rank" is the rank of data parallelism, "mp_rank" that of tensor parallelism.
#pragma once

#include <string>
#include <vector>

namespace zinc::files {

struct DeepSpeedFiles {
  std::string folder;                         // folder of the tag
  std::vector<std::string> model_states;      // one, or with stage 3 one for each rank; not empty
  std::vector<std::string> optimizer_states;  // for each rank; empty for stage 0 and universal ones
  bool universal = false;
};

// Arguments as in DeepSpeedCheckpoint::open(). DataError where a rank's file is missing, a tag is
// no plain name, or the files are those of tensor parallelism, of a pipeline or of experts.
DeepSpeedFiles find_deepspeed_files(const std::string& path, const std::string& tag);

}  // namespace zinc::files
