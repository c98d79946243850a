// zero/engine_config.h: the configuration of the engine. Plain data; train/config fills it from a
// DeepSpeed JSON file, a program may fill it by hand. Counts of elements are elements, counts of
// bytes are bytes. Defaults are DeepSpeed 0.19's where DeepSpeed has the key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "kernels/wgmma_use.h"
#include "nn/attention/sparsity_config.h"
#include "nn/sequence_ranks.h"
#include "optim/loss_scale_config.h"
#include "optim/optimizer_config.h"
#include "optim/schedule_config.h"
#include "parallel/pipeline.h"

namespace zinc::zero {

struct BatchConfig {
  int64_t micro_batch = 1;   // sequences per rank and micro-step, > 0
  int64_t accumulation = 1;  // micro-steps per optimizer step, > 0
  // Most positions of a sequence; 0: nn::Model::max_sequence(). In fp16 the loss scale depends on
  // this number (Note [Loss scale]), and a longer sequence is an error.
  int64_t sequence = 0;

  // Sequences per optimizer step over all ranks.
  int64_t global_batch(int64_t world_size) const { return micro_batch * accumulation * world_size; }
};

struct PrecisionConfig {
  // f32, bf16 or f16: weights, activations and gradients of the model. With a 16-bit dtype the
  // optimizer keeps f32 master weights and moments.
  DType dtype = DType::f32;
  // f16 only: scale 1 otherwise.
  optim::LossScaleConfig loss_scale{};
  // Looks for non-finite gradients before a step and skips it. f16: always true; bf16: default
  // true; f32: default false.
  bool check_overflow = false;
  // False: a step whose loss is NaN or infinite, and that check_overflow does not skip, throws and
  // its update is withheld. True: the update is applied. A train::Trainer throws for a skipped step
  // with such a loss, too.
  bool allow_nonfinite_loss = false;
  // Skipped steps in a row after which the engine throws; > 0.
  int64_t max_consecutive_skips = 100;
};

// How far the bits of a result are the same: docs/architecture.md, "Determinism".
enum class Determinism : uint8_t {
  run,    // same bits for one world size
  world,  // same bits for every power-of-two world size with the same micro-batches per step
  mesh,   // likewise, and for 1, 2 and 4 tensor ranks: Note [Ranks with fixed slices] in
          // nn/tensor_ranks.h
};
inline constexpr int kFixedSlices = 4;  // slices of each sliced layer, with Determinism::mesh

// When gradients travel.
enum class ReduceSchedule : uint8_t {
  boundary,    // once per optimizer step, at its last micro-batch; stages 0 and 1 only
  micro_step,  // after every micro-batch
};
// How sums between ranks are made; matches comm::ReduceAlgorithm.
enum class ReduceAlgorithm : uint8_t { ordered, native };
// The mean that is the loss of a step.
enum class LossReduction : uint8_t {
  tokens,       // all target tokens of the global batch
  micro_batch,  // DeepSpeed's: the mean of the micro-batches' means
};
enum class OffloadDevice : uint8_t { none, cpu, nvme };
// The place where states in host memory are updated.
enum class OffloadStep : uint8_t {
  automatic,  // the plan of a run chooses (plan/offload_choice.h); the engine itself: host
  host,       // by the CPU, in place
  device,     // on the device: tiles travel there and back
};
// The place where reduced gradients of states off the device are summed over micro-batches and wait
// for the update.
enum class GradientOffload : uint8_t {
  device,  // on the device until the step's last micro-batch, then in host memory
  host,    // zero/group/host_gradients.h
  nvme,    // states on NVMe only: zero/group/swapped_gradients.h
};
// The order in which the micro-batches of a step pass through the model's layers.
enum class PassOrder : uint8_t {
  horizontal,  // one micro-batch through all layers after the other
  vertical,    // all micro-batches through a layer before the next one: parallel/vertical_passes.h
};

std::string_view name_of(Determinism value);      // "run", "world", "mesh"
std::string_view name_of(ReduceSchedule value);   // "boundary", "micro_step"
std::string_view name_of(ReduceAlgorithm value);  // "ordered", "native"
std::string_view name_of(LossReduction value);    // "tokens", "micro_batch"
std::string_view name_of(OffloadDevice value);    // "none", "cpu", "nvme"
std::string_view name_of(OffloadStep value);      // "auto", "host", "device"
std::string_view name_of(GradientOffload value);  // "device", "host", "nvme"
std::string_view name_of(PassOrder value);        // "horizontal", "vertical"

struct GradientConfig {
  double clipping = 1.0;  // largest global L2 norm of the step's gradient; 0: off
  // The dtype of sums over micro-batches; absent: Note [Gradient policy] decides.
  std::optional<DType> accumulation_dtype;
  // The dtype of gradients on the wire of a reduction: f32, bf16 or f16; absent: the model's dtype.
  std::optional<DType> communication_dtype;
  // Absent: boundary on stages 0 and 1, micro_step on 2 and 3.
  std::optional<ReduceSchedule> reduce_schedule;
  ReduceAlgorithm reduce_algorithm = ReduceAlgorithm::ordered;
  // The next two: native reduction only. Divide by the world size before the sum; divide by the
  // factor before it and multiply by it after.
  bool prescale = false;
  double predivide_factor = 1.0;
  LossReduction loss_reduction = LossReduction::tokens;
  // Gradients travel as signs in steps that the update rule names: Note [Sums as signs] in
  // zero/group/sign_sums.h. The engine sets it for a client's own rule.
  bool signs = false;
};

// A tier for optimizer states, parameters or saved inputs.
struct OffloadConfig {
  OffloadDevice device = OffloadDevice::none;
  std::string nvme_path;               // directory; needed for nvme
  int64_t buffer_count = 4;            // staging buffers, not of states; parameters: default 5
  int64_t buffer_size = 100'000'000;   // elements per staging buffer; parameters only
  int64_t max_in_cpu = 1'000'000'000;  // elements kept in host memory with nvme; parameters only
  bool pipeline_read = false;          // optimizer only: read the next sub-group during the step
  bool pipeline_write = false;  // optimizer only: write the previous sub-group during the step
  // Only for the optimizer with device cpu, [0, 1]: the share of elements whose master weights and
  // states are in host memory; see Note [Split states].
  double ratio = 1.0;
};

inline constexpr int64_t kLargestAioBlock = int64_t{1} << 30;  // bytes

// libaio under the nvme tier.
struct AioConfig {
  int64_t block_size = 1'048'576;  // bytes per request
  int queue_depth = 8;             // requests in flight per thread
  int threads = 1;                 // DeepSpeed: intra_op_parallelism, thread_count, num_threads
  bool single_submit = false;
  bool overlap_events = true;
};

// Activation recomputation and where saved inputs live.
struct RecomputeConfig {
  int64_t every_blocks = 0;  // 0: off; n: one saved input per n transformer blocks
  // Another way to say it: as many saved inputs in the whole model, at most; 0: not said.
  int64_t num_checkpoints = 0;
  // The number of blocks, from the model's first, that are recomputed; absent: all.
  std::optional<int64_t> most_blocks;
  // Results of norms and activations are made again in backward: autograd/remade.h. Recomputed
  // blocks keep no such results in any case.
  bool selective = false;
  bool cpu_checkpointing = false;               // saved inputs in the host tier
  bool contiguous_memory_optimization = false;  // saved inputs side by side in one allocation
  bool partition_activations = false;           // a part of each saved input per tensor rank
  OffloadConfig offload{};                      // saved inputs in another tier

  bool is_on() const { return every_blocks != 0 || num_checkpoints != 0; }
  // The tier of saved inputs.
  OffloadDevice inputs_on() const {
    const bool in_host_memory = offload.device == OffloadDevice::none && cpu_checkpointing;
    return in_host_memory ? OffloadDevice::cpu : offload.device;
  }
  // Saved inputs are copied to places of their own.
  bool moves_inputs() const {
    return inputs_on() != OffloadDevice::none || contiguous_memory_optimization;
  }
};

struct ZeroConfig {
  int stage = 0;                                // 0-3
  int64_t reduce_bucket_size = 500'000'000;     // elements, > 0
  int64_t allgather_bucket_size = 500'000'000;  // elements, > 0
  std::optional<bool> overlap_comm;             // absent: true on stage 3 only
  // Elements of an optimizer tile; 0: 1e9, or 2^23 where tiles pass through the device.
  int64_t sub_group_size = 0;
  int64_t prefetch_bucket_size = 50'000'000;  // elements; stage 3
  // Elements: smaller parameters stay whole; stage 3.
  int64_t param_persistence_threshold = 100'000;
  int64_t max_live_parameters = 1'000'000'000;  // elements; 0 is valid; stage 3
  int64_t max_reuse_distance = 1'000'000'000;   // elements; 0 is valid; stage 3
  // Bytes of gathered weights that stay through all micro-batches of a step; beside
  // max_live_parameters; stage 3.
  int64_t resident_memory = 0;
  bool ignore_unused_parameters = true;
  bool allow_untested_optimizer = false;  // a client's own optimizer with stages 1-3
  bool force_cpu_optimizer = true;        // refuse a client's own optimizer with offload
  OffloadConfig offload_optimizer{};
  OffloadConfig offload_param{.nvme_path = {}, .buffer_count = 5};
};

struct EngineConfig {
  BatchConfig batch{};
  PrecisionConfig precision{};
  GradientConfig gradient{};
  optim::OptimizerConfig optimizer{};
  optim::ScheduleConfig schedule{};
  ZeroConfig zero{};
  RecomputeConfig recompute{};
  parallel::PipelineConfig pipeline{};
  AioConfig aio{};
  // Label smoothing in training passes: kernels/cross_entropy.h; [0, 1]. Evaluation never smooths.
  double label_smoothing = 0.0;
  // Logits of the head in 16 bits in training passes: Note [Logits of 16 bits] in
  // kernels/linear_cross_entropy.h.
  bool narrow_logits = false;
  // Layouts of blocks for the model's attention, of BatchConfig::sequence positions: DeepSpeed's
  // "sparse_attention". Absent: every query sees all keys.
  std::optional<nn::SparsityConfig> sparse_attention{};
  // Products of linear layers in 8 bits: nn::use_fp8(). The model's dtype is bf16.
  bool fp8 = false;
  // Our own kernels for compute capability 9.0, of attention's forward and of matrix products.
  kernels::WgmmaUse wgmma = kernels::WgmmaUse::by_table;
  Determinism determinism = Determinism::run;
  PassOrder pass_order = PassOrder::horizontal;
  // The data that ranks which share sequences exchange around attention: nn/sequence_ranks.h.
  nn::SequenceExchange sequence_exchange = nn::SequenceExchange::heads;
  // Tensor ranks share the tokens between sliced layers: nn/tensor_ranks.h, Note [Shared tokens].
  bool tensor_sequence_parallel = false;
  OffloadStep offload_step = OffloadStep::automatic;
  GradientOffload gradient_offload = GradientOffload::host;
  // Measures the phases of every step; each then waits for the one before.
  bool wall_clock_breakdown = false;
  // On a GPU: records the passes of a micro-batch, and the step, once and launches them as CUDA
  // graphs after that; zero/run/recorded_passes.h lists the conditions.
  bool cuda_graph = false;
  // Updates that the host computes, of states on NVMe or in host memory, run beside backward, or
  // beside the next forward pass where clipping or the overflow check decides over a step; not with
  // wall_clock_breakdown. False: within step(). Absent: true where the update does not compete with
  // the rank's own compute, that is with states on NVMe, and on a GPU.
  std::optional<bool> overlap_update;
  // Checks the CRC of every byte that comes back from a swap file.
  bool verify_swap = true;

  // Micro-batches that go through the model side by side: 1, or all of a step.
  int64_t batches_together() const {
    return pass_order == PassOrder::vertical ? batch.accumulation : 1;
  }
  // Micro-batches that Engine::run_passes() takes: those side by side, or in a pipeline all of a
  // step.
  int64_t batches_per_call() const {
    return pipeline.ranks > 1 ? batch.accumulation : batches_together();
  }
  // Whether results have the same bits with other numbers of ranks.
  bool spans_worlds() const { return determinism != Determinism::run; }
  // Whether gradients travel as signs in some steps.
  bool sends_signs() const { return gradient.signs || optim::sends_signs(optimizer.kind); }
  // The value in force.
  ReduceSchedule reduce_schedule() const {
    if (sends_signs()) return ReduceSchedule::boundary;
    if (spans_worlds() || pass_order == PassOrder::vertical) {
      return ReduceSchedule::micro_step;
    }
    return gradient.reduce_schedule.value_or(zero.stage <= 1 ? ReduceSchedule::boundary
                                                             : ReduceSchedule::micro_step);
  }
  DType communication_dtype() const {
    return gradient.communication_dtype.value_or(precision.dtype);
  }
  bool overlap_comm() const { return zero.overlap_comm.value_or(zero.stage == 3); }
  // See Note [Loss scale]; needs batch.sequence.
  double loss_divisor() const;
};

// What is wrong with single values, as one out of its range. Members that exclude each other, or
// need each other: config_rules.h.
std::vector<std::string> value_problems(const EngineConfig& config);
// Throws ConfigError with every problem of values and every broken rule of config_rules.h.
void validate(const EngineConfig& config);

}  // namespace zinc::zero
