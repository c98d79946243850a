// A folder with everything that `zinc train` needs for a run of well under a second.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tests/files/scratch_folder.h"

namespace zinc::apps {

inline constexpr std::string_view kTinyGpt2 =
    R"({"model_type": "gpt2", "vocab_size": 256, "n_positions": 16, "n_embd": 32, "n_layer": 1,
        "n_head": 2})";
inline constexpr std::string_view kTinyConfig =
    R"({"train_micro_batch_size_per_gpu": 2,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "steps_per_print": 1})";

// ds.json, model.json and text.txt (4000 bytes).
class TrainingFolder : public files::ScratchFolder {
 public:
  TrainingFolder();

  // zinc train with those files, 2 steps, into run/. An option of `changes` ("--data", "other")
  // takes the place of the one given here; one without a value ("--force") is added.
  std::vector<std::string> train(const std::vector<std::string>& changes = {}) const;
  std::string out() const { return *this / "run"; }

  // Paths of all files and folders inside, relative, sorted.
  std::vector<std::string> tree() const;
  // Files whose name is that of a file under construction; there must be none.
  std::vector<std::string> unfinished() const;
};

// A safetensors file: its length field, `header`, then `data_bytes` zeros.
std::string safetensors_bytes(const std::string& header, size_t data_bytes);

}  // namespace zinc::apps
