#include "autograd/recorded_draws.h"

#include <algorithm>

#include "autograd/mode.h"
#include "core/context.h"
#include "core/error.h"
#include "core/transfer.h"

namespace zinc::autograd {
namespace {

using Calls = std::vector<std::pair<uint64_t, uint64_t>>;

Calls calls_of(const RandomState& state) {
  const RandomState::Snapshot snapshot = state.snapshot();
  Calls calls(snapshot.calls.begin(), snapshot.calls.end());
  std::sort(calls.begin(), calls.end());
  return calls;
}

}  // namespace

RecordedDraws::RecordedDraws(const RandomState& state) : calls_(calls_of(state)) {
  int64_t count = 0;
  for (const auto& [site, calls] : calls_) count += static_cast<int64_t>(calls);
  counters_ = Tensor::empty({count}, DType::i64);
}

bool RecordedDraws::are_those_of(const RandomState& state) const {
  return calls_of(state) == calls_;
}

void RecordedDraws::set_position(const RandomState& state) {
  RandomState same(state.seed());
  same.set_position(state.step(), state.micro_batch());
  std::vector<uint64_t> counters;
  places_.clear();
  placed_.clear();
  for (const auto& [site, calls] : calls_) {
    for (uint64_t call = 0; call < calls; ++call) {
      const uint64_t counter = same.next(Purpose::dropout, site).counter_high;
      places_.emplace(counter, static_cast<int64_t>(counters.size()));
      counters.push_back(counter);
    }
  }
  upload(counters.data(), counters_.view(), Context::current().compute());
}

ConstView RecordedDraws::counter_of(const RandomKey& key) {
  const auto place = places_.find(key.counter_high);
  bug_check(place != places_.end(), "recorded draws: a key that is not of this position");
  placed_.insert(key.counter_high);
  return counters_.view().narrow(0, place->second, 1);
}

Draw draw(uint64_t site) {
  Draw drawn{.key = Context::current().random().next(Purpose::dropout, site)};
  if (RecordedDraws* recorded = Mode::current().draws)
    drawn.counter = recorded->counter_of(drawn.key);
  return drawn;
}

}  // namespace zinc::autograd
