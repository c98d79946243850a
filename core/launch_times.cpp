#include "core/launch_times.h"

#include <fmt/format.h>

#include <algorithm>

namespace zinc {

LaunchTimes* LaunchTimes::current() {
  Context* context = Context::current_or_null();
  if (context == nullptr || context->device().kind != DeviceKind::cuda) return nullptr;
  auto& times = context->slot<LaunchTimes>();
  return times.on_ ? &times : nullptr;
}

void LaunchTimes::start(StreamRef stream) {
  if (idle_.empty()) {
    running_ = make_cuda_timer(Context::current().device());
  } else {
    running_ = std::move(idle_.back());
    idle_.pop_back();
  }
  running_->start(stream);
}

void LaunchTimes::stop(std::string name, StreamRef stream) {
  running_->stop(stream);
  launched_.emplace_back(std::move(name), std::move(running_));
}

std::vector<KernelTime> LaunchTimes::take() {
  std::map<std::string, KernelTime> by_name;
  for (auto& [name, timer] : launched_) {
    KernelTime& time = by_name[name];
    time.name = name;
    ++time.launches;
    time.seconds += timer->seconds();
    idle_.push_back(std::move(timer));
  }
  launched_.clear();
  std::vector<KernelTime> times;
  for (auto& [name, time] : by_name) times.push_back(std::move(time));
  std::ranges::sort(times,
                    [](const KernelTime& a, const KernelTime& b) { return a.seconds > b.seconds; });
  return times;
}

std::string csv_of(const std::vector<KernelTime>& times) {
  std::string text = "Total Time (ns),Instances,Name\n";
  for (const KernelTime& time : times) {
    text += fmt::format("{:.0f},{},\"{}\"\n", 1e9 * time.seconds, time.launches, time.name);
  }
  return text;
}

}  // namespace zinc
