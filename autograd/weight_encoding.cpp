#include "autograd/weight_encoding.h"

#include <algorithm>
#include <span>

#include "core/error.h"
#include "kernels/decode.h"

namespace zinc::autograd {
namespace {

// Elements that are read at once.
constexpr int64_t kPieceNumel = int64_t{1} << 20;

[[noreturn]] void refuse(const Parameter& parameter) {
  throw DataError(str("the weight '", parameter.name(), "' has values that are NaN or infinite, ",
                      "which ", name_of(*parameter.block_format()),
                      " cannot hold: mend the weights, or train without quantization"));
}

}  // namespace

WeightEncoder::WeightEncoder(const Parameter& parameter, const ReadValues& read)
    : parameter_(parameter), read_(read) {
  if (*parameter.block_format() != BlockFormat::nf4) return;
  const int64_t size = block_numel(BlockFormat::nf4);
  std::vector<float> absmax(static_cast<size_t>((parameter.numel() + size - 1) / size));
  for (int64_t begin = 0; begin < parameter.numel(); begin += kPieceNumel) {
    const int64_t numel = std::min(kPieceNumel, parameter.numel() - begin);
    const std::vector<std::byte> values = this->read(begin, numel);
    const auto blocks = std::span(absmax).subspan(static_cast<size_t>(begin / size),
                                                  static_cast<size_t>((numel + size - 1) / size));
    const ConstView view(values.data(), parameter.dtype(), Shape{numel}, kCpu);
    if (!kernels::block_absmax(BlockFormat::nf4, view, blocks)) refuse(parameter);
  }
  nested_ = kernels::nest(absmax);
}

std::vector<std::byte> WeightEncoder::read(int64_t begin, int64_t numel) const {
  std::vector<std::byte> values(static_cast<size_t>(numel * size_of(parameter_.dtype())));
  read_(parameter_, begin, View(values.data(), parameter_.dtype(), Shape{numel}, kCpu));
  return values;
}

std::vector<std::byte> WeightEncoder::encode(int64_t begin, int64_t numel) const {
  const BlockFormat format = *parameter_.block_format();
  const std::vector<std::byte> values = read(begin, numel);
  const ConstView view(values.data(), parameter_.dtype(), Shape{numel}, kCpu);
  if (format != BlockFormat::nf4) {
    const int64_t size = block_numel(format);
    std::vector<float> absmax(static_cast<size_t>((numel + size - 1) / size));
    if (!kernels::block_absmax(format, view, absmax)) refuse(parameter_);
  }
  std::vector<std::byte> encoded(static_cast<size_t>(encoded_bytes(format, numel)));
  kernels::encode({.x = view,
                   .format = format,
                   .begin = begin,
                   .nested = &nested_,
                   .y = View(encoded.data(), DType::u8, Shape{std::ssize(encoded)}, kCpu)});
  return encoded;
}

void WeightEncoder::round(int64_t begin, const View& out) const {
  const std::vector<std::byte> encoded = encode(begin, out.numel());
  kernels::decode_on_host(
      {.x = ConstView(encoded.data(), DType::u8, Shape{std::ssize(encoded)}, kCpu),
       .format = *parameter_.block_format(),
       .y = out});
}

}  // namespace zinc::autograd
