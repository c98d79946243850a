#include "comm/communicator.h"

namespace zinc::comm {

std::string_view name_of(Collective collective) {
  switch (collective) {
    case Collective::all_gather:
      return "all_gather";
    case Collective::reduce_scatter:
      return "reduce_scatter";
    case Collective::all_reduce:
      return "all_reduce";
    case Collective::broadcast:
      return "broadcast";
    case Collective::all_to_all:
      return "all_to_all";
    case Collective::shift:
      return "shift";
  }
  return "?";
}

std::unique_ptr<CudaGraph> Communicator::record(StreamRef stream,
                                                const std::function<void()>& body) {
  return record_cuda_graph(stream, body);
}

}  // namespace zinc::comm
