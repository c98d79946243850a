// comm/mesh.h: how the ranks of a world divide the work.
//
// Ranks stand in a grid of `data` x `sequence` x `pipe` x `tensor`. The tensor coordinate runs
// fastest, so neighbours on a host hold slices of the same layers:
//
//   rank = ((data * S + sequence) * P + pipe) * T + tensor    S, P, T: extents of these axes
//
// Ranks with one data coordinate see the same batches. Within them, the ranks of a tensor group
// each have a slice of the sliced layers, the ranks of a pipe group each have some of the layers,
// one after the other, and the ranks of a sequence group each have a part of the tokens. ZeRO
// shards over ranks with one pipe and one tensor coordinate: data x sequence.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace zinc::comm {

// Number `index` of `count`.
struct MeshPlace {
  int index = 0;
  int count = 1;
  int rank() const { return index; }
  int size() const { return count; }
};

enum class MeshAxis : uint8_t { shards, sequence, pipe, tensor };

struct Mesh {
  // All together divide the world.
  int tensor = 1;    // ranks that have a slice each of every layer
  int pipe = 1;      // ranks that have some of the layers each
  int sequence = 1;  // ranks that share the tokens of a sequence

  // Ranks that see the same batches.
  int ranks_per_batch() const { return sequence * ranks_per_model(); }
  // Ranks that have the whole model together.
  int ranks_per_model() const { return pipe * tensor; }
  bool is_flat() const { return ranks_per_batch() == 1; }
  // ConfigError where the extents do not multiply to the world.
  void require_fit(int64_t world) const;
  int data_of(int rank) const { return rank / ranks_per_batch(); }
  int sequence_of(int rank) const { return rank / ranks_per_model() % sequence; }
  int pipe_of(int rank) const { return rank / tensor % pipe; }
  int tensor_of(int rank) const { return rank % tensor; }
  // "rank 5 (data 1, pipe 0, tensor 1)", with the axes that have several ranks; a flat mesh: "rank
  // 5".
  std::string describe(int rank) const;
  // The axes along which the world is split, in the order in which the groups are made.
  std::vector<MeshAxis> axes() const;

  friend bool operator==(const Mesh&, const Mesh&) = default;
};

// The colour and key that a rank passes to Communicator::split for its group along an axis.
struct MeshGroup {
  int color = 0;
  int key = 0;
};
MeshGroup group_along(const Mesh& mesh, MeshAxis axis, int rank);

}  // namespace zinc::comm
