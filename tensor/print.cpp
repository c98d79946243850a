#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace zinc {
namespace {

constexpr int64_t kMaxPrintedElements = 1000;  // above: edges only
constexpr int64_t kEdgeItems = 3;

std::vector<int64_t> shown_indices(int64_t extent, bool edges_only) {
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < extent; ++i) {
    if (edges_only && extent > 2 * kEdgeItems && i == kEdgeItems) {
      indices.push_back(-1);
      i = extent - kEdgeItems;
    }
    indices.push_back(i);
  }
  return indices;
}

class Printer {
 public:
  Printer(const Tensor& tensor, bool edges_only) : tensor_(tensor), edges_only_(edges_only) {}

  std::string values() {
    if (tensor_.rank() == 0) return element(tensor_);
    width_ = 0;
    render(tensor_, 0);  // finds the widest element
    return render(tensor_, 0);
  }

 private:
  std::string element(const Tensor& one) const {
    if (is_float(one.dtype())) return fmt::format("{:.6g}", one.item());
    return fmt::format("{}", one.to_vector<int64_t>().front());
  }

  std::string render(const Tensor& part, int depth) {
    const bool innermost = part.rank() == 1;
    std::string text = "[";
    bool first = true;
    for (const int64_t i : shown_indices(part.dim(0), edges_only_)) {
      if (!first) {
        text += innermost ? ", " : ",\n" + std::string(static_cast<size_t>(depth) + 1, ' ');
      }
      first = false;
      if (i < 0) {
        text += "...";
      } else if (innermost) {
        const std::string value = element(part.narrow_view(0, i, 1));
        width_ = std::max(width_, value.size());
        text += fmt::format("{:>{}}", value, width_);
      } else {
        text += render(first_dimension_removed(part, i), depth + 1);
      }
    }
    return text + "]";
  }

  static Tensor first_dimension_removed(const Tensor& part, int64_t i) {
    const View& view = part.view();
    Shape shape;
    Strides strides{};
    for (int d = 1; d < view.rank(); ++d) {
      shape.push_back(view.dim(d));
      strides[static_cast<size_t>(d - 1)] = view.stride(d);
    }
    const View row = view.narrow(0, i, 1);
    const View inner(row.data(), row.dtype(), shape, strides, row.device(), row.tier());
    return Tensor::wrap(inner, std::make_shared<Tensor>(part));
  }

  const Tensor& tensor_;
  bool edges_only_;
  size_t width_ = 0;
};

}  // namespace

std::string to_string(const Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  std::string text = to_string(ConstView(tensor.view()));
  if (tensor.device().meta) return text;
  Printer printer(tensor, tensor.numel() > kMaxPrintedElements);
  return text + "\n" + printer.values();
}

}  // namespace zinc
