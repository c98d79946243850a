#include "zero/passes/step_program.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/philox.h"
#include "zero/program/check.h"

namespace zinc::zero {

std::vector<Pass> choose_passes(const StepPolicy& policy) {
  std::vector<Pass> passes{reduce_gradients(), update_weights()};
  if (policy.pipeline.size > 1) passes.push_back(pipeline());
  if (policy.update == UpdateTime::during_backward) passes.push_back(update_early());
  if (policy.update == UpdateTime::beside_forward) passes.push_back(update_late());
  if (!policy.shards_parameters) return passes;
  passes.push_back(gather_and_release());
  if (policy.resident_bytes > 0) passes.push_back(keep_through_step());
  passes.push_back(keep_resident());
  if (policy.gathers_ahead) passes.push_back(prefetch());
  if (policy.swaps_parameters) passes.push_back(read_parameters());
  return passes;
}

namespace {

std::vector<Pass> own_passes(const StepPolicy& policy, const std::vector<std::string>& without) {
  std::vector<Pass> passes = choose_passes(policy);
  for (const std::string& name : without) {
    const auto found =
        std::ranges::find_if(passes, [&](const Pass& pass) { return pass.name == name; });
    std::string names;
    for (const Pass& pass : passes) names += str(" ", pass.name);
    require(found != passes.end(), "no pass of this configuration is called '", name,
            "'; they are:", names);
    passes.erase(found);
  }
  return passes;
}

// The pass, and the proof of what it leaves.
Pass proven(const Pass& pass, const Program& recorded) {
  require(pass.rewrite != nullptr, "pass '", pass.name, "' has no rewrite");
  Pass checked = pass;
  checked.rewrite = [&pass, &recorded](Program& program, const PassInputs& inputs) {
    pass.rewrite(program, inputs);
    try {
      check(program, recorded, inputs);
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(str("pass '", pass.name, "': ", error.what()));
    }
  };
  return checked;
}

}  // namespace

StepProgram make_step_program(nn::Model& model, const ShardGroups& groups, const StepPolicy& policy,
                              const ExampleBatch& example, int64_t together,
                              const ClientPasses& client, parallel::PipelineCut* cut) {
  StepProgram made{.groups = &groups,
                   .record = record_step(model, groups, example, together, cut,
                                         policy.pipeline.splits_backward()),
                   .policy = policy};
  const Program recorded = program_of(made.record, together > 1);
  const PassInputs inputs{.groups = groups,
                          .policy = made.policy,
                          .reduce_order = made.record.reduce_order,
                          .use_order = made.record.use_order,
                          .turns = made.record.turns};
  made.program = recorded;
  std::set<std::string> given;
  made.effects = run_passes(made.program, own_passes(policy, client.without), inputs, given);
  check(made.program, recorded, inputs);
  std::vector<Pass> passes;
  for (const Pass& pass : client.passes) passes.push_back(proven(pass, recorded));
  for (PassEffect& effect : run_passes(made.program, passes, inputs, given)) {
    made.effects.push_back(std::move(effect));
  }
  made.hash = combine_bits(hash_of(groups), made.program.hash());
  return made;
}

}  // namespace zinc::zero
