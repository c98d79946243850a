// comm/shared/shared_transport.h: exchanges between ranks that share memory.
//
// Threads of one process read each other's buffers directly. Processes put chunks of their messages
// into buffers of the segment, from which the others copy or sum them: two passes over the memory,
// one of them in the cache, and no system call while both ranks run.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/shared/desks.h"
#include "comm/shared/segment.h"
#include "comm/transport.h"

namespace zinc::comm {

class SharedTransport final : public Transport {
 public:
  // Makes the segment of a group that is split off; collective over the parent, null for ranks that
  // join no group.
  using MakeSegment =
      std::function<std::shared_ptr<Segment>(const SplitPlan& plan, const Agree& agree)>;

  SharedTransport(std::shared_ptr<Segment> segment, int rank, std::vector<int> world_ranks,
                  std::shared_ptr<Lifeline> lifeline, MakeSegment make_segment);
  ~SharedTransport() override;

  void exchange(const Call& call, const Exchange& exchange) override;
  void send(const Message& message, const std::byte* data) override;
  void receive(const Message& message, std::byte* data) override;
  std::shared_ptr<Transport> split(const SplitPlan& plan, const Agree& agree) override;

 private:
  bool direct() const { return segment_->shape().buffer_bytes == 0; }
  // Raises the lifeline; returns once no peer reads this rank's memory from that desk any more.
  void give_up(const char* reason, int desk) noexcept;
  void send_staged(const Message& message, const std::byte* data, int desk, const Watch& watch);
  void receive_staged(const Message& message, std::byte* data, const Desks::Found& found,
                      const Watch& watch);

  std::shared_ptr<Segment> segment_;
  Desks desks_;
  MakeSegment make_segment_;
};

}  // namespace zinc::comm
