// cuDNN's fused attention, forward and backward: which plan is taken, and how it is run. The
// library is found when it is first asked, so that a program starts where it is missing.
//
// A plan is the first that the heuristics propose within attention_plan_bytes() whose engine does
// not say that its results may change from run to run: the same in every run with this GPU and
// library.
#include <array>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/launch_times.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_graph_cudnn.h"
#include "kernels/fill.h"

namespace zinc::kernels::cuda {
namespace {

// Earlier ones compute gradients wrongly where keys are no multiple of a tile and have no lengths.
constexpr size_t kFirstVersion = 91600;

int64_t rounded(int64_t bytes) { return (bytes + 255) / 256 * 256; }

// Bytes of the workspace that our own arrays take, before cuDNN's.
int64_t bytes_of_lengths(const AttentionKey& key) {
  return key.lengths ? rounded(key.B * int64_t{sizeof(int32_t)}) : 0;
}
int64_t bytes_of_delta(const AttentionKey& key) {
  const bool backward = key.pass == AttentionPass::backward;
  return backward ? rounded(key.B * key.H * key.Tq * int64_t{sizeof(float)}) : 0;
}

bool may_change(const CudnnFunctions& cudnn, const CudnnDescriptor& config) {
  CudnnDescriptor engine(cudnn, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.raw();
  config.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, &raw, 1);
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
  const int64_t count = engine.get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                   notes.data(), notes.size());
  for (int64_t i = 0; i < count; ++i) {
    if (notes[static_cast<size_t>(i)] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) return true;
  }
  return false;
}

// The GPU that plans are made for: that of a handle, or a described one.
struct Target {
  cudnnHandle_t handle = nullptr;
  const CudnnDescriptor* device = nullptr;
};

struct Planned {
  CudnnDescriptor plan;
  int64_t bytes = 0;  // of cuDNN's own workspace
};

// The engines that the heuristics propose for a graph, the best first.
std::vector<CudnnDescriptor> proposed(const CudnnFunctions& cudnn, const CudnnDescriptor& graph,
                                      cudnnBackendHeurMode_t mode, const Target& target) {
  CudnnDescriptor heuristics(cudnn, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.link(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
  if (target.device != nullptr) heuristics.link(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target.device);
  heuristics.finalize("the heuristics of attention");
  cudnnBackendDescriptor_t* none = nullptr;
  const auto count = static_cast<size_t>(
      heuristics.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, none, 0));
  std::vector<CudnnDescriptor> configs;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (size_t i = 0; i < count; ++i) {
    configs.emplace_back(cudnn, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    raw.push_back(configs.back().raw());
  }
  const auto found = static_cast<size_t>(heuristics.get(
      CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, raw.data(), raw.size()));
  while (configs.size() > found) configs.pop_back();
  return configs;
}

// Throws CudaError where there is none, with the reason.
Planned plan_of(const CudnnFunctions& cudnn, const AttentionKey& key, const Target& target) {
  const CudnnDescriptor graph = attention_graph(cudnn, key, target.handle);
  const int64_t limit = attention_plan_bytes(key) - bytes_of_lengths(key) - bytes_of_delta(key);
  std::string why = "no engine of it takes this";
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    for (const CudnnDescriptor& config : proposed(cudnn, graph, mode, target)) {
      if (may_change(cudnn, config)) {
        why = "its engines may give other bits in another run";
        continue;
      }
      CudnnDescriptor plan(cudnn, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      if (target.handle != nullptr) {
        plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, target.handle);
      }
      plan.link(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
      if (const cudnnStatus_t status = cudnn.finalize(plan.raw()); status != CUDNN_STATUS_SUCCESS) {
        why = cudnn.words_of(status, "its plan");
        continue;
      }
      int64_t bytes = 0;
      plan.get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, &bytes, 1);
      if (bytes > limit) {
        why = str("its plan takes ", bytes, " bytes of workspace, and ", limit, " are planned");
        continue;
      }
      return {.plan = std::move(plan), .bytes = bytes};
    }
  }
  throw CudaError(why);
}

class CudnnPlan final : public AttentionPlan {
 public:
  CudnnPlan(const CudnnFunctions& cudnn, cudnnHandle_t handle, const AttentionKey& key,
            CudnnDescriptor plan)
      : cudnn_(cudnn), handle_(handle), key_(key), plan_(std::move(plan)) {}

  void run(const AttentionProblem& p, const AttentionArrays& arrays, std::byte* workspace,
           StreamRef stream) override {
    auto scale = static_cast<float>(p.scale), window = static_cast<float>(p.mask.window);
    float hidden = -std::numeric_limits<float>::infinity(), one = 1.0f;
    Bound bound;
    bound.add(kScale, &scale);
    bound.add(kQ, p.q.data);
    bound.add(kK, p.k.data);
    bound.add(kV, p.v.data);
    bound.add(kOut, arrays.out.data);
    if (key_.lse) bound.add(kLse, arrays.lse);
    if (key_.causal || key_.lengths) bound.add(kHidden, &hidden);
    if (key_.window > 0) bound.add(kWindow, &window);
    if (key_.alibi) bound.add(kSlopes, p.mask.alibi_slopes.data());
    if (key_.lengths) {
      const View queries(workspace, DType::i32, {p.B}, p.device, Tier::device);
      fill({.y = queries, .value = static_cast<double>(p.Tq)}, stream);
      bound.add(kQueryLengths, queries.data());
      bound.add(kKeyLengths, p.mask.key_lengths.data());
      workspace += bytes_of_lengths(key_);
    }
    if (key_.pass == AttentionPass::backward) {
      bound.add(kOne, &one);
      bound.add(kDelta, workspace);
      workspace += bytes_of_delta(key_);
      bound.add(kDout, arrays.dout.data);
      bound.add(kDq, arrays.dq.data);
      bound.add(kDk, arrays.dk.data);
      bound.add(kDv, arrays.dv.data);
    }
    execute(bound, workspace, stream);
  }

 private:
  struct Bound {
    std::vector<int64_t> names;
    std::vector<void*> data;
    void add(CudnnTensor name, const void* to) {
      names.push_back(name);
      data.push_back(const_cast<void*>(to));
    }
  };

  void execute(const Bound& bound, std::byte* workspace, StreamRef stream) {
    CudnnDescriptor pack(cudnn_, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, bound.names.data(),
             bound.names.size());
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, bound.data.data(),
             bound.data.size());
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, static_cast<void*>(workspace));
    pack.finalize("the arguments of attention");
    cudnn_.check(cudnn_.set_stream(handle_, static_cast<cudaStream_t>(stream->native())),
                 "cudnnSetStream");
    timed_launch(
        stream, [] { return std::string("cudnnBackendExecute"); },
        [&] {
          cudnn_.check(cudnn_.execute(handle_, plan_.raw(), pack.raw()), "cudnnBackendExecute");
        });
  }

  const CudnnFunctions& cudnn_;
  cudnnHandle_t handle_;
  AttentionKey key_;
  CudnnDescriptor plan_;
};

std::string name_of(const CudnnFunctions& cudnn) {
  const size_t version = cudnn.version();
  return str("cuDNN ", version / 10000, ".", version / 100 % 100, ".", version % 100);
}

class Cudnn final : public AttentionLibrary {
 public:
  explicit Cudnn(const CudnnFunctions& functions) : cudnn_(functions) {
    cudnn_.check(cudnn_.create(&handle_), "cudnnCreate");
  }
  ~Cudnn() override { cudnn_.destroy(handle_); }
  Cudnn(const Cudnn&) = delete;
  Cudnn& operator=(const Cudnn&) = delete;

  std::string name() const override { return name_of(cudnn_); }

  MadePlan make_plan(const AttentionKey& key) override {
    try {
      Planned planned = plan_of(cudnn_, key, {.handle = handle_});
      return {.plan = std::make_unique<CudnnPlan>(cudnn_, handle_, key, std::move(planned.plan)),
              .why_not = ""};
    } catch (const CudaError& error) {
      return {.plan = nullptr, .why_not = error.what()};
    }
  }

 private:
  CudnnFunctions cudnn_;
  cudnnHandle_t handle_ = nullptr;
};

// "" where the library is there and new enough.
std::string load(CudnnFunctions& functions) {
  std::string missing = functions.load();
  if (missing.empty() && functions.version() < kFirstVersion) {
    missing = str(name_of(functions), " is too old: attention needs 9.16");
  }
  return missing;
}

}  // namespace

LibraryAttention::Opened open_cudnn() {
  CudnnFunctions functions;
  if (std::string missing = load(functions); !missing.empty()) {
    return {.library = nullptr, .why_not = std::move(missing)};
  }
  try {
    return {.library = std::make_shared<Cudnn>(functions), .why_not = ""};
  } catch (const CudaError& error) {
    return {.library = nullptr, .why_not = error.what()};
  }
}

CudnnPlanReport report_cudnn_plan(const AttentionKey& key, const std::string& device) {
  CudnnFunctions functions;
  if (std::string missing = load(functions); !missing.empty()) {
    return {.is_missing = true, .why_not = std::move(missing)};
  }
  try {
    CudnnDescriptor properties(functions, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    properties.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, device.data(),
                   device.size());
    properties.finalize("the properties of the device");
    const Planned planned = plan_of(functions, key, {.device = &properties});
    CudnnPlanReport report;
    report.workspace_bytes = planned.bytes + bytes_of_lengths(key) + bytes_of_delta(key);
    return report;
  } catch (const CudaError& error) {
    return {.why_not = error.what()};
  }
}

}  // namespace zinc::kernels::cuda
