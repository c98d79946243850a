#include "bench/model_products.h"

#include <map>
#include <memory>
#include <utility>

#include "hub/model.h"
#include "nn/linear.h"
#include "nn/model.h"

namespace zinc::bench {

std::vector<Product> products_of(const hub::ModelConfig& config) {
  std::map<std::pair<int64_t, int64_t>, int64_t> counts;
  const std::unique_ptr<nn::Model> model = hub::make_model(config);
  for (const nn::Module* module : model->modules()) {
    const auto* linear = dynamic_cast<const nn::Linear*>(module);
    if (linear != nullptr) ++counts[{linear->options().out, linear->options().in}];
  }
  if (hub::ties_word_embeddings(config)) {
    ++counts[{hub::vocabulary_size(config), hub::hidden_size(config)}];
  }
  std::vector<Product> products;
  for (const auto& [size, count] : counts) products.push_back({size.first, size.second, count});
  return products;
}

}  // namespace zinc::bench
