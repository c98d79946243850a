// train/checkpoint/checkpoint_folder.h: the folder in which a run keeps its checkpoints.
//
// Note [Commit of a checkpoint]
// Ranks write and sync their files in ".step-000120.tmp-<process>-<n>"; the manifest comes last;
// then the folder is synced, gets its name by one rename, and its parent is synced. So a folder
// that is called step-<n> is complete, after a kill at any instant and after a loss of power. Only
// then are older ones deleted: renamed to ".trash-..." first, so that none is ever seen in part.
// The newest checkpoint is found by reading the folder: there is no pointer that could be wrong.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace zinc::train {

std::string checkpoint_name(int64_t step);  // "step-000120"

struct FoundCheckpoint {
  int64_t step = 0;
  std::string path;
};
// The checkpoints called step-<n> in `folder`, the newest first; none if there is no such folder.
// They are not opened. IoError if the folder cannot be read.
std::vector<FoundCheckpoint> find_checkpoints(const std::string& folder);

// Cleans up what a killed run has left in `folder`: checkpoints that are incomplete or partly
// deleted. A checkpoint that is whole by all its checksums but lacks its name gets the name.
// Returns the changes, one line each. For one process, while no other process writes there.
std::vector<std::string> clean_checkpoints(const std::string& folder);

// Renames checkpoints of later steps to "aside-step-<n>", and replaces an older one of that name: a
// run that continues from an earlier step would take them for its own. Returns the changes, one
// line each.
std::vector<std::string> set_later_aside(const std::string& folder, int64_t step);

// Deletes all but the newest `keep` > 0; returns their paths. With `verifies` the newest checkpoint
// whose checksums all match stays too, since all newer ones may be damaged.
std::vector<std::string> prune_checkpoints(const std::string& folder, int64_t keep,
                                           bool verifies = false);

}  // namespace zinc::train
