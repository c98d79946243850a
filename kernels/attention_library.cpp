#include "kernels/attention_library.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "kernels/device_notes.h"

namespace zinc::kernels {
namespace {

int64_t rounded_up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

// Why a problem is none for the graphs that we build; "" where it is one. Dropout: the numbers are
// those of our own keys, which no library draws.
std::string why_not_asked(AttentionPass pass, const AttentionProblem& p) {
  const AttentionMask& mask = p.mask;
  const bool is_square = p.Tq == p.Tk;
  if (!is_16bit_float(p.dtype)) return "the dtype is neither bf16 nor f16";
  if (p.D != 64 && p.D != 128) return "the head size is neither 64 nor 128";
  if (p.Tq == 0 || p.Tk == 0) return "there are no tokens";
  if (mask.key_begin || mask.key_end) return "documents are packed";
  if (mask.origin) return "the keys are a part of a sequence's";
  if (mask.bias) return "a bias is added";
  if (mask.layout.blocks) return "a layout of blocks hides keys";
  if (p.softcap != 0.0) return "scores are capped";
  if (p.dropout.probability != 0.0f) return "dropout draws the numbers of zinc's own keys";
  if (mask.causal && !is_square) return "keys of earlier tokens are cached";
  if (mask.window > 0 && !mask.causal) return "the window reaches to later keys";
  if (mask.alibi_slopes && !mask.causal) return "ALiBi reaches to later keys";
  const int64_t bytes = attention_plan_bytes(AttentionKey(p, {}, pass));
  if (bytes <= kMaxAttentionPlanBytes) return "";
  return str("its workspace would be ", bytes, " bytes, and ", kMaxAttentionPlanBytes,
             " are allowed");
}

// Whether the library's kernels can read the arrays. Not asked on a meta device, whose addresses
// mean nothing: memory is counted as if they could.
bool is_aligned(AttentionPass pass, const AttentionProblem& p, const AttentionArrays& arrays) {
  const auto fits = [&](const HeadsView& view) {
    const auto is_multiple = [&](int64_t stride) { return stride * size_of(p.dtype) % 16 == 0; };
    return reinterpret_cast<uintptr_t>(view.data) % 16 == 0 && is_multiple(view.batch) &&
           is_multiple(view.row) && is_multiple(view.head);
  };
  const bool forward_fits = fits(p.q) && fits(p.k) && fits(p.v) && fits(arrays.out);
  if (pass == AttentionPass::forward) return forward_fits;
  return forward_fits && fits(arrays.dout) && fits(arrays.dq) && fits(arrays.dk) && fits(arrays.dv);
}

const char* name_of(AttentionPass pass) {
  return pass == AttentionPass::forward ? "forward" : "backward";
}

std::string text_of(const AttentionKey& key) {
  return str(name_of(key.pass), " of ", to_string(key.dtype), ", head size ", key.D,
             key.causal ? ", causal" : "", key.window > 0 ? ", window" : "",
             key.lengths ? ", lengths" : "", key.alibi ? ", ALiBi" : "",
             key.H != key.G ? ", grouped" : "");
}

}  // namespace

std::span<const AttentionRule> attention_table() { return {}; }
std::span<const AttentionRule> wgmma_table() { return {}; }

bool has_line(std::span<const AttentionRule> table, AttentionPass pass, const AttentionProblem& p) {
  return std::ranges::any_of(table, [&](const AttentionRule& rule) {
    return rule.pass == pass && rule.dtype == p.dtype && rule.head_size == p.D &&
           rule.causal == p.mask.causal && p.Tk >= rule.min_keys && !p.mask.key_lengths &&
           p.mask.window == 0 && !p.mask.alibi_slopes;
  });
}

std::string to_string(std::span<const AttentionRule> rules) {
  std::string text;
  for (const AttentionRule& rule : rules) {
    text += str(text.empty() ? "" : "; ", name_of(rule.pass), " of ", to_string(rule.dtype),
                ", head size ", rule.head_size, rule.causal ? ", causal" : ", full", ", from ",
                rule.min_keys, " keys");
  }
  return text;
}

AttentionKey::AttentionKey(const AttentionProblem& p, const AttentionArrays& arrays,
                           AttentionPass of)
    : pass(of),
      B(p.B),
      Tq(p.Tq),
      Tk(p.Tk),
      H(p.H),
      G(p.G),
      D(p.D),
      window(p.mask.window),
      dtype(p.dtype),
      causal(p.mask.causal),
      lengths(static_cast<bool>(p.mask.key_lengths)),
      alibi(static_cast<bool>(p.mask.alibi_slopes)),
      lse(arrays.lse != nullptr) {
  size_t at = 0;
  for (const HeadsView* view :
       {&p.q, &p.k, &p.v, &arrays.out, &arrays.dout, &arrays.dq, &arrays.dk, &arrays.dv}) {
    for (const int64_t stride : {view->batch, view->row, view->head}) strides[at++] = stride;
  }
}

int64_t attention_plan_bytes(const AttentionKey& key) {
  constexpr int64_t kBlock = 256;
  int64_t bytes = kBlock;
  if (key.lengths) bytes += rounded_up(key.B * int64_t{sizeof(int32_t)}, kBlock);
  if (key.pass == AttentionPass::forward) return bytes;
  const int64_t heads = key.B * key.H, width = size_of(key.dtype);
  bytes += rounded_up(heads * key.Tq * int64_t{sizeof(float)}, kBlock);
  bytes += heads * rounded_up(key.Tq, 64) * rounded_up(key.Tk, 128) * width;
  if (key.H != key.G) bytes += 2 * rounded_up(heads * key.Tk * key.D * width, kBlock);
  return bytes;
}

namespace {

// q, k and v in one buffer, as training has them; their gradients in another.
AttentionKey small_problem(const AttentionKey& key, int64_t batch, int64_t tokens) {
  AttentionKey small = key;
  small.B = batch;
  small.G = key.H == key.G ? 2 : 1;
  small.H = 2;
  small.Tq = small.Tk = tokens;
  small.window = key.window > 0 ? 24 : 0;
  small.lse = true;
  const int64_t of_heads = small.H * small.D, of_all = of_heads + 2 * small.G * small.D;
  const bool backward = key.pass == AttentionPass::backward;
  size_t at = 0;
  // q, k, v, out, dout, dq, dk, dv
  for (const int64_t row : {of_all, of_all, of_all, of_heads, of_heads, of_all, of_all, of_all}) {
    const bool is_there = at < 12 || backward;
    for (const int64_t stride : {tokens * row, row, small.D}) {
      small.strides[at++] = is_there ? stride : 0;
    }
  }
  return small;
}

}  // namespace

// Tiles of anyone's kernels have 64 or 128 rows and columns.
std::array<AttentionKey, 3> small_problems(const AttentionKey& key) {
  return {small_problem(key, 2, 40), small_problem(key, 2, 136), small_problem(key, 1, 384)};
}

int64_t LibraryAttention::workspace_bytes(AttentionPass pass, const AttentionProblem& p) {
  if (choice_ == AttentionChoice::own) return 0;
  if (choice_ == AttentionChoice::by_table && !has_line(table_, pass, p)) {
    return 0;
  }
  if (const std::string why = why_not_asked(pass, p); !why.empty()) {
    note(str("attention ", name_of(pass), " of ", p.B, " x ", p.Tq, " queries and ", p.Tk,
             " keys, ", p.H, " heads of ", p.D, ", ", to_string(p.dtype),
             " runs on zinc's own kernels: ", why));
    return 0;
  }
  const AttentionKey key(p, {}, pass);
  int64_t bytes = attention_plan_bytes(key);
  for (const AttentionKey& small : small_problems(key)) {
    bytes = std::max(bytes, attention_plan_bytes(small));
  }
  return rounded_up(bytes, 256) + kAttentionCheckBytes;
}

void LibraryAttention::note(std::string line) {
  if (notes_.size() >= DeviceNotes::kMaxLines) return;
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
      note(str("attention runs on zinc's own kernels: ", opened_.why_not));
    }
  }
  if (opened_.library == nullptr && choice_ == AttentionChoice::library) {
    throw CudaError(str("attention: the library was chosen by name: ", opened_.why_not));
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
    return str("zinc's own kernels: no line of the library's table is about ", to_string(dtype),
               " (docs/kernels.md)");
  }
  if (!open(backend_of(device))) return str("zinc's own kernels: ", opened_.why_not);
  return str(opened_.library->name(), " for ",
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
    const std::string line = str(opened_.library->name(), " differs from zinc's own attention (",
                                 text_of(small), ", ", small.Tq, " tokens): ", found->second);
    if (choice_ == AttentionChoice::library) throw CudaError(line);
    note(line + "; own kernels take it");
    return false;
  }
  return true;
}

bool LibraryAttention::run(AttentionPass pass, const AttentionProblem& p,
                           const AttentionArrays& arrays, std::byte* workspace, StreamRef stream,
                           const Backend& device) {
  const Backend backend = backend_of(device);
  if (!open(backend) || !is_aligned(pass, p, arrays)) return false;
  const AttentionKey key(p, arrays, pass);
  auto found = plans_.find(key);
  if (found == plans_.end()) {
    if (plans_.size() >= kMaxPlans) plans_.clear();
    AttentionLibrary::MadePlan made = opened_.library->make_plan(key);
    if (made.plan == nullptr) {
      note(str(opened_.library->name(), " does not take attention ", text_of(key), ": ",
               made.why_not, "; own kernels do"));
    }
    found = plans_.emplace(key, std::move(made.plan)).first;
  }
  if (found->second == nullptr || !agrees(key, workspace, stream, backend)) return false;
  found->second->run(p, arrays, workspace + kAttentionCheckBytes, stream);
  ++num_runs_;
  return true;
}

}  // namespace zinc::kernels
