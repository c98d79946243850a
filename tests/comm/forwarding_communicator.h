// tests/comm/forwarding_communicator.h: a communicator that passes everything on to another one, to
// be derived from by those that do something wrong, late or with an eye on it.
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "comm/communicator.h"

namespace zinc::comm {

class ForwardingCommunicator : public Communicator {
 public:
  explicit ForwardingCommunicator(std::unique_ptr<Communicator> inner)
      : Communicator(inner->rank(), inner->size()), inner_(std::move(inner)) {
    set_deadline(inner_->deadline());
    set_reduce_algorithm(inner_->reduce_algorithm());
  }

  std::string_view backend() const override { return inner_->backend(); }
  Work all_gather(const AllGather& args, StreamRef stream) override {
    return inner().all_gather(args, stream);
  }
  Work reduce_scatter(const ReduceScatter& args, StreamRef stream) override {
    return inner().reduce_scatter(args, stream);
  }
  Work all_reduce(const AllReduce& args, StreamRef stream) override {
    return inner().all_reduce(args, stream);
  }
  Work broadcast(const Broadcast& args, StreamRef stream) override {
    return inner().broadcast(args, stream);
  }
  Work all_to_all(const AllToAll& args, StreamRef stream) override {
    return inner().all_to_all(args, stream);
  }
  Work shift(const Shift& args, StreamRef stream) override { return inner().shift(args, stream); }
  Work send(ConstView data, int destination, int tag, StreamRef stream) override {
    return inner().send(data, destination, tag, stream);
  }
  Work receive(View data, int source, int tag, StreamRef stream) override {
    return inner().receive(data, source, tag, stream);
  }
  Work barrier(StreamRef stream) override { return inner().barrier(stream); }
  std::unique_ptr<CudaGraph> record(StreamRef stream, const std::function<void()>& body) override {
    return inner().record(stream, body);
  }
  int64_t workspace_bytes(Collective collective, int64_t bytes, DType dtype) const override {
    return inner_->workspace_bytes(collective, bytes, dtype);
  }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return inner().split(color, key);
  }
  void abort(std::string_view reason) noexcept override { inner_->abort(reason); }
  int64_t bytes_sent() const override { return inner_->bytes_sent(); }
  int64_t bytes_received() const override { return inner_->bytes_received(); }

 private:
  // The inner communicator, with the settings that were made on this one.
  Communicator& inner() {
    inner_->set_deadline(deadline());
    inner_->set_reduce_algorithm(reduce_algorithm());
    return *inner_;
  }

  std::unique_ptr<Communicator> inner_;
};

}  // namespace zinc::comm
