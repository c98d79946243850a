// kernels/attention_library.h: a vendor's fused attention beside our own kernels, on a GPU: the
// choice between the two for a problem, and the check that the library must pass.
//
// The library is asked where the context's choice says so (AttentionChoice). Before its first plan
// of a kind (pass, dtype, head size, mask, grouping) runs, small problems of that kind, within a
// tile and over several, are computed by both; where they differ by more than the tolerance, or two
// runs of the library differ in a bit, our own kernels take that kind for good, and notes() has a
// line about it. Everything here depends on shapes, strides, alignment, GPU and library alone, so
// that every rank and every run choose alike.
//
// Forward and backward are asked one by one: what backward needs from forward is the same for both,
// out, and lse as a natural logarithm.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/stream.h"
#include "kernels/attention_problem.h"
#include "kernels/wgmma_use.h"

namespace zinc::kernels {

enum class AttentionPass : uint8_t { forward, backward };

// The arrays of a problem beside q, k and v. Forward writes out, and lse where it is wanted;
// backward reads out, lse and dout and writes dq, dk and dv.
struct AttentionArrays {
  HeadsView out;
  float* lse = nullptr;
  HeadsView dout, dq, dk, dv;
};

// All that a plan depends on; equal keys may share one.
struct AttentionKey {
  AttentionPass pass = AttentionPass::forward;
  int64_t B = 0, Tq = 0, Tk = 0, H = 0, G = 0, D = 0;
  int64_t window = 0;
  DType dtype = DType::f32;
  bool causal = false, lengths = false, alibi = false, lse = false;
  // Batch, row and head of q, k, v, out, dout, dq, dk and dv; forward has the first four.
  std::array<int64_t, 24> strides{};

  AttentionKey() = default;
  AttentionKey(const AttentionProblem& p, const AttentionArrays& arrays, AttentionPass pass);
  auto operator<=>(const AttentionKey&) const = default;
};

class AttentionPlan {
 public:
  virtual ~AttentionPlan() = default;
  // Queues the work of a problem with the plan's key. `workspace` holds attention_plan_bytes(),
  // aligned to 256.
  virtual void run(const AttentionProblem& p, const AttentionArrays& arrays, std::byte* workspace,
                   StreamRef stream) = 0;
};

class AttentionLibrary {
 public:
  struct MadePlan {
    std::unique_ptr<AttentionPlan> plan;
    std::string why_not;  // where there is no plan
  };
  virtual ~AttentionLibrary() = default;
  virtual std::string name() const = 0;  // with its version
  // No plan takes more workspace than attention_plan_bytes() or sums in an order that may change.
  virtual MadePlan make_plan(const AttentionKey& key) = 0;
};

// The kernels that a context's attention takes.
enum class AttentionChoice : uint8_t {
  by_table,  // the default
  own,
  library,  // chosen by name: wherever the library can; an error where it is missing or wrong
};

// One line of the table: the library is faster in this pass for this dtype, head size and mask,
// without lengths, window or ALiBi, from this number of keys on.
struct AttentionRule {
  AttentionPass pass = AttentionPass::forward;
  DType dtype = DType::bf16;
  int64_t head_size = 0;
  bool causal = true;
  int64_t min_keys = 0;
};
// A line stands here when `zinc bench kernels` has measured it on a GPU ("cuDNN" among its
// baselines); docs/kernels.md has the way from a result to a line. None has been: the table is
// empty.
std::span<const AttentionRule> attention_table();
// The same of our own forward kernel for compute capability 9.0 (kernels/cuda/attention_kernels.h,
// wgmma) beside our kernel for every GPU; empty, too, until one has been timed.
std::span<const AttentionRule> wgmma_table();
bool has_line(std::span<const AttentionRule> table, AttentionPass pass, const AttentionProblem& p);
// For a person: "forward of bf16, head size 64, causal, from 1024 keys; ..."; "" without lines.
std::string to_string(std::span<const AttentionRule> rules);

// Note [Workspace of a plan]
// A problem that is asked takes this workspace, by its shape alone, so that a plan of memory does
// not depend on the build. Forward needs next to nothing. Backward without atomics keeps the
// gradient of all scores in 16 bits, and dk and dv of every head where heads share them: it grows
// with Tq * Tk. The numbers are those of cuDNN 9.19 for sm_90; the tests of its plans hold them. A
// plan that takes more than this, or more than the limit, is not run.
int64_t attention_plan_bytes(const AttentionKey& key);
inline constexpr int64_t kMaxAttentionPlanBytes = int64_t{3} << 30;
// Bytes of the check's arrays, which lie in front of the plan's workspace.
inline constexpr int64_t kAttentionCheckBytes = int64_t{4} << 20;

// The context's slot.
class LibraryAttention {
 public:
  struct Opened {
    std::shared_ptr<AttentionLibrary> library;
    std::string why_not;  // where there is none, with the cure
  };
  // "" where the library agrees with our own kernels on the problem `small`, one of
  // small_problems(), else how it differs. May wait for the stream; `workspace` begins with the
  // arrays of the check.
  using Check = std::function<std::string(AttentionLibrary& library, const AttentionKey& small,
                                          std::byte* workspace, StreamRef stream)>;
  struct Backend {
    std::function<Opened()> open;
    Check check;
  };
  static constexpr size_t kMaxPlans = 256;  // then all are dropped and made again

  void choose(AttentionChoice choice) { choice_ = choice; }
  AttentionChoice choice() const { return choice_; }
  void set_table(std::span<const AttentionRule> table) { table_ = table; }
  // A backend that is set here replaces that of the device.
  void set_backend(Backend backend) { backend_ = std::move(backend); }

  // Bytes of workspace to allocate, 0 where the library is not asked: a function of shape, dtype
  // and mask. Where the library was chosen by name and is not asked, a note names shape and reason.
  int64_t workspace_bytes(AttentionPass pass, const AttentionProblem& p);
  // False: nothing was done, and our own kernels take the problem. `device` is the backend where
  // set_backend() set none. Waits for the stream at the first problem of a kind. Throws CudaError
  // where the library was chosen by name and is missing, or differs from our own kernels.
  bool run(AttentionPass pass, const AttentionProblem& p, const AttentionArrays& arrays,
           std::byte* workspace, StreamRef stream, const Backend& device);

  // For a person, before anything runs: who takes attention of this dtype, and why. Opens the
  // library where it would be asked. Throws as run() where it was chosen by name.
  std::string outlook(DType dtype, const Backend& device);
  // Findings for a person: a library that was asked and is missing, refused or wrong. Each line is
  // one of the context's DeviceNotes too.
  const std::vector<std::string>& notes() const { return notes_; }
  size_t num_plans() const { return plans_.size(); }
  int64_t num_runs() const { return num_runs_; }  // problems that the library has taken

 private:
  void note(std::string line);
  Backend backend_of(const Backend& device) const;
  bool open(const Backend& backend);
  bool agrees(const AttentionKey& key, std::byte* workspace, StreamRef stream,
              const Backend& backend);

  AttentionChoice choice_ = AttentionChoice::by_table;
  std::span<const AttentionRule> table_ = attention_table();
  Backend backend_;
  bool was_opened_ = false;
  Opened opened_;
  std::map<AttentionKey, std::string> checked_;  // key: the small problem; "": no difference
  std::map<AttentionKey, std::unique_ptr<AttentionPlan>> plans_;  // null: refused
  std::vector<std::string> notes_;
  int64_t num_runs_ = 0;
};

// The context's slot: which of our own forward kernels runs where both can.
struct WgmmaAttention {
  WgmmaUse use = WgmmaUse::by_table;
  std::span<const AttentionRule> table = wgmma_table();
  int64_t num_runs = 0;  // problems that the kernel has taken
};

// outlook() of the current context, which is of a GPU.
std::string attention_outlook(DType dtype);

// This build's library, with a handle on the calling thread's GPU, or why there is none.
LibraryAttention::Opened open_attention_library();

// Small problems that stand for a key's kind in the check: a length within a tile of queries or
// keys, a length of one tile and a tail, and a length of several whole tiles. The kind has the same
// three for all its keys.
std::array<AttentionKey, 3> small_problems(const AttentionKey& key);

}  // namespace zinc::kernels
