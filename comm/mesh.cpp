#include "comm/mesh.h"

#include <array>
#include <utility>

#include "core/error.h"

namespace zinc::comm {

void Mesh::require_fit(int64_t world) const {
  const auto require_positive = [](int extent, const char* name) {
    if (extent >= 1) return;
    throw ConfigError(str("zinc.mesh.", name, " must be at least 1, not ", extent));
  };
  const std::array<std::pair<int, const char*>, 3> extents{
      std::pair(sequence, "sequence"), std::pair(pipe, "pipe"), std::pair(tensor, "tensor")};
  for (const auto& [extent, name] : extents) require_positive(extent, name);
  int64_t together = 1;
  std::string names;
  for (const auto& [extent, name] : extents) {
    together *= extent;
    if (extent > 1) names += str(names.empty() ? "" : " x ", "zinc.mesh.", name, " ", extent);
  }
  if (world % together == 0) return;
  throw ConfigError(str(names, " does not divide the world of ", world,
                        " ranks: start a multiple of ", together, " ranks, or change the mesh"));
}

std::string Mesh::describe(int rank) const {
  if (is_flat()) return str("rank ", rank);
  return str("rank ", rank, " (data ", data_of(rank),
             sequence > 1 ? str(", sequence ", sequence_of(rank)) : "",
             pipe > 1 ? str(", pipe ", pipe_of(rank)) : "",
             tensor > 1 ? str(", tensor ", tensor_of(rank)) : "", ")");
}

std::vector<MeshAxis> Mesh::axes() const {
  std::vector<MeshAxis> axes;
  if (ranks_per_model() > 1) axes.push_back(MeshAxis::shards);
  if (sequence > 1) axes.push_back(MeshAxis::sequence);
  if (pipe > 1) axes.push_back(MeshAxis::pipe);
  if (tensor > 1) axes.push_back(MeshAxis::tensor);
  return axes;
}

MeshGroup group_along(const Mesh& mesh, MeshAxis axis, int rank) {
  const int in_model = rank % mesh.ranks_per_model();
  const int model = rank / mesh.ranks_per_model();
  switch (axis) {
    case MeshAxis::shards:
      return {in_model, model};
    case MeshAxis::sequence:
      return {mesh.data_of(rank) * mesh.ranks_per_model() + in_model, mesh.sequence_of(rank)};
    case MeshAxis::pipe:
      return {model * mesh.tensor + mesh.tensor_of(rank), mesh.pipe_of(rank)};
    case MeshAxis::tensor:
      return {rank / mesh.tensor, mesh.tensor_of(rank)};
  }
  return {};
}

}  // namespace zinc::comm
