#include "comm/call.h"

namespace zinc::comm {

std::string_view name_of(Operation operation) {
  switch (operation) {
    case Operation::all_gather:
      return "all_gather";
    case Operation::reduce_scatter:
      return "reduce_scatter";
    case Operation::all_reduce:
      return "all_reduce";
    case Operation::broadcast:
      return "broadcast";
    case Operation::all_to_all:
      return "all_to_all";
    case Operation::shift:
      return "shift";
    case Operation::barrier:
      return "barrier";
    case Operation::split:
      return "split";
    case Operation::message:
      return "message";
  }
  return "?";
}

std::string to_string(const Terms& terms) {
  std::string text = str(name_of(terms.operation), " #", terms.sequence);
  if (terms.operation == Operation::barrier || terms.operation == Operation::split) return text;
  text += str(" (", terms.count, " x ", terms.dtype);
  if (terms.operation == Operation::broadcast) text += str(" from rank ", terms.root);
  if (terms.native != 0) text += ", native sum";
  return text + ")";
}

std::string describe(const Message& message, int world_rank) {
  return str(message.sending ? "send #" : "receive #", message.sequence,
             message.sending ? " to rank " : " from rank ", world_rank, " with tag ", message.tag,
             " (", message.bytes, " bytes)");
}

std::string name_ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += str(ranks[i]);
  }
  return text;
}

std::string describe(std::chrono::nanoseconds duration) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
  if (ms % 1000 == 0) return str(ms / 1000, " s");
  return str(ms, " ms");
}

}  // namespace zinc::comm
