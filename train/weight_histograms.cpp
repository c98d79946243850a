#include "train/weight_histograms.h"

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "comm/gather_values.h"

namespace zinc::train {
namespace {

// A histogram as numbers, for the way between ranks.
std::vector<double> numbers_of(const Histogram& histogram) {
  std::vector<double> numbers = histogram.counts;
  numbers.insert(numbers.end(), {histogram.count, histogram.sum, histogram.sum_of_squares,
                                 histogram.least, histogram.most});
  return numbers;
}

Histogram histogram_of(std::span<const double> numbers) {
  const std::span<const double> figures = numbers.subspan(kHistogramBuckets);
  return {.name = {},
          .counts = {numbers.begin(), numbers.begin() + kHistogramBuckets},
          .count = figures[0],
          .sum = figures[1],
          .sum_of_squares = figures[2],
          .least = figures[3],
          .most = figures[4]};
}

}  // namespace

std::vector<Histogram> weight_histograms(zero::Engine& engine) {
  std::vector<Histogram> histograms;
  std::map<std::string_view, size_t> places;
  const auto parameters = engine.model().named_parameters();
  for (const auto& [name, parameter] : parameters) {
    if (!parameter->requires_grad()) continue;
    places.emplace(name, histograms.size());
    histograms.push_back({.name = name});
  }
  engine.read_own(zero::Engine::Own::weights, [&](const zero::OwnPiece& piece) {
    const auto place = places.find(piece.name);
    if (place != places.end()) histograms[place->second].add(piece.values);
  });
  comm::World& world = engine.world();
  if (world.size() == 1) return histograms;
  for (Histogram& histogram : histograms) {
    const std::vector<double> mine = numbers_of(histogram);
    const std::vector<double> all = comm::gather_values(world, mine);
    Histogram total{.name = histogram.name};
    for (size_t at = 0; at < all.size(); at += mine.size()) {
      total.add(histogram_of(std::span(all).subspan(at, mine.size())));
    }
    histogram = std::move(total);
  }
  return histograms;
}

}  // namespace zinc::train
