#include "zero/rewrites/step_program.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/philox.h"
#include "zero/program/check.h"

namespace zinc::zero {

std::vector<Rewrite> choose_rewrites(const StepPolicy& policy) {
  std::vector<Rewrite> rewrites;
  if (policy.trains()) rewrites = {reduce_gradients(), update_weights()};
  if (policy.sees_whole) rewrites.push_back(transform_whole());
  if (policy.pipeline.size > 1) rewrites.push_back(pipeline());
  if (policy.update == UpdateTime::during_backward) rewrites.push_back(update_early());
  if (policy.update == UpdateTime::beside_forward) rewrites.push_back(update_late());
  if (!policy.shards_parameters) return rewrites;
  rewrites.push_back(gather_and_release());
  if (policy.resident_bytes > 0) rewrites.push_back(keep_through_step());
  rewrites.push_back(keep_resident());
  if (policy.gathers_ahead) rewrites.push_back(prefetch());
  if (policy.swaps_parameters) rewrites.push_back(read_parameters());
  return rewrites;
}

namespace {

std::vector<Rewrite> own_rewrites(const StepPolicy& policy,
                                  const std::vector<std::string>& without) {
  std::vector<Rewrite> rewrites = choose_rewrites(policy);
  for (const std::string& name : without) {
    const auto found = std::ranges::find_if(
        rewrites, [&](const Rewrite& rewrite) { return rewrite.name == name; });
    std::string names;
    for (const Rewrite& rewrite : rewrites) names += str(" ", rewrite.name);
    require(found != rewrites.end(), "no rewrite of this configuration is called '", name,
            "'; they are:", names);
    rewrites.erase(found);
  }
  return rewrites;
}

// The rewrite, followed by the check of its result.
Rewrite proven(const Rewrite& rewrite, const Program& recorded) {
  require(rewrite.apply != nullptr, "rewrite '", rewrite.name, "' has no rewrite");
  Rewrite checked = rewrite;
  checked.apply = [&rewrite, &recorded](Program& program, const RewriteInputs& inputs) {
    rewrite.apply(program, inputs);
    try {
      check(program, recorded, inputs);
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(str("rewrite '", rewrite.name, "': ", error.what()));
    }
  };
  return checked;
}

}  // namespace

StepProgram make_step_program(nn::Model& model, const ShardGroups& groups, const StepPolicy& policy,
                              const ExampleBatch& example, int64_t together,
                              const ClientRewrites& client, parallel::PipelineCut* cut) {
  StepProgram made{.groups = &groups,
                   .record = policy.trains() ? record_step(model, groups, example, together, cut,
                                                           policy.pipeline.splits_backward())
                                             : record_evaluation(model, groups, example, cut),
                   .policy = policy};
  const Program recorded = program_of(made.record, together > 1);
  const RewriteInputs inputs{.groups = groups,
                             .policy = made.policy,
                             .reduce_order = made.record.reduce_order,
                             .use_order = made.record.use_order,
                             .turns = made.record.turns};
  made.program = recorded;
  std::set<ProgramOps> given;
  made.effects = run_rewrites(made.program, own_rewrites(policy, client.without), inputs, given);
  check(made.program, recorded, inputs);
  std::vector<Rewrite> rewrites;
  for (const Rewrite& rewrite : client.rewrites) rewrites.push_back(proven(rewrite, recorded));
  for (RewriteEffect& effect : run_rewrites(made.program, rewrites, inputs, given)) {
    made.effects.push_back(std::move(effect));
  }
  made.hash = combine_bits(hash_of(groups), made.program.hash());
  return made;
}

}  // namespace zinc::zero
