#include "nn/embedding.h"

#include <numeric>
#include <vector>

#include "autograd/ops/embedding.h"
#include "autograd/ops/gather_rows.h"
#include "core/error.h"
#include "nn/lora.h"
#include "nn/tensor_ranks.h"

namespace zinc::nn {
namespace {

// By id, [V, 1] i32: the row in the slice, or -1.
TensorList places_in(const TensorSlice& slice) {
  const auto [begin, rows] = slice.pieces.front();
  std::vector<int64_t> place(static_cast<size_t>(slice.whole[0]), -1);
  std::iota(place.begin() + begin, place.begin() + begin + rows, int64_t{0});
  return {Tensor::from(place, Shape{slice.whole[0], 1}, DType::i32)};
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
  return adapted(weight_.slice() ? rows_of_slice(ids, ignored_id)
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
  if (ranks != nullptr && ranks->size() > 1 && sliced_) {
    const Shape whole = weight_.whole_shape();
    slice = TensorSlice::of(whole, 0, {whole[0]}, ranks->rank(), ranks->size());
    places_ = Buffer([slice](int64_t, DType) { return places_in(*slice); });
  }
  weight_.set_slice(slice);
}

Tensor Embedding::rows_of_slice(const Tensor& ids, int64_t ignored_id) {
  const TensorList& places = places_.get(weight_.whole_shape()[0], DType::i32);
  const Tensor place = autograd::gather_rows(places[0], ids.reshape_view(Shape{ids.numel()}));
  const auto [begin, count] = weight_.slice()->pieces.front();
  const bool is_here = begin <= ignored_id && ignored_id < begin + count;
  return tensor_ranks()->leave_exactly(autograd::embedding(
      place.reshape_view(ids.shape()), weight_, {},
      {.ignored_id = is_here ? ignored_id - begin : -1, .allows_absent = true}));
}

Tensor Embedding::adapted(const Tensor& rows, const Tensor& ids) {
  return adapter_ == nullptr ? rows : adapter_->add_to(rows, ids);
}

}  // namespace zinc::nn
