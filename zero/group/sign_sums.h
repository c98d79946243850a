// zero/group/sign_sums.h: sums of gradients over the ranks that travel as signs.
//
// Note [Sums as signs]
// What travels, and why, is optim/sign_reduction.h. A step in which signs travel reduces nothing
// during backward: every rank keeps the sums of its own micro-batches of all elements
// (whole_sums.h) until the step. Then, group by group:
//
//   where                      what
//   every rank, all elements   x; its signs; what they leave out is the rank's error
//   owner of a shard           the mean of all ranks' signs, in order of rank, with the error of
//   the
//                              sum; its signs; what they leave out is the new error of the sum
//   every rank, all elements   `last`: these signs
//
// A rank so has an error of all elements, and that of the sum of its shard: 4 bytes an element and
// 4 / ranks, on the tier of the states (in host memory for states on NVMe). `last` takes 33 / 256
// bytes an element on the device. On the wire: the same there and back, 33 / 256 bytes an element
// in each direction, of which a rank sends the part of the others.
//
// Sums and errors follow the number of ranks. Stages, tiers and buckets change no bit. A rank alone
// sends nothing: the sum is x, which it keeps in the place of its error.
//
// The first step in which signs travel has no `last` in signs. Its share of the error is then keep
// times the optimizer's state, and every rank has all of it. An engine that goes on from other
// states, as those of a checkpoint, makes `last` from the state, which holds it bit by bit.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "core/allocator.h"
#include "core/context.h"
#include "core/stream.h"
#include "core/view.h"
#include "optim/sign_reduction.h"
#include "zero/layout/shard_group.h"

namespace zinc::zero {

// How the names of errors begin.
inline constexpr std::string_view kSignErrorKind = "sign_error_";

class SignSums {
 public:
  // `tier`: of the errors. All must outlive this.
  SignSums(const optim::SignReduction& rule, const ShardGroups& groups,
           comm::Communicator& communicator, Context& context, Tier tier);

  // Whether signs travel in the step under way. Set between steps.
  bool is_on() const { return is_on_; }
  void turn(bool on) { is_on_ = on; }

  // The elements of a range of a group's arena, with one pair of factors each. In one segment,
  // whole chunks.
  struct Part {
    Range range;
    optim::SignReduction::Terms terms;
  };
  using PartsOf = std::function<std::vector<Part>(int group, Range range)>;
  // Gives all elements of a group the values of the optimizer's state: [trained_numel] f32 on the
  // device, on the compute stream. Collective.
  using ReadLast = std::function<void(const ShardGroup& group, const View& out)>;
  // Call before the sums of a step are made. `factor`: what makes the gradient of the mean loss of
  // all ranks' sums. `is_first`: signs travel for the first time. Collective.
  void begin(double factor, PartsOf parts, bool is_first, const ReadLast& read_last);
  // The step is skipped: sums stay as they are, and nothing travels.
  void skip() { is_skipped_ = true; }
  // The sums of a group: `values` [trained_numel] f32, this rank's own on entry; on return the sum
  // of its shards, or `all` of it. On `stream`. Collective.
  comm::Work reduce(const ShardGroup& group, const View& values, bool all, StreamRef stream);
  // The sums were multiplied by `factor`, to clip them: so is `last`. On the compute stream.
  void end(double factor);

  // The optimizer's states were set: `last` is made from them.
  void forget_last() { has_last_ = false; }
  // The errors by name, for files: those of all ranks, by rank, then that of the sum. Empty for a
  // rank alone.
  const std::vector<std::string>& error_names() const { return error_names_; }
  // What this rank has of one of them, an index of error_names(), for a parameter: elements `part`
  // of it, flat, in the errors' tier. Work on the compute stream may read it between steps, and set
  // it.
  struct OwnError {
    Range part;
    View values;  // [part.size()] f32; null: none
  };
  OwnError own_error(ParameterIndex parameter, int which) const;
  // Bytes of all errors of this rank.
  int64_t error_bytes() const;
  // Bytes that this rank sends for a group, there and back.
  int64_t sent_bytes(const ShardGroup& group) const;
  bool is_alone() const { return communicator_.size() == 1; }

 private:
  // Signs and scales of a rank's shards of a group, as they travel.
  struct Message {
    View bits;    // [elements / 8] u8
    View scales;  // [elements / kNormChunk] f32
    // Those of elements [begin, begin + size) of the shards, one segment after the other.
    Message part(int64_t begin, int64_t size) const;
  };
  struct Group {
    Block error, error_of_sum;
    Block last;            // the messages of all ranks
    Block counts;          // [trained_numel / kNormChunk] i32: elements that are no padding
    Block own_counts;      // the same of this rank's shards, as they travel
    Block runs, own_runs;  // SignScales::runs; null: every chunk is one
    int64_t num_runs = 0, num_own_runs = 0;
  };
  struct Room {
    Block block;
    View view;
  };

  Room take(int64_t numel, DType dtype, StreamRef stream) const;
  // Where a segment's elements begin among a rank's shards.
  int64_t place(const Segment& segment) const { return segment.offset / communicator_.size(); }
  View view_of(const Block& block, int64_t numel, DType dtype, Tier tier = Tier::device) const;
  int64_t shard_numel(const ShardGroup& group) const;
  static int64_t message_bytes(int64_t numel);
  // The r-th of the messages that lie one behind the other.
  Message message(const View& messages, int r, int64_t numel) const;
  View all_of(const Message& message) const;
  View all_last(const ShardGroup& group) const;
  void make_tables(const ShardGroup& group);
  // Calls visit(segment, r, shard): the shard of rank r, in the arena.
  template <class Visit>
  void for_each_shard(const ShardGroup& group, const Visit& visit) const;
  // Calls visit(range, terms) for ranges as long as they can be.
  template <class Visit>
  void for_each_part(const ShardGroup& group, const Visit& visit) const;
  // The scales of x, [n]. `runs`: kernels::SignScales::runs.
  void find_scales(const View& x, const View& counts, const View& runs, const View& scales,
                   StreamRef stream) const;
  void reduce_alone(const ShardGroup& group, const View& values, const View& last,
                    StreamRef stream) const;
  void sign(const ShardGroup& group, const View& values, const View& error, const View& sent,
            StreamRef stream) const;
  void sign_sum(const ShardGroup& group, const View& received, const Message& own,
                StreamRef stream) const;
  void exchange(const ShardGroup& group, const View& values, const View& error,
                StreamRef stream) const;
  void decode_last(const ShardGroup& group, const View& values, bool all, StreamRef stream) const;
  void make_last(const ShardGroup& group, const View& values, StreamRef stream);
  // Runs `work` with an error of `numel` elements on the device.
  void with_error(const Block& error, int64_t numel, StreamRef stream,
                  const std::function<void(const View& error)>& work) const;

  const optim::SignReduction& rule_;
  const ShardGroups& groups_;
  comm::Communicator& communicator_;
  Context& context_;
  const Tier tier_;
  ByGroup<Group> state_;
  std::vector<std::string> error_names_;
  bool is_on_ = false, is_skipped_ = false;
  bool has_last_ = false;  // `last` is the optimizer's state, or its share is in the error
  double factor_ = 1.0;
  PartsOf parts_;
};

}  // namespace zinc::zero
