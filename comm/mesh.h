// comm/mesh.h: how the ranks of a world divide the work among them.
//
// Ranks stand in a grid of `data` x `tensor`, the tensor coordinate fastest, so that neighbours on a
// host hold slices of the same layers:
//
//   rank = data coordinate * tensor + tensor coordinate
//
// Ranks of one tensor group see the same batches, and each has a slice of the layers that are
// sliced; ranks of one data group see different batches, and ZeRO shards over them.
#pragma once

#include <cstdint>
#include <string>

namespace zinc::comm {

struct Mesh {
  int tensor = 1;  // ranks that share the layers; divides the world

  bool is_flat() const { return tensor == 1; }
  // ConfigError where the extents do not multiply to the world.
  void require_fit(int64_t world) const;
  int data_of(int rank) const { return rank / tensor; }
  int tensor_of(int rank) const { return rank % tensor; }
  // "rank 5 (data 2, tensor 1)"; a flat mesh: "rank 5".
  std::string describe(int rank) const;

  friend bool operator==(const Mesh&, const Mesh&) = default;
};

enum class MeshAxis : uint8_t { data, tensor };

// What a rank passes to Communicator::split for its group along an axis. Groups are made in the
// order of MeshAxis.
struct MeshGroup {
  int color = 0;
  int key = 0;
};
MeshGroup group_along(const Mesh& mesh, MeshAxis axis, int rank);

}  // namespace zinc::comm
