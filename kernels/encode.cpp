#include "kernels/encode.h"

#include "core/error.h"

namespace zinc::kernels {

namespace cpu {
void encode(const Encode& args);
}  // namespace cpu

void encode(const Encode& args) {
  const int64_t n = args.x.numel(), chunks = (n + kFormatChunk - 1) / kFormatChunk;
  const int64_t first = args.begin / kFormatChunk;
  const int64_t bytes = chunk_bytes(args.format);
  require(args.x.is_contiguous() && args.begin % kFormatChunk == 0 && args.y.dtype() == DType::u8 &&
              args.y.is_contiguous() && args.y.numel() == chunks * bytes,
          "encode: ", n, " elements from ", args.begin, " on as ", name_of(args.format), " to ",
          args.y.shape());
  const bool is_nf4 = args.format == BlockFormat::nf4;
  constexpr int64_t kTogether = kNestedNumel / kFormatChunk;
  require(!is_nf4 || (args.nested != nullptr &&
                      (first + chunks - 1) / kTogether < std::ssize(args.nested->absmax)),
          "encode: nf4 needs what all chunks of the weight have in common");
  cpu::encode(args);
}

Cost cost(const Encode& args) {
  return {.bytes_read = args.x.bytes(), .bytes_written = args.y.bytes(), .flops = args.x.numel()};
}

}  // namespace zinc::kernels
