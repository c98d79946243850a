#include "comm/mesh.h"

#include "core/error.h"

namespace zinc::comm {

void Mesh::require_fit(int64_t world) const {
  if (tensor < 1) throw ConfigError(concat("zinc.mesh.tensor must be at least 1, not ", tensor));
  if (world % tensor == 0) return;
  throw ConfigError(concat("zinc.mesh.tensor ", tensor, " does not divide the world of ", world,
                           " ranks: start a multiple of ", tensor, " ranks, or change the mesh"));
}

std::string Mesh::describe(int rank) const {
  if (is_flat()) return concat("rank ", rank);
  return concat("rank ", rank, " (data ", data_of(rank), ", tensor ", tensor_of(rank), ")");
}

MeshGroup group_along(const Mesh& mesh, MeshAxis axis, int rank) {
  const MeshGroup along_data{mesh.tensor_of(rank), mesh.data_of(rank)};
  return axis == MeshAxis::data ? along_data : MeshGroup{along_data.key, along_data.color};
}

}  // namespace zinc::comm
