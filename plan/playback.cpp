#include "plan/playback.h"

#include <algorithm>
#include <array>
#include <deque>
#include <limits>
#include <optional>

#include "core/context.h"
#include "core/error.h"

namespace zinc::plan {
namespace {

constexpr int kCompute = static_cast<int>(StreamRole::compute);
constexpr int kNumStreams = kNumStreamRoles + 1;  // with a GPU's host

class Player {
 public:
  Player(const WorkLog& log, const RankSpeed& speed, bool free_offload,
         std::vector<PlayedSpan>* spans)
      : log_(log), speed_(speed), free_offload_(free_offload), spans_(spans) {}

  std::vector<PlayedMoment> run() {
    while (true) {
      while (settle()) {
      }
      if (!advance()) break;
    }
    bug_check(next_ == log_.entries().size(), "the run that is played through waits for ever, at ",
              "entry ", next_, " of ", log_.entries().size());
    return std::move(moments_);
  }

 private:
  enum class ItemKind : uint8_t { work, wait, mark };
  struct Item {
    ItemKind kind = ItemKind::work;
    int source = 0;      // for a wait
    int64_t count = 0;   // likewise; of a mark: which
    bool kernel = true;  // for work: no collective, no copy from or to host memory
    double left = 0.0;   // seconds, alone on the machine
    std::string_view label{};
    size_t marks = 0;               // as in PlayedSpan
    std::optional<double> since{};  // when it became the head
  };
  struct Queue {
    std::deque<Item> items;
    int64_t done = 0;
  };

  Queue& queue(int stream) { return queues_[static_cast<size_t>(stream)]; }
  bool has_done(int stream, int64_t count) { return queue(stream).done >= count; }

  // Everything that takes no time; false where there was nothing.
  bool settle() {
    bool moved = false;
    for (Queue& stream : queues_) {
      while (!stream.items.empty()) {
        Item& head = stream.items.front();
        if (!head.since) head.since = now_;
        if (head.kind == ItemKind::wait ? !has_done(head.source, head.count) : head.left > 0.0) {
          break;
        }
        if (head.kind == ItemKind::mark) {
          moments_[static_cast<size_t>(head.count)].reached = now_;
        } else {
          note(static_cast<int>(&stream - queues_.data()), head);
          ++stream.done;
        }
        stream.items.pop_front();
        moved = true;
      }
    }
    const auto& entries = log_.entries();
    while (next_ < entries.size() && has_done(host_source_, host_count_)) {
      if (host_waits_since_) {
        note(kIssuingThread, {.kind = ItemKind::wait,
                              .source = host_source_,
                              .marks = moments_.size(),
                              .since = *host_waits_since_});
        host_waits_since_.reset();
      }
      issue(entries[next_++]);
      moved = true;
    }
    return moved;
  }

  void issue(const WorkLog::Entry& entry) {
    switch (entry.action) {
      case WorkLog::Action::mark:
        totals_.label = entry.label;
        totals_.seconds = now_;
        queue(kCompute).items.push_back(
            {.kind = ItemKind::mark, .count = static_cast<int64_t>(moments_.size())});
        moments_.push_back(totals_);
        return;
      case WorkLog::Action::host_wait:
        host_waits_since_ = now_;
        return block_host(entry.source, entry.count);
      case WorkLog::Action::wait:
        queue(entry.stream)
            .items.push_back({.kind = ItemKind::wait,
                              .source = entry.source,
                              .count = entry.count,
                              .marks = moments_.size()});
        break;
      case WorkLog::Action::work:
        queue(entry.stream).items.push_back(work(entry));
        break;
    }
    ++issued_[static_cast<size_t>(entry.stream)];
    // An inline stream: the call returns when the work is done.
    if (entry.stream == kCompute && speed_.host_computes()) {
      block_host(kCompute, issued_[kCompute]);
    }
  }

  Item work(const WorkLog::Entry& entry) {
    const int threads = entry.stream == kCompute ? speed_.threads() : 1;
    const bool offload = speed_.is_offload(entry.cost);
    const double seconds =
        offload && free_offload_ ? 0.0 : speed_.seconds(entry.label, entry.cost, threads);
    const bool kernel = entry.cost.kind != WorkKind::collective && !offload;
    if (entry.cost.kind == WorkKind::collective) totals_.communication += seconds;
    if (offload) offload_of(entry.cost.place) += seconds;
    if (kernel && entry.stream == kCompute) totals_.compute += seconds;
    totals_.flops += entry.cost.flops;
    return {.kernel = kernel, .left = seconds, .label = entry.label, .marks = moments_.size()};
  }

  double& offload_of(WorkPlace place) {
    OffloadTime& offload = totals_.offload;
    if (place == WorkPlace::host) return offload.on_host;
    return place == WorkPlace::to_device ? offload.to_device : offload.to_host;
  }

  void block_host(int source, int64_t count) {
    host_source_ = source;
    host_count_ = count;
  }

  bool is_busy(int stream) {
    const Queue& of = queue(stream);
    return !of.items.empty() && of.items.front().kind == ItemKind::work;
  }

  void note(int stream, const Item& item) {
    if (spans_ == nullptr || *item.since == now_) return;
    spans_->push_back({.stream = stream,
                       .label = item.label,
                       .source = item.source,
                       .begin = *item.since,
                       .end = now_,
                       .marks = item.marks});
  }

  // Goes on to the next end of a piece of work; false if none is under way.
  bool advance() {
    double busy_threads = 0.0;
    double shortest = std::numeric_limits<double>::infinity();
    for (int s = 0; s < kNumStreams; ++s) {
      if (!is_busy(s)) continue;
      const Item& head = queue(s).items.front();
      busy_threads += s == kCompute && head.kernel ? speed_.threads() : 1;
      shortest = std::min(shortest, head.left);
    }
    if (busy_threads == 0.0) return false;
    const double cores = speed_.cores();
    const double rate = cores == 0.0 ? 1.0 : std::min(1.0, cores / busy_threads);
    for (int s = 0; s < kNumStreams; ++s) {
      if (!is_busy(s)) continue;
      Item& head = queue(s).items.front();
      head.left = head.left <= shortest ? 0.0 : head.left - shortest;
    }
    now_ += shortest / rate;
    return true;
  }

  const WorkLog& log_;
  const RankSpeed& speed_;
  const bool free_offload_;
  std::vector<PlayedSpan>* const spans_;
  std::array<Queue, kNumStreams> queues_{};
  std::array<int64_t, kNumStreams> issued_{};
  size_t next_ = 0;
  int host_source_ = 0;
  int64_t host_count_ = 0;
  std::optional<double> host_waits_since_;
  double now_ = 0.0;
  PlayedMoment totals_;
  std::vector<PlayedMoment> moments_;
};

// Work and waits by stream.
using Issued = std::array<int64_t, kNumStreams>;

// The numbers of works and waits among the entries [begin, end), by stream.
Issued issued_in(const std::vector<WorkLog::Entry>& entries, size_t begin, size_t end) {
  Issued issued{};
  for (size_t i = begin; i < end; ++i) {
    const WorkLog::Action action = entries[i].action;
    if (action == WorkLog::Action::work || action == WorkLog::Action::wait) {
      ++issued[static_cast<size_t>(entries[i].stream)];
    }
  }
  return issued;
}

bool is_same_cost(const WorkCost& a, const WorkCost& b) {
  return a.kind == b.kind && a.place == b.place && a.dtype == b.dtype &&
         a.bytes_read == b.bytes_read && a.bytes_written == b.bytes_written && a.flops == b.flops &&
         a.ranks == b.ranks && a.near_ranks == b.near_ranks;
}

}  // namespace

std::optional<WorkLog> without_repeat(const WorkLog& log, size_t first, size_t second, size_t end) {
  const std::vector<WorkLog::Entry>& entries = log.entries();
  if (first == second) return std::nullopt;
  const Issued before = issued_in(entries, 0, second);
  const Issued period = issued_in(entries, second, end);
  // A stream's wait may refer to an earlier or later entry, if memory came from elsewhere. The log
  // has no wait if the stream has waited for a later entry already.
  const auto skip_waits = [&](size_t i, size_t until) {
    while (i < until && entries[i].action == WorkLog::Action::wait) ++i;
    return i;
  };
  size_t i = skip_waits(first, second);
  for (size_t j = skip_waits(second, end); j < end; j = skip_waits(j + 1, end)) {
    if (i == second) return std::nullopt;
    const WorkLog::Entry& one = entries[i];
    const WorkLog::Entry& like = entries[j];
    if (one.action != like.action || one.stream != like.stream || one.source != like.source ||
        one.label != like.label || !is_same_cost(one.cost, like.cost)) {
      return std::nullopt;
    }
    i = skip_waits(i + 1, second);
  }
  if (i != second) return std::nullopt;
  WorkLog kept;
  for (size_t k = 0; k < entries.size(); ++k) {
    if (k == second) k = end;
    if (k == entries.size()) break;
    const WorkLog::Entry& entry = entries[k];
    const auto source = static_cast<size_t>(entry.source);
    const int64_t gone = entry.count > before[source] ? period[source] : 0;
    switch (entry.action) {
      case WorkLog::Action::work:
        kept.work(entry.stream, entry.label, entry.cost);
        break;
      case WorkLog::Action::wait:
        kept.wait(entry.stream, entry.source, entry.count - gone);
        break;
      case WorkLog::Action::host_wait:
        kept.host_wait(entry.source, entry.count - gone);
        break;
      case WorkLog::Action::mark:
        kept.mark(entry.label);
        break;
    }
  }
  return kept;
}

std::string_view name_of_stream(int stream) {
  if (stream == kIssuingThread) return "issuing thread";
  return stream == kHostStream ? "host" : name_of(static_cast<StreamRole>(stream));
}

std::vector<PlayedMoment> play(const WorkLog& log, const RankSpeed& speed, bool free_offload,
                               std::vector<PlayedSpan>* spans) {
  return Player(log, speed, free_offload, spans).run();
}

StepTime between(const PlayedMoment& begin, const PlayedMoment& end) {
  return {.step_seconds = end.seconds - begin.seconds,
          .compute_seconds = end.compute - begin.compute,
          .communication_seconds = end.communication - begin.communication,
          .offload = {.to_device = end.offload.to_device - begin.offload.to_device,
                      .to_host = end.offload.to_host - begin.offload.to_host,
                      .on_host = end.offload.on_host - begin.offload.on_host}};
}

}  // namespace zinc::plan
