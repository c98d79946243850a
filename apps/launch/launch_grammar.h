// apps/launch/launch_grammar.h: DeepSpeed's way of naming hosts and slots, and the mpirun command
// that it stands for. Nothing here touches the system.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace zinc::apps {

// The slots of a host that get a rank each, ascending.
struct HostSlots {
  std::string host;
  std::vector<int> slots;
  friend bool operator==(const HostSlots&, const HostSlots&) = default;
};

inline constexpr int kMaxSlots = 4096;  // of one host

// Lines `NAME slots=K`, in order; empty lines, text behind #, a byte order mark, and mpirun's
// `max_slots=M` (M at least K: ranks are never more than slots) are ignored. Throws ConfigError
// with `name:line` where a line is none of these, a host comes twice, K is not in
// [1, kMaxSlots], or no host is named.
std::vector<HostSlots> parse_hostfile(std::string_view text, const std::string& name);

struct HostSelection {
  std::string include;  // NAME[:SLOT[,SLOT...]][@NAME...]; empty: every host
  std::string exclude;  // the same form
  int num_nodes = -1;   // the first hosts; -1: all
  int num_gpus = -1;    // the first slots of each host; -1: all
};

// Ranks are numbered in the order of the result. A host without slots is left out. Throws
// ConfigError for include together with exclude, either together with num_nodes or num_gpus, an
// unknown host or slot, a host or slot that is named twice, counts beyond what there is, and where
// nothing is left.
std::vector<HostSlots> select_slots(const std::vector<HostSlots>& hosts,
                                    const HostSelection& selection);

// The slots without a hostfile: as many slots of localhost as the selection asks for, or
// `default_slots`. Throws ConfigError if it names another host, or more than one node.
std::vector<HostSlots> local_slots(const HostSelection& selection, int default_slots);

struct MpirunOptions {
  std::string mpirun = "mpirun";
  int master_port = 29500;
  bool as_root = false;             // mpirun refuses root unless it is told
  std::string heartbeat_directory;  // empty: none
  std::vector<std::string> program;
};

// The words of the command: one application context per host, each rank's slot numbers in
// CUDA_VISIBLE_DEVICES. Throws InvalidArgument where there is no program.
std::vector<std::string> mpirun_words(const std::vector<HostSlots>& hosts,
                                      const MpirunOptions& options);

// The words as a POSIX shell reads them.
std::string shell_text(const std::vector<std::string>& words);

}  // namespace zinc::apps
