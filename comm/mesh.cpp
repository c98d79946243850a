#include "comm/mesh.h"

#include "core/error.h"

namespace zinc::comm {

void Mesh::require_fit(int64_t world) const {
  const auto require_positive = [](int extent, const char* name) {
    if (extent >= 1) return;
    throw ConfigError(concat("zinc.mesh.", name, " must be at least 1, not ", extent));
  };
  require_positive(tensor, "tensor");
  require_positive(sequence, "sequence");
  const int64_t together = int64_t{sequence} * tensor;
  if (world % together == 0) return;
  const std::string extents =
      sequence == 1 ? concat("zinc.mesh.tensor ", tensor)
      : tensor == 1 ? concat("zinc.mesh.sequence ", sequence)
                    : concat("zinc.mesh.sequence ", sequence, " x zinc.mesh.tensor ", tensor);
  throw ConfigError(concat(extents, " does not divide the world of ", world,
                           " ranks: start a multiple of ", together, " ranks, or change the mesh"));
}

std::string Mesh::describe(int rank) const {
  if (is_flat()) return concat("rank ", rank);
  return concat("rank ", rank, " (data ", data_of(rank),
                sequence > 1 ? concat(", sequence ", sequence_of(rank)) : "",
                tensor > 1 ? concat(", tensor ", tensor_of(rank)) : "", ")");
}

std::vector<MeshAxis> Mesh::axes() const {
  std::vector<MeshAxis> axes;
  if (tensor > 1) axes.push_back(MeshAxis::shards);
  if (sequence > 1) axes.push_back(MeshAxis::sequence);
  if (tensor > 1) axes.push_back(MeshAxis::tensor);
  return axes;
}

MeshGroup group_along(const Mesh& mesh, MeshAxis axis, int rank) {
  switch (axis) {
    case MeshAxis::shards:
      return {mesh.tensor_of(rank), rank / mesh.tensor};
    case MeshAxis::sequence:
      return {mesh.data_of(rank) * mesh.tensor + mesh.tensor_of(rank), mesh.sequence_of(rank)};
    case MeshAxis::tensor:
      return {rank / mesh.tensor, mesh.tensor_of(rank)};
  }
  return {};
}

}  // namespace zinc::comm
