// A rewrite of one's own over the step program: groups are gathered by their number, not by bytes.
//
//   build/release/example_prefetch_rewrite
//
// Two ranks, threads of this process, train a small GPT-2 on ZeRO stage 3: once with the engine's
// prefetch rewrite, and once with gather_groups_ahead() in its place. The losses are equal to the
// last bit, because a rewrite moves work and changes no arithmetic. docs/step-programs.md goes
// through it.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "zinc.h"

namespace {

// Moves each gather up: right behind the use for which the group `distance` gathers before it was
// gathered. So at most `distance` groups are on their way beside compute.
void gather_ahead(const std::vector<zinc::Place*>& timeline, size_t distance, size_t num_groups) {
  std::vector<size_t> due;                         // places of the uses that gathers are for
  zinc::ByGroup<size_t> free_from(num_groups, 0);  // from here on it may be gathered
  for (size_t at = 0; at < timeline.size(); ++at) {
    const std::vector<zinc::Op> ahead = timeline[at]->before;
    for (const zinc::Op& op : ahead) {
      if (op.kind == zinc::OpKind::publish) free_from[op.group] = at;
      if (op.kind != zinc::OpKind::gather) continue;
      size_t place = due.size() < distance ? 0 : due[due.size() - distance];
      place = std::max(place, free_from[op.group]);
      while (place > 0 && timeline[place]->event.kind != zinc::EventKind::use) ++place;
      due.push_back(at);
      if (place >= at) continue;  // it stays where it is
      std::erase(timeline[at]->before, op);
      timeline[place]->after.push_back(op);
    }
    for (const zinc::Op& op : timeline[at]->after) {
      const bool frees = op.kind == zinc::OpKind::release || op.kind == zinc::OpKind::publish;
      if (frees) free_from[op.group] = at;
    }
  }
}

zinc::Rewrite gather_groups_ahead(size_t distance) {
  return {.name = "gather_groups_ahead",
          .needs = {zinc::ProgramOps::gathers},
          .apply = [distance](zinc::Program& program, const zinc::RewriteInputs& inputs) {
            std::vector<zinc::Place*> evaluation;
            for (zinc::Place& place : program.evaluation) evaluation.push_back(&place);
            gather_ahead(evaluation, distance, inputs.groups.size());
            for (auto& [kind, body] : program.bodies) {
              gather_ahead(body.timeline(), distance, inputs.groups.size());
            }
          }};
}

struct Run {
  std::vector<double> losses;
  zinc::Program program;
};

zinc::Batch random_batch(int64_t seed, int64_t vocabulary) {
  constexpr int64_t kSequences = 2, kPositions = 32;
  std::vector<int32_t> ids;
  for (int64_t i = 0; i <= kSequences * kPositions; ++i) {
    seed = (seed * 48271 + 11) % 2147483647;
    ids.push_back(static_cast<int32_t>(seed % vocabulary));
  }
  const std::vector<int32_t> inputs(ids.begin(), ids.end() - 1);
  const std::vector<int32_t> labels(ids.begin() + 1, ids.end());
  const zinc::Shape shape{kSequences, kPositions};
  return {.tensors = {{"input_ids", zinc::Tensor::from<int32_t>(inputs, shape)},
                      {"labels", zinc::Tensor::from<int32_t>(labels, shape)}},
          .num_targets = kSequences * kPositions,
          .num_tokens = kSequences * kPositions};
}

Run train(std::vector<zinc::Rewrite> rewrites, std::vector<std::string> without_rewrites) {
  zinc::Config config;
  config.engine.batch.micro_batch = 2;
  config.engine.zero.stage = 3;
  config.engine.zero.param_persistence_threshold = 0;  // all parameters are sharded
  config.engine.zero.max_reuse_distance = 0;           // and given back after each use
  Run run;
  zinc::run_local_ranks(2, {.seed = 7, .num_threads = 1}, [&](zinc::World& world) {
    zinc::nn::Gpt2 model({.vocab_size = 256,
                          .max_positions = 32,
                          .hidden_size = 64,
                          .num_layers = 6,
                          .num_heads = 4});
    zinc::EngineOptions options;
    options.rewrites = rewrites;
    options.without_rewrites = without_rewrites;
    zinc::Engine engine = zinc::initialize(model, config, world, std::move(options));
    std::vector<double> losses;
    for (int64_t step = 0; step < 5; ++step) {
      const int64_t seed = 1 + 2 * step + world.rank();
      engine.backward(engine.forward(random_batch(seed, model.vocab_size())));
      losses.push_back(engine.step().loss);
    }
    if (world.is_main()) run = {losses, engine.step_program().program};
  });
  return run;
}

// Places of a micro-batch that is alone in its step whose ops are not the same.
std::pair<size_t, size_t> changed_places(const zinc::Program& a, const zinc::Program& b) {
  const auto in_a = a.bodies.at({}).timeline(), in_b = b.bodies.at({}).timeline();
  size_t changed = 0;
  for (size_t i = 0; i < in_a.size(); ++i) {
    changed += in_a[i]->before != in_b[i]->before || in_a[i]->after != in_b[i]->after ? 1 : 0;
  }
  return {changed, in_a.size()};
}

bool compare() {
  const Run by_bytes = train({}, {});
  const Run by_groups = train({gather_groups_ahead(1)}, {"prefetch"});
  std::printf("step   prefetch   gather_groups_ahead\n");
  for (size_t i = 0; i < by_bytes.losses.size(); ++i) {
    std::printf("%4zu   %.6f   %.6f\n", i + 1, by_bytes.losses[i], by_groups.losses[i]);
  }
  const auto [changed, all] = changed_places(by_bytes.program, by_groups.program);
  const bool equal = by_bytes.losses == by_groups.losses;
  std::printf("%zu of %zu places differ; the losses are %s\n", changed, all,
              equal ? "equal to the last bit" : "different");
  return equal && changed > 0;
}

}  // namespace

int main() {
  try {
    return compare() ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
