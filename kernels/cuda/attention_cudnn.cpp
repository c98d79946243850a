// cuDNN's fused attention through its graph interface: one native operation, the scores' mask a
// graph of its own inside it. The library is found when it is first asked, so that a program starts
// where it is missing.
//
// A plan is the first that the heuristics propose within kAttentionPlanBytes whose engine does not
// say that its results may change from run to run: the same in every run with this GPU and library.
#include <cudnn.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/launch_times.h"
#include "core/shared_library.h"
#include "kernels/cuda/attention.h"
#include "kernels/fill.h"

namespace zinc::kernels::cuda {
namespace {

// Numbers of later headers than the one in use; a library that does not know them refuses them.
constexpr auto kDiagonalMask = static_cast<cudnnBackendDescriptorType_t>(44);       // since 9.20
constexpr auto kSubgraph = static_cast<cudnnBackendAttributeName_t>(2811);          // since 9.21
constexpr auto kSubgraphInput = static_cast<cudnnBackendAttributeName_t>(2812);     // since 9.21
constexpr auto kSubgraphOutput = static_cast<cudnnBackendAttributeName_t>(2813);    // since 9.21
constexpr auto kMaskInput = static_cast<cudnnBackendAttributeName_t>(3000);         // since 9.20
constexpr auto kMaskKeyLengths = static_cast<cudnnBackendAttributeName_t>(3001);    // since 9.20
constexpr auto kMaskQueryLengths = static_cast<cudnnBackendAttributeName_t>(3002);  // since 9.20
constexpr auto kMaskValue = static_cast<cudnnBackendAttributeName_t>(3005);         // since 9.20
constexpr auto kMaskOutput = static_cast<cudnnBackendAttributeName_t>(3006);        // since 9.20
constexpr auto kMaskComparison = static_cast<cudnnBackendAttributeName_t>(3007);    // since 9.20
constexpr size_t kFirstVersion = 91500;  // lengths of keys
constexpr size_t kFirstVersionOfMasks = 92100;

// The functions that are called, found by name.
struct Functions {
  decltype(&cudnnGetVersion) version = nullptr;
  decltype(&cudnnCreate) create = nullptr;
  decltype(&cudnnDestroy) destroy = nullptr;
  decltype(&cudnnSetStream) set_stream = nullptr;
  decltype(&cudnnGetErrorString) error_string = nullptr;
  decltype(&cudnnGetLastErrorString) last_error = nullptr;
  decltype(&cudnnBackendCreateDescriptor) create_descriptor = nullptr;
  decltype(&cudnnBackendDestroyDescriptor) destroy_descriptor = nullptr;
  decltype(&cudnnBackendSetAttribute) set_attribute = nullptr;
  decltype(&cudnnBackendGetAttribute) get_attribute = nullptr;
  decltype(&cudnnBackendFinalize) finalize = nullptr;
  decltype(&cudnnBackendExecute) execute = nullptr;

  // What is missing; "" where nothing is.
  std::string load() {
    SharedLibrary library({.file = "libcudnn.so.9",
                           .what = "cuDNN 9",
                           .cure = "install it, as the package nvidia-cudnn-cu13 for one, and name "
                                   "its folder in LD_LIBRARY_PATH",
                           .newer = "update cuDNN to 9.15 or later"});
    library.find(version, "cudnnGetVersion");
    library.find(create, "cudnnCreate");
    library.find(destroy, "cudnnDestroy");
    library.find(set_stream, "cudnnSetStream");
    library.find(error_string, "cudnnGetErrorString");
    library.find(last_error, "cudnnGetLastErrorString");
    library.find(create_descriptor, "cudnnBackendCreateDescriptor");
    library.find(destroy_descriptor, "cudnnBackendDestroyDescriptor");
    library.find(set_attribute, "cudnnBackendSetAttribute");
    library.find(get_attribute, "cudnnBackendGetAttribute");
    library.find(finalize, "cudnnBackendFinalize");
    library.find(execute, "cudnnBackendExecute");
    return library.missing();
  }

  // Throws CudaError with the library's own words.
  void check(cudnnStatus_t status, const char* what) const {
    if (status == CUDNN_STATUS_SUCCESS) return;
    std::array<char, 512> words{};
    last_error(words.data(), words.size());
    throw CudaError(concat("cuDNN: ", what, ": ", error_string(status), ": ", words.data()));
  }
};

// One descriptor of the graph interface.
class Descriptor {
 public:
  Descriptor(const Functions& cudnn, cudnnBackendDescriptorType_t type) : cudnn_(&cudnn) {
    cudnn.check(cudnn.create_descriptor(type, &raw_), "cudnnBackendCreateDescriptor");
  }
  ~Descriptor() {
    if (raw_ != nullptr) cudnn_->destroy_descriptor(raw_);
  }
  Descriptor(Descriptor&& other) noexcept
      : cudnn_(other.cudnn_), raw_(std::exchange(other.raw_, nullptr)) {}
  Descriptor& operator=(Descriptor&&) = delete;

  cudnnBackendDescriptor_t raw() const { return raw_; }
  template <class Value>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const Value* values,
           size_t count) {
    cudnn_->check(cudnn_->set_attribute(raw_, name, type, static_cast<int64_t>(count), values),
                  "cudnnBackendSetAttribute");
  }
  template <class Value>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, Value value) {
    set(name, type, &value, 1);
  }
  void link(cudnnBackendAttributeName_t name, const Descriptor& to) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, to.raw_);
  }
  // How many values there are, at most `count` of which are written.
  template <class Value>
  int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, Value* values,
              size_t count) const {
    int64_t there = 0;
    cudnn_->check(
        cudnn_->get_attribute(raw_, name, type, static_cast<int64_t>(count), &there, values),
        "cudnnBackendGetAttribute");
    return there;
  }
  void finalize(const char* what) { cudnn_->check(cudnn_->finalize(raw_), what); }

 private:
  const Functions* cudnn_;
  cudnnBackendDescriptor_t raw_ = nullptr;
};

// Names of the tensors of a graph.
enum Tensor : int64_t {
  kQ = 1,
  kK,
  kV,
  kOut,
  kLse,
  kScale,
  kQueryLengths,
  kKeyLengths,
  kScores,
  kMaskedScores,
  kMasked,
};

using Four = std::array<int64_t, 4>;

Descriptor tensor(const Functions& cudnn, Tensor name, cudnnDataType_t type, const Four& extents,
                  const Four& strides, bool is_virtual = false, bool by_value = false) {
  Descriptor made(cudnn, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
  made.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, extents.data(), extents.size());
  made.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides.data(), strides.size());
  made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, static_cast<int64_t>(name));
  made.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, int64_t{16});
  if (is_virtual) made.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, true);
  if (by_value) made.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, true);
  made.finalize("a tensor");
  return made;
}
Descriptor scalar(const Functions& cudnn, Tensor name) {
  return tensor(cudnn, name, CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}, false, true);
}

// Four-dimensional [B, heads, T, D], whatever the order in memory.
Descriptor heads(const Functions& cudnn, Tensor name, const AttentionKey& key, int64_t count,
                 int64_t tokens, size_t at) {
  const cudnnDataType_t type = key.dtype == DType::bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
  return tensor(cudnn, name, type, {key.B, count, tokens, key.D},
                {key.strides[at], key.strides[at + 2], key.strides[at + 1], 1});
}

// Scores of keys behind the query become minus infinity.
Descriptor causal_mask(const Functions& cudnn, const AttentionKey& key, const Descriptor* queries,
                       const Descriptor* keys) {
  const Four extents{key.B, key.H, key.Tq, key.Tk};
  const Four strides{key.H * key.Tq * key.Tk, key.Tq * key.Tk, key.Tk, 1};
  Descriptor mask(cudnn, kDiagonalMask);
  mask.link(kMaskInput, tensor(cudnn, kScores, CUDNN_DATA_FLOAT, extents, strides, true));
  mask.link(kMaskOutput, tensor(cudnn, kMaskedScores, CUDNN_DATA_FLOAT, extents, strides, true));
  mask.link(kMaskValue, scalar(cudnn, kMasked));
  if (queries != nullptr) {
    mask.link(kMaskQueryLengths, *queries);
    mask.link(kMaskKeyLengths, *keys);
  }
  mask.set(kMaskComparison, CUDNN_TYPE_POINTWISE_MODE, CUDNN_POINTWISE_CMP_GE);
  mask.finalize("the causal mask");
  Descriptor graph(cudnn, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.link(CUDNN_ATTR_OPERATIONGRAPH_OPS, mask);
  graph.finalize("the graph of the causal mask");
  return graph;
}

// Without a handle the graph is complete, but no plan can be made of it.
Descriptor graph_of(const Functions& cudnn, const AttentionKey& key, cudnnHandle_t handle) {
  Descriptor attention(cudnn, CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR);
  attention.link(CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, heads(cudnn, kQ, key, key.H, key.Tq, 0));
  attention.link(CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, heads(cudnn, kK, key, key.G, key.Tk, 3));
  attention.link(CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, heads(cudnn, kV, key, key.G, key.Tk, 6));
  attention.link(CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, heads(cudnn, kOut, key, key.H, key.Tq, 9));
  attention.link(CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, scalar(cudnn, kScale));
  if (key.lse) {
    attention.link(CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC,
                   tensor(cudnn, kLse, CUDNN_DATA_FLOAT, {key.B, key.H, key.Tq, 1},
                          {key.H * key.Tq, key.Tq, 1, 1}));
  }
  const auto lengths = [&](Tensor name) {
    return tensor(cudnn, name, CUDNN_DATA_INT32, {key.B, 1, 1, 1}, {1, 1, 1, 1});
  };
  const Descriptor queries = lengths(kQueryLengths), keys = lengths(kKeyLengths);
  if (key.lengths) {
    attention.link(CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_QDESC, queries);
    attention.link(CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_KVDESC, keys);
  }
  if (key.causal) {
    const bool padded = key.lengths;
    attention.link(kSubgraph,
                   causal_mask(cudnn, key, padded ? &queries : nullptr, padded ? &keys : nullptr));
    attention.set(kSubgraphInput, CUDNN_TYPE_INT64, static_cast<int64_t>(kScores));
    attention.set(kSubgraphOutput, CUDNN_TYPE_INT64, static_cast<int64_t>(kMaskedScores));
  }
  attention.finalize("attention");
  Descriptor graph(cudnn, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.link(CUDNN_ATTR_OPERATIONGRAPH_OPS, attention);
  if (handle != nullptr) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle);
  graph.finalize("the graph of attention");
  return graph;
}

bool may_change(const Functions& cudnn, const Descriptor& config) {
  Descriptor engine(cudnn, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
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

class CudnnPlan final : public AttentionPlan {
 public:
  CudnnPlan(const Functions& cudnn, cudnnHandle_t handle, Descriptor plan)
      : cudnn_(cudnn), handle_(handle), plan_(std::move(plan)) {}

  void run(const AttentionProblem& p, const HeadsView& out, float* lse, std::byte* workspace,
           StreamRef stream) override {
    auto scale = static_cast<float>(p.scale);
    float masked = -std::numeric_limits<float>::infinity();
    std::vector<int64_t> names{kQ, kK, kV, kOut, kScale};
    std::vector<void*> data{const_cast<void*>(p.q.data), const_cast<void*>(p.k.data),
                            const_cast<void*>(p.v.data), const_cast<void*>(out.data), &scale};
    const auto bind = [&](Tensor name, void* to) {
      names.push_back(name);
      data.push_back(to);
    };
    if (lse != nullptr) bind(kLse, lse);
    if (p.mask.key_lengths) {
      const View queries(workspace, DType::i32, {p.B}, p.device, Tier::device);
      fill({.y = queries, .value = static_cast<double>(p.Tq)}, stream);
      bind(kQueryLengths, queries.data());
      bind(kKeyLengths, const_cast<void*>(p.mask.key_lengths.data()));
      workspace += (p.B * int64_t{sizeof(int32_t)} + 255) / 256 * 256;
    }
    if (p.mask.causal) bind(kMasked, &masked);
    Descriptor pack(cudnn_, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, names.data(), names.size());
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, data.data(), data.size());
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

 private:
  const Functions& cudnn_;
  cudnnHandle_t handle_;
  Descriptor plan_;
};

class Cudnn final : public AttentionLibrary {
 public:
  explicit Cudnn(const Functions& functions) : cudnn_(functions) {
    cudnn_.check(cudnn_.create(&handle_), "cudnnCreate");
  }
  ~Cudnn() override { cudnn_.destroy(handle_); }
  Cudnn(const Cudnn&) = delete;
  Cudnn& operator=(const Cudnn&) = delete;

  std::string name() const override {
    const size_t version = cudnn_.version();
    return concat("cuDNN ", version / 10000, ".", version / 100 % 100, ".", version % 100);
  }

  MadePlan make_plan(const AttentionKey& key) override {
    if (key.causal && cudnn_.version() < kFirstVersionOfMasks) {
      return {.plan = nullptr, .why_not = "its native operation takes causal masks from 9.21 on"};
    }
    try {
      const Descriptor graph = graph_of(cudnn_, key, handle_);
      for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
        if (auto plan = first_of(graph, key, mode)) return {.plan = std::move(plan), .why_not = ""};
      }
    } catch (const CudaError& error) {
      return {.plan = nullptr, .why_not = error.what()};
    }
    return {.plan = nullptr, .why_not = "no engine of it takes this"};
  }

 private:
  std::unique_ptr<AttentionPlan> first_of(const Descriptor& graph, const AttentionKey& key,
                                          cudnnBackendHeurMode_t mode) {
    Descriptor heuristics(cudnn_, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristics.link(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
    heuristics.finalize("the heuristics of attention");
    cudnnBackendDescriptor_t* none = nullptr;
    const auto count = static_cast<size_t>(
        heuristics.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, none, 0));
    std::vector<Descriptor> configs;
    std::vector<cudnnBackendDescriptor_t> raw;
    for (size_t i = 0; i < count; ++i) {
      configs.emplace_back(cudnn_, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
      raw.push_back(configs.back().raw());
    }
    const auto found = static_cast<size_t>(heuristics.get(
        CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, raw.data(), raw.size()));
    const int64_t lengths = key.lengths ? (key.B * int64_t{sizeof(int32_t)} + 255) / 256 * 256 : 0;
    for (size_t i = 0; i < std::min(count, found); ++i) {
      if (may_change(cudnn_, configs[i])) continue;
      Descriptor plan(cudnn_, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle_);
      plan.link(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configs[i]);
      if (cudnn_.finalize(plan.raw()) != CUDNN_STATUS_SUCCESS) continue;
      int64_t bytes = 0;
      plan.get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, &bytes, 1);
      if (bytes + lengths > kAttentionPlanBytes) continue;
      return std::make_unique<CudnnPlan>(cudnn_, handle_, std::move(plan));
    }
    return nullptr;
  }

  Functions cudnn_;
  cudnnHandle_t handle_ = nullptr;
};

// "" where the library is there and new enough.
std::string load(Functions& functions) {
  std::string missing = functions.load();
  if (missing.empty() && functions.version() < kFirstVersion) {
    missing = concat("cuDNN ", functions.version(), " is too old: attention needs 9.15");
  }
  return missing;
}

}  // namespace

LibraryAttention::Opened open_cudnn() {
  Functions functions;
  if (std::string missing = load(functions); !missing.empty()) {
    return {.library = nullptr, .why_not = std::move(missing)};
  }
  try {
    return {.library = std::make_shared<Cudnn>(functions), .why_not = ""};
  } catch (const CudaError& error) {
    return {.library = nullptr, .why_not = error.what()};
  }
}

std::string why_no_cudnn_graph(const AttentionKey& key) {
  Functions functions;
  if (std::string missing = load(functions); !missing.empty()) return missing;
  try {
    graph_of(functions, key, nullptr);
  } catch (const CudaError& error) {
    return error.what();
  }
  return "";
}

}  // namespace zinc::kernels::cuda
