// train/metrics/run_folder.h: the folder that a run leaves behind.
//
// Files: metrics.jsonl, metrics.csv, TensorBoard events, config.resolved.json, weights; see
// train/metrics/README.md. ".zinc-run" marks the folder as a run's and is locked while the run
// lives.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "files/atomic_file.h"
#include "files/file_descriptor.h"

namespace zinc::train {

// One process at a time; made by rank 0 only. A run that ends before keep() leaves no folder.
class RunFolder {
 public:
  // Makes `path` (its parents too), or takes it where it is an empty folder. Throws IoError for
  // anything else: EEXIST if the folder holds something, EWOULDBLOCK if a live run holds it.
  // `force` replaces a folder that carries a run's mark: the old run stays where it is, locked, and
  // the new folder lies under another name beside it, until keep(). A folder without the mark is
  // never replaced. A folder whose run was killed before keep() is replaced without `force`, since
  // it holds no result. The folder appears at once with its mark and lock, so of two runs that
  // start together one wins.
  static RunFolder create(std::string path, bool force);
  // Whether the folder has the mark of a run.
  static bool is_run(const std::string& path);
  // The folder of a run that goes on: it carries a run's mark, and no live run holds it. The folder
  // is kept, whatever becomes of this object. IoError as create().
  static RunFolder reopen(std::string path);
  RunFolder(RunFolder&& other) noexcept;
  RunFolder& operator=(RunFolder&&) = delete;
  ~RunFolder();  // without keep(): removes the folder with all that is in it

  // Call when the run has trained: its folder is kept from now on. The new folder takes the place
  // of the old run, which is deleted; files that are open in it stay so. IoError as
  // AtomicFolder::commit().
  void keep();

  // The name that it has, or will have.
  const std::string& path() const { return path_; }
  // True until keep() where there is an old run.
  bool replaces() const { return staged_.has_value(); }
  // "<folder>/<name>", where the folder lies now.
  std::string file(const std::string& name) const { return place() + '/' + name; }
  // The place for a file that shall be called `path`. It is another place if `path` is in this
  // folder and the old run still has the name.
  std::string place_of(const std::string& path) const;

 private:
  RunFolder(std::string path, files::FileDescriptor lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}
  const std::string& place() const { return staged_ ? staged_->path() : path_; }

  std::string path_;
  files::FileDescriptor lock_;
  std::optional<files::AtomicFolder> staged_;
  files::FileDescriptor old_lock_;
  bool kept_ = false;
};

}  // namespace zinc::train
