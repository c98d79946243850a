#include "zero/config_rules.h"

#include <bit>

#include "core/dtype.h"
#include "core/error.h"
#include "optim/optimizer_config.h"
#include "parallel/pipeline.h"

namespace zinc::zero {
namespace {

using Case = ConfigCase;

// --- conditions on the reduction of gradients
bool asks_for_boundary(const Case& c) {
  return c.config.gradient.reduce_schedule == ReduceSchedule::boundary;
}
bool reduces_at_boundary(const Case& c) {
  return c.config.reduce_schedule() == ReduceSchedule::boundary && !c.config.sends_signs();
}
bool asks_for_micro_steps(const Case& c) {
  return c.config.gradient.reduce_schedule == ReduceSchedule::micro_step;
}
bool sends_signs(const Case& c) { return c.config.sends_signs(); }
bool reduces_natively(const Case& c) {
  return c.config.gradient.reduce_algorithm == ReduceAlgorithm::native;
}
bool divides_before_sums(const Case& c) {
  return c.config.gradient.prescale || c.config.gradient.predivide_factor != 1.0;
}
bool averages_micro_batches(const Case& c) {
  return c.config.gradient.loss_reduction == LossReduction::micro_batch;
}
bool sums_in_other_dtype(const Case& c) {
  return c.config.gradient.accumulation_dtype.value_or(DType::f32) != DType::f32;
}

// --- conditions on stages, order and equal bits
bool is_sharded(const Case& c) { return c.config.zero.stage >= 1; }
bool shards_gradients(const Case& c) { return c.config.zero.stage >= 2; }
bool shards_parameters(const Case& c) { return c.config.zero.stage == 3; }
bool keeps_gradients_whole(const Case& c) { return !shards_gradients(c); }
bool is_vertical(const Case& c) { return c.config.pass_order == PassOrder::vertical; }
bool spans_worlds(const Case& c) { return c.config.spans_worlds(); }
bool spans_meshes(const Case& c) { return c.config.determinism == Determinism::mesh; }
// Determinism adds micro-batches up in a tree, whose open sums wait between micro-batches.
bool keeps_partial_sums(const Case& c) {
  return c.config.spans_worlds() && c.config.batch.accumulation != c.config.batches_together();
}

// --- conditions on numbers
bool has_fp8(const Case& c) { return c.config.fp8; }
bool is_bf16(const Case& c) { return c.config.precision.dtype == DType::bf16; }
bool is_f64(const Case& c) { return c.config.precision.dtype == DType::f64; }
bool has_bf16_moments(const Case& c) { return c.config.optimizer.moments == optim::Moments::bf16; }
bool has_bf16_weights(const Case& c) { return c.config.optimizer.narrow_weights; }
bool keeps_blocks(const Case& c) {
  return c.config.optimizer.kind == optim::OptimizerKind::adam8bit;
}
bool is_adafactor(const Case& c) {
  return c.config.optimizer.kind == optim::OptimizerKind::adafactor;
}
bool is_schedule_free(const Case& c) {
  return c.config.optimizer.kind == optim::OptimizerKind::schedule_free;
}
bool is_sgd(const Case& c) { return c.config.optimizer.kind == optim::OptimizerKind::sgd; }
bool keeps_largest_moment(const Case& c) { return c.config.optimizer.amsgrad; }

// --- conditions on tiers
const OffloadConfig& states(const Case& c) { return c.config.zero.offload_optimizer; }
const OffloadConfig& weights(const Case& c) { return c.config.zero.offload_param; }
bool offloads_states(const Case& c) { return states(c).device != OffloadDevice::none; }
bool has_states_in_host_memory(const Case& c) { return states(c).device == OffloadDevice::cpu; }
bool swaps_states(const Case& c) { return states(c).device == OffloadDevice::nvme; }
bool names_a_place_of_states(const Case& c) { return !states(c).nvme_path.empty(); }
bool splits_states(const Case& c) { return states(c).ratio != 1.0; }
bool updates_states_on_device(const Case& c) {
  return c.config.offload_step == OffloadStep::device;
}
bool offloads_parameters(const Case& c) { return weights(c).device != OffloadDevice::none; }
bool swaps_parameters(const Case& c) { return weights(c).device == OffloadDevice::nvme; }
bool names_a_place_of_parameters(const Case& c) { return !weights(c).nvme_path.empty(); }
bool swaps_gradients(const Case& c) { return c.config.gradient_offload == GradientOffload::nvme; }
bool keeps_groups_gathered(const Case& c) { return c.config.zero.resident_memory > 0; }

// --- conditions on recomputation
bool recomputes_every_blocks(const Case& c) { return c.config.recompute.every_blocks != 0; }
bool recomputes_by_number(const Case& c) { return c.config.recompute.num_checkpoints != 0; }
bool recomputes(const Case& c) { return c.config.recompute.is_on(); }
bool swaps_inputs(const Case& c) {
  return c.config.recompute.offload.device == OffloadDevice::nvme;
}
bool names_a_place_of_inputs(const Case& c) {
  return !c.config.recompute.offload.nvme_path.empty();
}
bool keeps_inputs_in_host_memory(const Case& c) { return c.config.recompute.cpu_checkpointing; }
bool inputs_leave_device(const Case& c) {
  return c.config.recompute.inputs_on() != OffloadDevice::none;
}
bool packs_inputs(const Case& c) { return c.config.recompute.contiguous_memory_optimization; }
bool moves_inputs(const Case& c) { return c.config.recompute.moves_inputs(); }
bool slices_inputs(const Case& c) { return c.config.recompute.partition_activations; }

// --- conditions on ranks that work together
bool shares_tokens(const Case& c) { return c.config.tensor_sequence_parallel; }
bool is_pipeline(const Case& c) { return c.config.pipeline.ranks > 1; }
bool is_interleaved(const Case& c) { return c.config.pipeline.interleave != 1; }
bool is_interleaved_pipeline(const Case& c) { return is_pipeline(c) && is_interleaved(c); }
bool is_zero_bubble(const Case& c) {
  return is_pipeline(c) && c.config.pipeline.schedule == parallel::PipelineSchedule::zero_bubble;
}
bool takes_turns(const Case& c) {
  return c.config.pipeline.schedule == parallel::PipelineSchedule::one_forward_one_backward;
}
bool has_rounds_of_micro_batches(const Case& c) {
  return c.config.batch.accumulation % c.config.pipeline.ranks == 0;
}

// --- conditions on graphs
bool records_graph(const Case& c) { return c.config.cuda_graph; }
bool measures_phases(const Case& c) { return c.config.wall_clock_breakdown; }

// --- conditions on facts
bool records_graph_in_world(const Case& c) { return c.config.cuda_graph && c.facts.world; }
bool is_on_gpu(const Case& c) { return c.facts.world->on_gpu; }
bool gathers_in_graph(const Case& c) {
  return records_graph_in_world(c) && is_on_gpu(c) && shards_parameters(c);
}
bool gathers_in_streams(const Case& c) { return c.facts.world->gathers_in_streams; }
bool has_tensor_ranks(const Case& c) { return c.facts.world && c.facts.world->mesh.tensor > 1; }
bool has_sequence_ranks(const Case& c) { return c.facts.world && c.facts.world->mesh.sequence > 1; }
bool spans_meshes_in_world(const Case& c) { return spans_meshes(c) && c.facts.world; }
bool shares_fixed_slices(const Case& c) { return kFixedSlices % c.facts.world->mesh.tensor == 0; }
bool spans_worlds_in_world(const Case& c) { return spans_worlds(c) && c.facts.world; }
bool has_power_of_two_shards(const Case& c) {
  return std::has_single_bit(static_cast<unsigned>(c.facts.world->shards));
}
bool is_dynamic(const Case& c) { return c.facts.is_dynamic.value_or(false); }
bool is_vertical_model(const Case& c) { return is_vertical(c) && c.facts.has_stages; }
bool has_stages(const Case& c) { return *c.facts.has_stages; }
bool shards_own_optimizer(const Case& c) { return c.facts.optimizer && is_sharded(c); }
bool allows_untested(const Case& c) { return c.config.zero.allow_untested_optimizer; }
bool has_own_sums(const Case& c) { return c.facts.has_own_sums.value_or(false); }
bool offloads_own_optimizer(const Case& c) { return c.facts.optimizer && offloads_states(c); }
bool forces_own_cpu_optimizer(const Case& c) { return c.config.zero.force_cpu_optimizer; }
bool offloads_shared_parameters(const Case& c) {
  return offloads_states(c) && c.facts.shared_parameter;
}
// Recomputation is asked for, and a step was recorded.
bool recomputes_recorded(const Case& c) {
  return recomputes(c) && c.config.recompute.most_blocks != 0 && c.facts.recomputes;
}
bool recomputes_recorded_by_number(const Case& c) {
  return recomputes_recorded(c) && recomputes_by_number(c);
}
bool recomputes_recorded_every_blocks(const Case& c) {
  return recomputes_recorded(c) && !recomputes_by_number(c);
}
bool model_recomputes(const Case& c) { return *c.facts.recomputes; }

// --- names in braces
std::string quoted(std::string_view text) { return str('"', text, '"'); }

struct Value {
  std::string_view name;
  std::string_view on_page;
  std::string (*of)(const Case&);
};

constexpr std::array kValues{
    Value{"{determinism}", "\"world\" or \"mesh\"",
          [](const Case& c) { return quoted(name_of(c.config.determinism)); }},
    Value{"{offload_optimizer}", "another",
          [](const Case& c) { return quoted(name_of(states(c).device)); }},
    Value{"{pipeline_schedule}", "another",
          [](const Case& c) { return quoted(name_of(c.config.pipeline.schedule)); }},
    Value{"{pipe}", "P", [](const Case& c) { return str(c.config.pipeline.ranks); }},
    Value{"{interleave}", "V", [](const Case& c) { return str(c.config.pipeline.interleave); }},
    Value{"{accumulation}", "another number",
          [](const Case& c) { return str(c.config.batch.accumulation); }},
    Value{"{tensor}", "T", [](const Case& c) { return str(c.facts.world->mesh.tensor); }},
    Value{"{shards}", "another number", [](const Case& c) { return str(c.facts.world->shards); }},
    Value{"{backend}", "MPI or threads", [](const Case& c) { return c.facts.world->backend; }},
    Value{"{model}", "the model", [](const Case& c) { return c.facts.model; }},
    Value{"{optimizer}", "its name", [](const Case& c) { return *c.facts.optimizer; }},
    Value{"{parameter}", "the embedding", [](const Case& c) { return *c.facts.shared_parameter; }},
};

template <class Fill>
std::string filled(std::string_view text, const Fill& fill) {
  std::string made(text);
  for (const Value& value : kValues) {
    for (size_t at = made.find(value.name); at != std::string::npos; at = made.find(value.name)) {
      made.replace(at, value.name.size(), fill(value));
    }
  }
  return made;
}

// --- keys
constexpr std::string_view kStage = "zero_optimization.stage";
constexpr std::string_view kStates = "zero_optimization.offload_optimizer.device";
constexpr std::string_view kStatesPath = "zero_optimization.offload_optimizer.nvme_path";
constexpr std::string_view kParam = "zero_optimization.offload_param.device";
constexpr std::string_view kParamPath = "zero_optimization.offload_param.nvme_path";
constexpr std::string_view kAccumulation = "gradient_accumulation_steps";
constexpr std::string_view kGraph = "zinc.cuda_graph";
constexpr std::string_view kDeterminism = "zinc.determinism";
constexpr std::string_view kReduceSchedule = "zinc.reduce_schedule";
constexpr std::string_view kReduceAlgorithm = "zinc.reduce_algorithm";
constexpr std::string_view kPassOrder = "zinc.schedule";
constexpr std::string_view kFp8 = "zinc.fp8";
constexpr std::string_view kGradients = "zinc.gradient_offload";
constexpr std::string_view kInputs = "zinc.activation_offload.device";
constexpr std::string_view kInputsPath = "zinc.activation_offload.nvme_path";
constexpr std::string_view kCpuInputs = "activation_checkpointing.cpu_checkpointing";
constexpr std::string_view kPackedInputs =
    "activation_checkpointing.contiguous_memory_optimization";
constexpr std::string_view kSlicedInputs = "activation_checkpointing.partition_activations";
constexpr std::string_view kNumCheckpoints = "activation_checkpointing.number_checkpoints";
constexpr std::string_view kEveryBlocks = "zinc.recompute_every_blocks";
constexpr std::string_view kTokens = "zinc.tensor_sequence_parallel";
constexpr std::string_view kTensor = "zinc.mesh.tensor";
constexpr std::string_view kSequence = "zinc.mesh.sequence";
constexpr std::string_view kPipe = "zinc.mesh.pipe";
constexpr std::string_view kPipeline = "zinc.pipeline_schedule";
constexpr std::string_view kInterleave = "zinc.pipeline_interleave";
constexpr std::string_view kOwnOptimizer = "EngineOptions::optimizer";
constexpr std::string_view kDynamic = "EngineOptions::dynamic_model";

constexpr std::array kRules{
    // --- reduction
    ConfigRule{.name = "boundary on stage 2",
               .keys = {kReduceSchedule, kStage},
               .when = reduces_at_boundary,
               .not_with = shards_gradients,
               .what = "\"reduce_schedule\": \"boundary\" does not go with ZeRO stages 2 and 3",
               .why = "their gradients are sharded, and reduced after every micro-batch",
               .cure = "reduce_schedule must be micro_step, or the stage 0 or 1"},
    ConfigRule{.name = "division without native sums",
               .keys = {"prescale_gradients", "gradient_predivide_factor", kReduceAlgorithm},
               .when = divides_before_sums,
               .needs = reduces_natively,
               .what = "prescale_gradients and gradient_predivide_factor are for "
                       "\"reduce_algorithm\": \"native\" only",
               .why = "ordered sums are made in f32",
               .cure = "leave them out"},
    ConfigRule{.name = "boundary and vertical",
               .keys = {kPassOrder, kReduceSchedule},
               .when = is_vertical,
               .not_with = asks_for_boundary,
               .what = "\"schedule\": \"vertical\" does not go with \"reduce_schedule\": "
                       "\"boundary\"",
               .why = "all micro-batches are one pass, after which it reduces",
               .cure = "reduce_schedule must be micro_step"},

    // --- equal bits for other numbers of ranks
    ConfigRule{.name = "determinism and native sums",
               .keys = {kDeterminism, kReduceAlgorithm},
               .when = spans_worlds,
               .not_with = reduces_natively,
               .what = "\"determinism\": {determinism} needs \"reduce_algorithm\": \"ordered\"",
               .why = "a library's order of sums follows the number of ranks",
               .cure = "leave reduce_algorithm out"},
    ConfigRule{.name = "determinism and grad_accum_dtype",
               .keys = {kDeterminism, "data_types.grad_accum_dtype"},
               .when = spans_worlds,
               .not_with = sums_in_other_dtype,
               .what = "\"determinism\": {determinism} keeps sums in f32",
               .why = "sums that are rounded after each micro-batch depend on who has which",
               .cure = "leave out grad_accum_dtype"},
    ConfigRule{.name = "determinism and boundary",
               .keys = {kDeterminism, kReduceSchedule},
               .when = spans_worlds,
               .not_with = asks_for_boundary,
               .what = "\"determinism\": {determinism} does not go with \"reduce_schedule\": "
                       "\"boundary\"",
               .why = "it reduces after every micro-batch, in one order for all worlds",
               .cure = "reduce_schedule must be micro_step"},
    ConfigRule{.name = "determinism and mean of means",
               .keys = {kDeterminism, "zinc.loss_reduction"},
               .when = spans_worlds,
               .not_with = averages_micro_batches,
               .what = "\"determinism\": {determinism} needs \"loss_reduction\": \"tokens\"",
               .why = "a mean of micro-batches' means is another one with other micro-batches",
               .cure = "leave loss_reduction out"},
    ConfigRule{.name = "determinism mesh and shared tokens",
               .keys = {kDeterminism, kTokens},
               .when = spans_meshes,
               .not_with = shares_tokens,
               .what = "\"determinism\": \"mesh\" does not go with tensor_sequence_parallel",
               .why = "parts of tokens follow the number of ranks",
               .cure = "leave one out"},
    ConfigRule{.name = "determinism mesh and sequence ranks",
               .keys = {kDeterminism, kSequence},
               .when = spans_meshes,
               .not_with = has_sequence_ranks,
               .what = "\"determinism\": \"mesh\" does not go with zinc.mesh.sequence",
               .why = "sums follow its ranks",
               .cure = "take \"world\", or sequence 1"},
    ConfigRule{.name = "determinism mesh and tensor ranks",
               .keys = {kDeterminism, kTensor},
               .when = spans_meshes_in_world,
               .needs = shares_fixed_slices,
               .what = "\"determinism\": \"mesh\" does not go with zinc.mesh.tensor {tensor}",
               .why = "layers are cut into 4 slices, which {tensor} tensor ranks cannot share",
               .cure = "take zinc.mesh.tensor 1, 2 or 4, or \"determinism\": \"world\""},
    ConfigRule{.name = "determinism and odd worlds",
               .keys = {kDeterminism},
               .when = spans_worlds_in_world,
               .needs = has_power_of_two_shards,
               .what = "\"determinism\": {determinism} needs a power of two of data ranks x "
                       "sequence ranks, not {shards}",
               .why = "sums are a binary tree over the micro-batches of all ranks",
               .cure = "start another number of ranks, or leave determinism out"},

    // --- gradients as signs
    ConfigRule{.name = "signs on stage 3",
               .keys = {"optimizer.type", kStage},
               .when = sends_signs,
               .not_with = shards_parameters,
               .what = "an optimizer that sends signs goes with ZeRO stages 0 to 2",
               .why = "every rank keeps the gradients of all elements until the step",
               .cure = "take stage 2, or \"AdamW\""},
    ConfigRule{.name = "signs and determinism",
               .keys = {"optimizer.type", kDeterminism},
               .when = sends_signs,
               .not_with = spans_worlds,
               .what = "an optimizer that sends signs does not go with \"determinism\": "
                       "{determinism}",
               .why = "each rank rounds what it has to signs, and keeps what they leave out",
               .cure = "leave one of them out"},
    ConfigRule{.name = "signs and micro_step",
               .keys = {"optimizer.type", kReduceSchedule},
               .when = sends_signs,
               .not_with = asks_for_micro_steps,
               .what = "an optimizer that sends signs does not go with \"reduce_schedule\": "
                       "\"micro_step\"",
               .why = "signs travel once a step",
               .cure = "leave reduce_schedule out"},
    ConfigRule{.name = "signs and vertical",
               .keys = {"optimizer.type", kPassOrder},
               .when = sends_signs,
               .not_with = is_vertical,
               .what = "an optimizer that sends signs does not go with \"schedule\": "
                       "\"vertical\"",
               .why = "one buffer collects the gradients of all micro-batches, one after the other",
               .cure = "leave one of them out"},
    ConfigRule{.name = "signs and grad_accum_dtype",
               .keys = {"optimizer.type", "data_types.grad_accum_dtype"},
               .when = sends_signs,
               .not_with = sums_in_other_dtype,
               .what = "an optimizer that sends signs keeps sums in f32",
               .why = "signs are made in f32",
               .cure = "leave out grad_accum_dtype"},
    ConfigRule{.name = "signs of f64",
               .keys = {"optimizer.type"},
               .when = sends_signs,
               .not_with = is_f64,
               .what = "an optimizer that sends signs does not go with a model of f64",
               .why = "signs are made in f32",
               .cure = "take \"AdamW\""},
    ConfigRule{.name = "signs and bf16 moments",
               .keys = {"optimizer.type", "zinc.moments"},
               .when = sends_signs,
               .not_with = has_bf16_moments,
               .what = "zinc.moments \"bf16\" does not go with optimizer.type \"OneBitAdam\"",
               .why = "its first moment is what was sent, bit by bit",
               .cure = "leave it out"},
    ConfigRule{.name = "signs and amsgrad",
               .keys = {"optimizer.type", "optimizer.params.amsgrad"},
               .when = sends_signs,
               .not_with = keeps_largest_moment,
               .what = "optimizer.type \"OneBitAdam\" does not go with optimizer.params.amsgrad",
               .why = "it has two moments",
               .cure = "leave amsgrad out"},
    ConfigRule{.name = "signs and own sums",
               .keys = {"optimizer.type", "EngineOptions::gradient_sums"},
               .when = sends_signs,
               .not_with = has_own_sums,
               .what = "an optimizer that sends signs does not go with "
                       "EngineOptions::gradient_sums",
               .why = "both say how gradients are summed over ranks",
               .cure = "leave one of them out"},
    ConfigRule{.name = "signs and tensor ranks",
               .keys = {"optimizer.type", kTensor},
               .when = sends_signs,
               .not_with = has_tensor_ranks,
               .what = "an optimizer that sends signs does not go with zinc.mesh.tensor {tensor}",
               .why = "signs travel between data ranks alone",
               .cure = "set zinc.mesh.tensor to 1, or take \"AdamW\""},
    ConfigRule{.name = "signs and sequence ranks",
               .keys = {"optimizer.type", kSequence},
               .when = sends_signs,
               .not_with = has_sequence_ranks,
               .what = "an optimizer that sends signs does not go with zinc.mesh.sequence",
               .why = "signs travel between data ranks alone",
               .cure = "set zinc.mesh.sequence to 1, or take \"AdamW\""},
    ConfigRule{.name = "signs in a pipeline",
               .keys = {"optimizer.type", kPipe},
               .when = sends_signs,
               .not_with = is_pipeline,
               .what = "an optimizer that sends signs does not go with zinc.mesh.pipe {pipe}",
               .why = "signs travel between data ranks alone",
               .cure = "set zinc.mesh.pipe to 1, or take \"AdamW\""},

    // --- numbers of 8 and 16 bits
    ConfigRule{.name = "fp8 without bf16",
               .keys = {kFp8, "bf16.enabled"},
               .when = has_fp8,
               .needs = is_bf16,
               .what = "zinc.fp8 needs bf16",
               .why = "it rounds to 8 bits from bf16",
               .cure = "give \"bf16\": {\"enabled\": true}"},
    ConfigRule{.name = "fp8 and determinism",
               .keys = {kFp8, kDeterminism},
               .when = has_fp8,
               .not_with = spans_worlds,
               .what = "zinc.fp8 does not go with \"determinism\": {determinism}",
               .why = "it scales what a rank has, and ranks of another world have other parts",
               .cure = "leave one of them out"},
    ConfigRule{.name = "bf16 moments of f64",
               .keys = {"zinc.moments"},
               .when = has_bf16_moments,
               .not_with = is_f64,
               .what = "zinc.moments \"bf16\" does not go with a model of f64",
               .why = "it is for master weights of f32",
               .cure = "leave it out"},
    ConfigRule{.name = "bf16 moments of SGD",
               .keys = {"zinc.moments", "optimizer.type"},
               .when = has_bf16_moments,
               .not_with = is_sgd,
               .what = "zinc.moments \"bf16\" does not go with optimizer.type \"SGD\"",
               .why = "it is for the states of Adam, AdamW, Lion, Adagrad, Muon and LAMB",
               .cure = "leave it out"},
    ConfigRule{.name = "bf16 moments of Adafactor",
               .keys = {"zinc.moments", "optimizer.type"},
               .when = has_bf16_moments,
               .not_with = is_adafactor,
               .what = "zinc.moments \"bf16\" does not go with optimizer.type \"Adafactor\"",
               .why = "it keeps no moments of elements",
               .cure = "leave it out"},
    ConfigRule{.name = "bf16 moments and amsgrad",
               .keys = {"zinc.moments", "optimizer.params.amsgrad"},
               .when = has_bf16_moments,
               .not_with = keeps_largest_moment,
               .what = "zinc.moments \"bf16\" does not go with optimizer.params.amsgrad",
               .why = "an element's random word rounds two states, and AMSGrad has three",
               .cure = "leave one of them out"},

    ConfigRule{.name = "bf16 moments of Adam8bit",
               .keys = {"zinc.moments", "optimizer.type"},
               .when = has_bf16_moments,
               .not_with = keeps_blocks,
               .what = "zinc.moments \"bf16\" does not go with optimizer.type \"Adam8bit\"",
               .why = "its moments have 8 bits",
               .cure = "leave it out"},
    ConfigRule{.name = "bf16 moments of ScheduleFreeAdamW",
               .keys = {"zinc.moments", "optimizer.type"},
               .when = has_bf16_moments,
               .not_with = is_schedule_free,
               .what = "zinc.moments \"bf16\" does not go with optimizer.type "
                       "\"ScheduleFreeAdamW\"",
               .why = "one of its states is a weight, whose small steps bf16 would lose",
               .cure = "leave it out"},
    ConfigRule{.name = "bf16 master weights of another model",
               .keys = {"bf16.bf16_master_weights_and_grads"},
               .when = has_bf16_weights,
               .not_with = [](const Case& c) { return !is_bf16(c); },
               .what = "bf16.bf16_master_weights_and_grads is for a model of bf16",
               .why = "its weights become the only ones",
               .cure = "set bf16.enabled, or leave it out"},
    ConfigRule{
        .name = "bf16 master weights of Adam8bit",
        .keys = {"bf16.bf16_master_weights_and_grads", "optimizer.type"},
        .when = has_bf16_weights,
        .not_with = keeps_blocks,
        .what = "bf16.bf16_master_weights_and_grads does not go with optimizer.type \"Adam8bit\"",
        .why = "moments in blocks have master weights of f32",
        .cure = "leave one of them out"},
    ConfigRule{.name = "bf16 master weights of ScheduleFreeAdamW",
               .keys = {"bf16.bf16_master_weights_and_grads", "optimizer.type"},
               .when = has_bf16_weights,
               .not_with = is_schedule_free,
               .what = "bf16.bf16_master_weights_and_grads does not go with optimizer.type "
                       "\"ScheduleFreeAdamW\"",
               .why = "its average is of weights of f32, beside those of the model",
               .cure = "leave one of them out"},
    ConfigRule{.name = "Adam8bit and amsgrad",
               .keys = {"optimizer.type", "optimizer.params.amsgrad"},
               .when = keeps_blocks,
               .not_with = keeps_largest_moment,
               .what = "optimizer.type \"Adam8bit\" does not go with optimizer.params.amsgrad",
               .why = "it has two moments, and AMSGrad has three",
               .cure = "take \"AdamW\", or leave amsgrad out"},
    ConfigRule{.name = "Adam8bit of f64",
               .keys = {"optimizer.type"},
               .when = keeps_blocks,
               .not_with = is_f64,
               .what = "optimizer.type \"Adam8bit\" does not go with a model of f64",
               .why = "it is for master weights of f32",
               .cure = "take \"AdamW\""},
    ConfigRule{.name = "Adam8bit on every mesh",
               .keys = {"optimizer.type", kDeterminism},
               .when = keeps_blocks,
               .not_with = spans_meshes,
               .what = "optimizer.type \"Adam8bit\" does not go with \"determinism\": \"mesh\"",
               .why = "256 elements share a scale, and a tensor rank has other neighbours",
               .cure = "take \"AdamW\", or \"determinism\": \"world\""},

    // --- tiers
    ConfigRule{.name = "offload_optimizer on stage 0",
               .keys = {kStates, kStage},
               .when = offloads_states,
               .needs = is_sharded,
               .what = "offload_optimizer needs ZeRO stage 1, 2 or 3",
               .why = "on stage 0 there are no shards of states that could be elsewhere",
               .cure = "take stage 1, or leave it out"},
    ConfigRule{.name = "states on NVMe without a path",
               .keys = {kStates, kStatesPath},
               .when = swaps_states,
               .needs = names_a_place_of_states,
               .what = "offload_optimizer to nvme needs nvme_path",
               .why = "the states are in a file on that disk",
               .cure = "give a directory on the disk"},
    ConfigRule{.name = "part of the states on NVMe",
               .keys = {"zero_optimization.offload_optimizer.ratio", kStates},
               .when = splits_states,
               .not_with = swaps_states,
               .what = "offload_optimizer.ratio below 1 needs \"device\": \"cpu\"",
               .why = "with \"nvme\" all states are in swap space",
               .cure = "leave the ratio out"},
    ConfigRule{.name = "update on the device",
               .keys = {"zinc.offload_step", kStates},
               .when = updates_states_on_device,
               .needs = has_states_in_host_memory,
               .what = "\"offload_step\": \"device\" needs offload_optimizer with \"device\": "
                       "\"cpu\", not {offload_optimizer}",
               .why = "it brings tiles of states from host memory; a disk is slower than the CPU's "
                      "update of what it brings",
               .cure = "leave offload_step out"},
    ConfigRule{.name = "offload_param below stage 3",
               .keys = {kParam, kStage},
               .when = offloads_parameters,
               .needs = shards_parameters,
               .what = "offload_param needs ZeRO stage 3",
               .why = "below it every rank has all parameters on its device",
               .cure = "take stage 3, or leave it out"},
    ConfigRule{.name = "parameters on NVMe without a path",
               .keys = {kParam, kParamPath},
               .when = swaps_parameters,
               .needs = names_a_place_of_parameters,
               .what = "offload_param to nvme needs nvme_path",
               .why = "the parameters are in a file on that disk",
               .cure = "give a directory on the disk"},
    // See Note [Gradients on NVMe].
    ConfigRule{
        .name = "gradients on NVMe without states",
        .keys = {kGradients, kStates},
        .when = swaps_gradients,
        .needs = swaps_states,
        .what = "\"gradient_offload\": \"nvme\" needs offload_optimizer with \"device\": "
                "\"nvme\", not {offload_optimizer}",
        .why = "its nvme_path takes the gradients, and the update reads them with the states",
        .cure = "leave gradient_offload out"},
    ConfigRule{.name = "gradients on NVMe and determinism",
               .keys = {kGradients, kDeterminism, kAccumulation},
               .when = swaps_gradients,
               .not_with = keeps_partial_sums,
               .what = "\"gradient_offload\": \"nvme\" does not work with \"determinism\": "
                       "{determinism} and gradient accumulation",
               .why = "they keep several partial sums of every gradient between micro-batches",
               .cure = "add \"schedule\": \"vertical\", or leave gradient_offload out"},
    ConfigRule{.name = "own sums off the device",
               .keys = {"EngineOptions::gradient_sums", kStates},
               .when = has_own_sums,
               .not_with = offloads_states,
               .what = "EngineOptions::gradient_sums does not go with offload_optimizer",
               .why = "a client's sums of gradients stay on the device, where no state is then",
               .cure = "leave one of them out"},
    ConfigRule{.name = "own optimizer untested",
               .keys = {kOwnOptimizer, kStage, "zero_allow_untested_optimizer"},
               .when = shards_own_optimizer,
               .needs = allows_untested,
               .what = "a client's own optimizer ({optimizer}) on ZeRO stages 1 to 3 needs "
                       "\"zero_allow_untested_optimizer\": true",
               .why = "it sees shards, which not every rule can update alone",
               .cure = "set the key, or take stage 0"},
    ConfigRule{.name = "own optimizer off the device",
               .keys = {kOwnOptimizer, kStates, "zero_force_ds_cpu_optimizer"},
               .when = offloads_own_optimizer,
               .not_with = forces_own_cpu_optimizer,
               .what = "a client's own optimizer ({optimizer}) with offload_optimizer needs "
                       "\"zero_force_ds_cpu_optimizer\": false",
               .why = "the host computes its update, which may be slow",
               .cure = "set the key, or leave offload_optimizer out"},

    // --- recomputation
    ConfigRule{.name = "two numbers of checkpoints",
               .keys = {kNumCheckpoints, kEveryBlocks},
               .when = recomputes_by_number,
               .not_with = recomputes_every_blocks,
               .what = "number_checkpoints does not go with recompute_every_blocks",
               .why = "they say the same in two ways",
               .cure = "give one"},
    ConfigRule{.name = "number_checkpoints of a model without blocks",
               .keys = {kNumCheckpoints},
               .when = recomputes_recorded_by_number,
               .needs = model_recomputes,
               .what = "\"number_checkpoints\" asks for recomputation, and {model} recomputes "
                       "nothing",
               .why = {},
               .cure =
                   "derive it from zinc::nn::Staged, with its blocks as stages, and compute its "
                   "loss with zinc::nn::loss_of_stages(); or leave the key out"},
    ConfigRule{.name = "recompute_every_blocks of a model without blocks",
               .keys = {kEveryBlocks},
               .when = recomputes_recorded_every_blocks,
               .needs = model_recomputes,
               .what = "\"recompute_every_blocks\" asks for recomputation, and {model} recomputes "
                       "nothing",
               .why = {},
               .cure =
                   "derive it from zinc::nn::Staged, with its blocks as stages, and compute its "
                   "loss with zinc::nn::loss_of_stages(); or leave the key out"},
    ConfigRule{.name = "inputs on NVMe without a path",
               .keys = {kInputs, kInputsPath},
               .when = swaps_inputs,
               .needs = names_a_place_of_inputs,
               .what = "activation_offload to nvme needs nvme_path",
               .why = "saved inputs are in a file on that disk",
               .cure = "give a directory on the disk"},
    ConfigRule{.name = "inputs in two tiers",
               .keys = {kCpuInputs, kInputs},
               .when = keeps_inputs_in_host_memory,
               .not_with = swaps_inputs,
               .what = "cpu_checkpointing does not go with activation_offload to nvme",
               .why = "the one keeps saved inputs in host memory, the other on the disk",
               .cure = "give one"},
    ConfigRule{.name = "inputs sliced twice",
               .keys = {kTokens, kSlicedInputs},
               .when = shares_tokens,
               .not_with = slices_inputs,
               .what = "partition_activations does not go with tensor_sequence_parallel",
               .why = "it keeps parts of inputs that are the same on all tensor ranks, and here "
                      "each has its own already",
               .cure = "give one"},
    ConfigRule{.name = "vertical without stages",
               .keys = {kPassOrder},
               .when = is_vertical_model,
               .needs = has_stages,
               .what = "\"schedule\": \"vertical\" needs a model that says its stages",
               .why = "{model} does not",
               .cure = "derive it from zinc::nn::Staged too"},

    // --- CUDA graphs: see Note [Recorded passes]
    ConfigRule{.name = "graph and micro_step",
               .keys = {kGraph, kReduceSchedule},
               .when = [](const Case& c) { return records_graph(c) && keeps_gradients_whole(c); },
               .needs = reduces_at_boundary,
               .what = "\"cuda_graph\": true needs \"reduce_schedule\": \"boundary\" on stages 0 "
                       "and 1",
               .why = "the passes that a graph holds reduce nothing there",
               .cure = "leave reduce_schedule out"},
    ConfigRule{.name = "graph and determinism",
               .keys = {kGraph, kDeterminism},
               .when = records_graph,
               .not_with = spans_worlds,
               .what = "\"cuda_graph\": true does not work with \"determinism\": {determinism}",
               .why = "every micro-batch adds to other sums, and a graph to the same",
               .cure = "leave one out"},
    ConfigRule{.name = "graph and vertical",
               .keys = {kGraph, kPassOrder},
               .when = records_graph,
               .not_with = is_vertical,
               .what = "\"cuda_graph\": true does not work with \"schedule\": \"vertical\"",
               .why = "a graph holds the passes of one micro-batch",
               .cure = "leave one out"},
    ConfigRule{.name = "graph and offload_optimizer",
               .keys = {kGraph, kStates},
               .when = records_graph,
               .not_with = offloads_states,
               .what = "\"cuda_graph\": true does not work with offload_optimizer",
               .why = "gradients leave for the host, which a graph cannot wait for",
               .cure = "leave one out"},
    ConfigRule{.name = "graph and offload_param",
               .keys = {kGraph, kParam},
               .when = records_graph,
               .not_with = offloads_parameters,
               .what = "\"cuda_graph\": true does not work with offload_param",
               .why = "weights come from the host, which a graph cannot wait for",
               .cure = "leave one out"},
    ConfigRule{.name = "graph and resident_memory",
               .keys = {kGraph, "zinc.resident_memory"},
               .when = records_graph,
               .not_with = keeps_groups_gathered,
               .what = "\"cuda_graph\": true does not go with zinc.resident_memory",
               .why = "a graph holds the gathers of each micro-batch, and resident_memory keeps "
                      "groups gathered from one to the next",
               .cure = "give one"},
    ConfigRule{.name = "graph and inputs off the device",
               .keys = {kGraph, kCpuInputs, kInputs},
               .when = records_graph,
               .not_with = inputs_leave_device,
               .what = "\"cuda_graph\": true does not work with cpu_checkpointing or "
                       "activation_offload",
               .why = "inputs would leave for the host",
               .cure = "leave one out"},
    ConfigRule{.name = "graph and packed inputs",
               .keys = {kGraph, kPackedInputs},
               .when = records_graph,
               .not_with = packs_inputs,
               .what = "\"cuda_graph\": true does not work with contiguous_memory_optimization",
               .why = "the memory of passes is kept already",
               .cure = "leave one out"},
    ConfigRule{.name = "graph and phases",
               .keys = {kGraph, "wall_clock_breakdown"},
               .when = records_graph,
               .not_with = measures_phases,
               .what = "\"cuda_graph\": true does not work with wall_clock_breakdown",
               .why = "a launch has no phases",
               .cure = "leave one out"},
    ConfigRule{.name = "graph of a dynamic model",
               .keys = {kGraph, kDynamic},
               .when = records_graph,
               .not_with = is_dynamic,
               .what = "\"cuda_graph\": true does not work with a dynamic model",
               .why = "its code would not run again",
               .cure = "leave one out"},
    ConfigRule{.name = "graph and tensor ranks",
               .keys = {kGraph, kTensor},
               .when = records_graph,
               .not_with = has_tensor_ranks,
               .what = "\"cuda_graph\": true does not go with zinc.mesh.tensor yet",
               .why = "ranks exchange activations inside a pass",
               .cure = "leave one out"},
    ConfigRule{.name = "graph and sequence ranks",
               .keys = {kGraph, kSequence},
               .when = records_graph,
               .not_with = has_sequence_ranks,
               .what = "\"cuda_graph\": true does not go with zinc.mesh.sequence yet",
               .why = "ranks exchange activations inside a pass",
               .cure = "leave one out"},
    ConfigRule{.name = "graph and pipeline",
               .keys = {kGraph, kPipe},
               .when = records_graph,
               .not_with = is_pipeline,
               .what = "\"cuda_graph\": true does not go with zinc.mesh.pipe yet",
               .why = "passes wait for what other ranks send",
               .cure = "leave one out"},
    ConfigRule{.name = "graph without a GPU",
               .keys = {kGraph},
               .when = records_graph_in_world,
               .needs = is_on_gpu,
               .what = "\"cuda_graph\": true needs a GPU",
               .why = "graphs are CUDA's",
               .cure = "leave it out, or take --device cuda"},
    ConfigRule{.name = "graph on stage 3 without NCCL",
               .keys = {kGraph, kStage},
               .when = gathers_in_graph,
               .needs = gathers_in_streams,
               .what = "\"cuda_graph\": true on stage 3 needs NCCL, and a GPU for every rank",
               .why =
                   "ranks gather inside a pass, and collectives of {backend} go through the host, "
                   "which no graph can hold",
               .cure = "take NCCL, or stage 0, 1 or 2"},

    // --- pipelines
    ConfigRule{.name = "pipeline on stage 3",
               .keys = {kPipe, kStage},
               .when = is_pipeline,
               .not_with = shards_parameters,
               .what = "zinc.mesh.pipe {pipe} goes with ZeRO stages 0 to 2",
               .why = "on stage 3 every micro-batch would gather what a rank of the pipeline has",
               .cure = "take stage 1 or 2"},
    ConfigRule{.name = "pipeline and vertical",
               .keys = {kPipe, kPassOrder},
               .when = is_pipeline,
               .not_with = is_vertical,
               .what = "zinc.mesh.pipe {pipe} does not go with \"schedule\": \"vertical\"",
               .why = "it has an order of its own",
               .cure = "leave \"schedule\": \"vertical\" out"},
    ConfigRule{.name = "pipeline and moved inputs",
               .keys = {kPipe, kCpuInputs, kInputs},
               .when = is_pipeline,
               .not_with = moves_inputs,
               .what = "zinc.mesh.pipe {pipe} does not go with cpu_checkpointing, "
                       "activation_offload or contiguous_memory_optimization yet",
               .why = "saved inputs stay where they are",
               .cure = "leave them out"},
    ConfigRule{.name = "pipeline of a dynamic model",
               .keys = {kDynamic, kPipe},
               .when = is_pipeline,
               .not_with = is_dynamic,
               .what = "EngineOptions::dynamic_model does not go with zinc.mesh.pipe",
               .why = "a rank has to know what comes from the one before it",
               .cure = "take pipe 1"},
    ConfigRule{.name = "pipeline with shared parameters off the device",
               .keys = {kStates, kPipe},
               .when = is_pipeline,
               .not_with = offloads_shared_parameters,
               .what = "offload_optimizer does not go with zinc.mesh.pipe yet where ranks of the "
                       "pipeline have a parameter together, as {parameter}",
               .why = "they add up its gradients on the device",
               .cure = "leave one out, or untie the embeddings"},
    ConfigRule{
        .name = "interleaving without a pipeline",
        .keys = {kInterleave, kPipe},
        .when = is_interleaved,
        .needs = is_pipeline,
        .what = "zinc.pipeline_interleave {interleave} is for ranks of a pipeline, and there are "
                "none",
        .why = "one rank has all parts of the model",
        .cure = "set zinc.mesh.pipe, or leave it out"},
    ConfigRule{.name = "interleaving and other schedules",
               .keys = {kInterleave, kPipeline},
               .when = is_interleaved_pipeline,
               .needs = takes_turns,
               .what = "zinc.pipeline_interleave {interleave} goes with zinc.pipeline_schedule "
                       "\"1f1b\" alone, not with {pipeline_schedule}",
               .why = "only that order is known for parts in turn",
               .cure = "leave one out"},
    ConfigRule{.name = "interleaving and odd accumulation",
               .keys = {kInterleave, kAccumulation, kPipe},
               .when = is_interleaved_pipeline,
               .needs = has_rounds_of_micro_batches,
               .what =
                   "zinc.pipeline_interleave {interleave} needs gradient_accumulation_steps that "
                   "are a multiple of the {pipe} ranks of the pipeline, not {accumulation}",
               .why = "micro-batches go round in groups of as many as there are ranks",
               .cure = "take such a number, or leave pipeline_interleave out"},
    ConfigRule{.name = "zero bubble and recomputation",
               .keys = {kPipeline, kEveryBlocks, kNumCheckpoints},
               .when = is_zero_bubble,
               .not_with = recomputes,
               .what = "zinc.pipeline_schedule \"zb-h1\" does not go with recomputation",
               .why = "it keeps what recomputation gives up, for the gradients of weights",
               .cure = "leave one out"},
    ConfigRule{
        .name = "gradients on NVMe and interleaving",
        .keys = {kGradients, kInterleave},
        .when = swaps_gradients,
        .not_with = is_interleaved_pipeline,
        .what = "\"gradient_offload\": \"nvme\" does not go with zinc.pipeline_interleave yet",
        .why = "sums are read ahead in the order of one micro-batch's reductions, and parts take "
               "turns",
        .cure = "leave one out"},
    ConfigRule{.name = "gradients on NVMe and zero bubble",
               .keys = {kGradients, kPipeline},
               .when = swaps_gradients,
               .not_with = is_zero_bubble,
               .what = "\"gradient_offload\": \"nvme\" does not go with zinc.pipeline_schedule "
                       "\"zb-h1\" yet",
               .why = "sums are read ahead in the order of one micro-batch's reductions, and here "
                      "those of weights come apart",
               .cure = "leave one out"},
};

std::string lines_of(const ConfigCase& tried) {
  std::string text;
  for (const ConfigRule* rule : broken_rules(tried)) {
    text += (text.empty() ? "" : "\n") + rule->message(tried);
  }
  return text;
}

}  // namespace

bool ConfigRule::is_broken_by(const ConfigCase& tried) const {
  if (!when(tried)) return false;
  return not_with != nullptr ? not_with(tried) : !needs(tried);
}

std::string ConfigRule::message(const ConfigCase& tried) const {
  const auto fill = [&](std::string_view text) {
    return filled(text, [&](const Value& value) { return value.of(tried); });
  };
  if (why.empty()) return str(fill(what), ": ", fill(cure));
  return str(fill(what), ": ", fill(why), "; ", fill(cure));
}

std::span<const ConfigRule> config_rules() { return kRules; }

std::vector<const ConfigRule*> broken_rules(const ConfigCase& tried) {
  std::vector<const ConfigRule*> broken;
  for (const ConfigRule& rule : kRules) {
    if (rule.is_broken_by(tried)) broken.push_back(&rule);
  }
  return broken;
}

std::string text_on_page(std::string_view text) {
  return filled(text, [](const Value& value) { return std::string(value.on_page); });
}

void validate(const EngineConfig& config, const ConfigFacts& facts) {
  std::string problems;
  for (const std::string& problem : value_problems(config)) {
    problems += (problems.empty() ? "" : "\n") + problem;
  }
  const std::string broken = lines_of({config, facts});
  if (!broken.empty()) problems += (problems.empty() ? "" : "\n") + broken;
  if (!problems.empty()) throw ConfigError(problems);
}

void validate(const EngineConfig& config) { validate(config, {}); }

void require_rules(const EngineConfig& config, const ConfigFacts& facts) {
  const std::string broken = lines_of({config, facts});
  if (!broken.empty()) throw ConfigError(broken);
}

}  // namespace zinc::zero
