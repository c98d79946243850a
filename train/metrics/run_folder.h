// train/metrics/run_folder.h: the folder that a run leaves behind.
//
// Files: metrics.jsonl, metrics.csv, TensorBoard events, config.resolved.json, weights; see
// train/metrics/README.md. ".zinc-run" marks the folder as a run's and is locked while the run
// lives.
#pragma once

#include <string>
#include <utility>

#include "train/files/file_descriptor.h"

namespace zinc::train {

// One process at a time; made by rank 0 only. A run that ends before keep() leaves no folder.
class RunFolder {
 public:
  // Makes `path` (its parents too), or takes it where it is an empty folder. Anything else is left
  // alone, with an IoError: EEXIST where something is there, EWOULDBLOCK where a live run holds it.
  // `force` replaces a folder that carries a run's mark: its old content is deleted once the new
  // folder stands. A folder without the mark is never replaced. The folder appears at once with
  // its mark and lock, so of two runs that start together one wins.
  static RunFolder create(std::string path, bool force);
  RunFolder(RunFolder&& other) noexcept;
  RunFolder& operator=(RunFolder&&) = delete;
  ~RunFolder();  // without keep(): removes the folder with all that is in it

  // There is something to keep from now on: the run trains.
  void keep() { kept_ = true; }

  const std::string& path() const { return path_; }
  // "<path>/<name>"
  std::string file(const std::string& name) const { return path_ + '/' + name; }

 private:
  RunFolder(std::string path, FileDescriptor lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}

  std::string path_;
  FileDescriptor lock_;
  bool kept_ = false;
};

}  // namespace zinc::train
