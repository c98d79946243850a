#include "kernels/attention_library.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "kernels/device_notes.h"

namespace zinc::kernels {
namespace {

constexpr int64_t kMaxHeadSize = 256;

// What the graphs that we build can say: no documents, windows, biases, caps or dropout; the
// diagonal of a causal mask begins at the first key.
bool can_say(const AttentionProblem& p) {
  const AttentionMask& mask = p.mask;
  return is_16bit_float(p.dtype) && p.D % 8 == 0 && p.D <= kMaxHeadSize && p.Tq > 0 && p.Tk > 0 &&
         !mask.key_begin && !mask.key_end && mask.window == 0 && !mask.alibi_slopes && !mask.bias &&
         p.softcap == 0.0 && p.dropout.probability == 0.0f && (!mask.causal || p.Tq == p.Tk);
}

// Not known of a meta device's views: there the library is asked, and memory counted, all the same.
bool is_aligned(const AttentionProblem& p, const HeadsView& out) {
  const auto fits = [&](const HeadsView& view) {
    const auto is_multiple = [&](int64_t stride) { return stride * size_of(p.dtype) % 16 == 0; };
    return reinterpret_cast<uintptr_t>(view.data) % 16 == 0 && is_multiple(view.batch) &&
           is_multiple(view.row) && is_multiple(view.head);
  };
  return fits(p.q) && fits(p.k) && fits(p.v) && fits(out);
}

std::string text_of(const AttentionKey& key) {
  return concat(to_string(key.dtype), ", head size ", key.D, key.causal ? ", causal" : "",
                key.lengths ? ", lengths" : "", key.H != key.G ? ", grouped" : "");
}

}  // namespace

std::span<const AttentionRule> attention_table() { return {}; }

std::string to_string(std::span<const AttentionRule> rules) {
  std::string text;
  for (const AttentionRule& rule : rules) {
    text += concat(text.empty() ? "" : "; ", to_string(rule.dtype), ", head size ", rule.head_size,
                   rule.causal ? ", causal" : ", full", ", from ", rule.min_keys, " keys");
  }
  return text;
}

AttentionKey::AttentionKey(const AttentionProblem& p, const HeadsView& out, bool with_lse)
    : B(p.B),
      Tq(p.Tq),
      Tk(p.Tk),
      H(p.H),
      G(p.G),
      D(p.D),
      dtype(p.dtype),
      causal(p.mask.causal),
      lengths(static_cast<bool>(p.mask.key_lengths)),
      lse(with_lse) {
  size_t at = 0;
  for (const HeadsView* view : {&p.q, &p.k, &p.v, &out}) {
    for (const int64_t stride : {view->batch, view->row, view->head}) strides[at++] = stride;
  }
}

namespace {

// q, k and v in one buffer, as training has them.
AttentionKey small_problem(const AttentionKey& key, int64_t batch, int64_t tokens) {
  AttentionKey small = key;
  small.B = batch;
  small.G = key.H == key.G ? 2 : 1;
  small.H = 2;
  small.Tq = small.Tk = tokens;
  small.lse = true;
  const int64_t row = (small.H + 2 * small.G) * small.D;
  for (size_t i = 0; i < 9; i += 3) {
    small.strides[i] = tokens * row;
    small.strides[i + 1] = row;
    small.strides[i + 2] = small.D;
  }
  small.strides[9] = tokens * small.H * small.D;
  small.strides[10] = small.H * small.D;
  small.strides[11] = small.D;
  return small;
}

}  // namespace

// Tiles of anyone's kernels have 64 or 128 rows and columns.
std::array<AttentionKey, 3> small_problems(const AttentionKey& key) {
  return {small_problem(key, 2, 40), small_problem(key, 2, 136), small_problem(key, 1, 384)};
}

int64_t LibraryAttention::workspace_bytes(const AttentionProblem& p) const {
  constexpr int64_t kBytes = kAttentionPlanBytes + kAttentionCheckBytes;
  if (choice_ == AttentionChoice::own || !can_say(p)) return 0;
  if (choice_ == AttentionChoice::library) return kBytes;
  const bool in_table = std::any_of(table_.begin(), table_.end(), [&](const AttentionRule& rule) {
    return rule.dtype == p.dtype && rule.head_size == p.D && rule.causal == p.mask.causal &&
           p.Tk >= rule.min_keys && !p.mask.key_lengths;
  });
  return in_table ? kBytes : 0;
}

void LibraryAttention::note(std::string line) {
  if (std::find(notes_.begin(), notes_.end(), line) != notes_.end()) return;
  note_of_device(line);
  notes_.push_back(std::move(line));
}

LibraryAttention::Backend LibraryAttention::backend_of(const Backend& device) const {
  return {.open = backend_.open ? backend_.open : device.open,
          .check = backend_.check ? backend_.check : device.check};
}

bool LibraryAttention::open(const Backend& backend) {
  if (!was_opened_) {
    was_opened_ = true;
    opened_ = backend.open();
    if (opened_.library == nullptr) {
      note(concat("attention runs on zinc's own kernels: ", opened_.why_not));
    }
  }
  if (opened_.library == nullptr && choice_ == AttentionChoice::library) {
    throw CudaError(concat("attention: the library was chosen by name: ", opened_.why_not));
  }
  return opened_.library != nullptr;
}

std::string LibraryAttention::outlook(DType dtype, const Backend& device) {
  if (choice_ == AttentionChoice::own) return "zinc's own kernels, chosen by name";
  std::vector<AttentionRule> rules;
  for (const AttentionRule& rule : table_) {
    if (rule.dtype == dtype) rules.push_back(rule);
  }
  const bool by_name = choice_ == AttentionChoice::library;
  if (!by_name && rules.empty()) {
    return concat("zinc's own kernels: no line of the library's table is about ", to_string(dtype),
                  " (docs/kernels.md)");
  }
  if (!open(backend_of(device))) return concat("zinc's own kernels: ", opened_.why_not);
  return concat(opened_.library->name(), " for ",
                by_name ? "all that it takes, by name" : to_string(rules),
                ", if it agrees with zinc's own kernels at its first use; these for the rest");
}

bool LibraryAttention::agrees(const AttentionKey& key, std::byte* workspace, StreamRef stream,
                              const Backend& backend) {
  for (const AttentionKey& small : small_problems(key)) {
    auto found = checked_.find(small);
    if (found == checked_.end()) {
      std::string difference = backend.check(*opened_.library, small, workspace, stream);
      found = checked_.emplace(small, std::move(difference)).first;
    }
    if (found->second.empty()) continue;
    const std::string line = concat(opened_.library->name(), " differs from zinc's own attention (",
                                    text_of(small), ", ", small.Tq, " tokens): ", found->second);
    if (choice_ == AttentionChoice::library) throw CudaError(line);
    note(line + "; own kernels take it");
    return false;
  }
  return true;
}

bool LibraryAttention::run_forward(const AttentionProblem& p, const HeadsView& out, float* lse,
                                   std::byte* workspace, StreamRef stream, const Backend& device) {
  const Backend backend = backend_of(device);
  if (!open(backend) || !is_aligned(p, out)) return false;
  const AttentionKey key(p, out, lse != nullptr);
  auto found = plans_.find(key);
  if (found == plans_.end()) {
    if (plans_.size() >= kMaxPlans) plans_.clear();
    AttentionLibrary::MadePlan made = opened_.library->make_plan(key);
    if (made.plan == nullptr) {
      note(concat(opened_.library->name(), " does not take attention of ", text_of(key), ": ",
                  made.why_not, "; own kernels do"));
    }
    found = plans_.emplace(key, std::move(made.plan)).first;
  }
  if (found->second == nullptr || !agrees(key, workspace, stream, backend)) return false;
  found->second->run(p, out, lse, workspace, stream);
  ++num_runs_;
  return true;
}

}  // namespace zinc::kernels
