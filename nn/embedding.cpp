#include "nn/embedding.h"

#include <algorithm>
#include <vector>

#include "autograd/ops/embedding.h"
#include "autograd/ops/gather_rows.h"
#include "autograd/ops/reshape.h"
#include "autograd/ops/where.h"
#include "core/error.h"
#include "nn/lora.h"
#include "nn/tensor_ranks.h"

namespace zinc::nn {
namespace {

// By id: [V, 1] i32, its row in the slice, and [V, 1] u8, 1 where it has none.
TensorList places_in(const TensorSlice& slice) {
  const auto count = static_cast<size_t>(slice.whole[0]);
  const auto [begin, rows] = slice.pieces.front();
  std::vector<int64_t> place(count, 0), is_elsewhere(count, 1);
  for (int64_t row = 0; row < rows; ++row) {
    place[static_cast<size_t>(begin + row)] = row;
    is_elsewhere[static_cast<size_t>(begin + row)] = 0;
  }
  const Shape shape{slice.whole[0], 1};
  return {Tensor::from(place, shape, DType::i32), Tensor::from(is_elsewhere, shape, DType::u8)};
}

}  // namespace

Embedding::Embedding(Module& parent, std::string name, const EmbeddingOptions& options)
    : Module(parent, std::move(name)),
      weight_(*this, "weight", Shape{options.count, options.features}, options.initializer),
      adaptable_(options.adaptable),
      sliced_(options.sliced),
      places_([](int64_t, DType) { return TensorList(); }) {
  require(options.count > 0 && options.features > 0, path(),
          ": an embedding needs positive sizes, not ", options.count, " x ", options.features);
}

Embedding::~Embedding() = default;

Tensor Embedding::forward(const Tensor& ids, int64_t ignored_id) {
  return adapted(is_sliced() ? rows_of_slice(ids, ignored_id)
                             : autograd::embedding(own_tokens(tensor_ranks(), ids),
                                                   own_weight(tensor_ranks(), weight_), {},
                                                   {.ignored_id = ignored_id}),
                 ids);
}

void Embedding::on_share() {
  const TensorRanks* ranks = tensor_ranks();
  require(ranks == nullptr || adapter_ == nullptr, path(),
          ": an embedding with an adapter cannot be sliced over ranks");
  std::optional<TensorSlice> slice;
  if (ranks != nullptr && sliced_) {
    const Shape whole = weight_.whole_shape();
    slice = TensorSlice::of(whole, 0, {whole[0]}, ranks->rank(), ranks->size());
    places_ = Buffer([slice](int64_t, DType) { return places_in(*slice); });
  }
  weight_.set_slice(slice);
}

Tensor Embedding::rows_of_slice(const Tensor& ids, int64_t ignored_id) {
  const TensorList& places = places_.get(weight_.whole_shape()[0], DType::i32);
  const Tensor flat = ids.reshape_view(Shape{ids.numel()});
  const Tensor place = autograd::gather_rows(places[0], flat);
  const Tensor is_elsewhere = autograd::gather_rows(places[1], flat);
  const auto [begin, count] = weight_.slice()->pieces.front();
  const bool is_here = begin <= ignored_id && ignored_id < begin + count;
  const Tensor rows = autograd::embedding(place.reshape_view(flat.shape()), weight_, {},
                                          {.ignored_id = is_here ? ignored_id - begin : -1});
  Shape shape = ids.shape();
  shape.push_back(weight_.shape()[1]);
  return tensor_ranks()->leave(
      autograd::reshape(autograd::masked_fill(rows, is_elsewhere, 0.0), shape));
}

Tensor Embedding::adapted(const Tensor& rows, const Tensor& ids) {
  return adapter_ == nullptr ? rows : adapter_->add_to(rows, ids);
}

}  // namespace zinc::nn
