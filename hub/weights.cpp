#include "hub/weights.h"

#include <cstddef>
#include <vector>

#include "core/context.h"
#include "core/transfer.h"
#include "files/atomic_file.h"
#include "files/safetensors/folder.h"
#include "hub/weight_folder.h"

namespace zinc::hub {

SafetensorsWeights::SafetensorsWeights(const std::string& path, nn::Module& module, bool strict)
    : reader_(WeightFolder::open(path), name_map_of_folder(path)),
      strict_(strict),
      initial_(Context::current().random().seed()) {
  if (!strict) return;
  std::vector<WeightSpec> wanted;
  for (const auto& [name, parameter] : module.named_parameters()) {
    wanted.push_back({.name = name, .shape = parameter->whole_shape()});
  }
  reader_.require_match(wanted);
}

bool SafetensorsWeights::fits(const autograd::Parameter& parameter) const {
  return reader_.shape_of(parameter.name(), parameter.whole_shape()) == parameter.whole_shape();
}

std::optional<Shape> SafetensorsWeights::shape_of(const autograd::Parameter& parameter) const {
  if (!strict_ && !fits(parameter)) return parameter.whole_shape();
  return reader_.shape_of(parameter.name(), parameter.whole_shape());
}

void SafetensorsWeights::read(const autograd::Parameter& parameter, int64_t begin, View out) const {
  if (!strict_ && !fits(parameter)) return initial_.read(parameter, begin, out);
  reader_.read(parameter.name(), parameter.whole_shape(), begin, out);
}

void save_weights(nn::Module& module, const std::string& folder, const SaveOptions& options) {
  std::vector<files::TensorSpec> specs;
  for (const auto& [name, parameter] : module.named_parameters()) {
    specs.push_back({.name = name, .dtype = parameter->dtype(), .shape = parameter->shape()});
  }
  files::AtomicFolder target(folder);
  files::SafetensorsFolderWriter writer(target.path(), specs, options.max_shard_bytes);
  for (const auto& [name, values] : module.state_dict()) {
    std::vector<std::byte> bytes(static_cast<size_t>(values.view().bytes()));
    download(values.view(), bytes.data(), Context::current().compute());
    writer.write(name, 0, ConstView(bytes.data(), values.dtype(), Shape{values.numel()}, kCpu));
  }
  writer.commit();
  target.commit(options.replace);
}

}  // namespace zinc::hub
