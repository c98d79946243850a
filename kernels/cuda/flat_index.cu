// Places of gathered elements: a thread per element. Traffic: index in, 8 bytes an element out.
#include "kernels/flat_index.h"

#include <algorithm>

#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/indices.h"
#include "kernels/cuda/launch.h"

namespace zinc::kernels::cuda {
namespace {

struct Places {
  Indices index;
  TableRows rows;
  int64_t extent;
  int64_t count;  // indices: all elements, or those of one `row`
  int64_t row;    // elements of one outer index
  int64_t inner;
  int64_t numel;
};

__global__ void __launch_bounds__(kMapThreads) flat_index_kernel(Places args, int64_t* flat) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < args.numel; e += step) {
    const int64_t outer = e / args.row;
    const int64_t place = args.count == args.row ? e - outer * args.row : e;
    const int64_t index = args.index[place];
    flat[e] = args.rows.has(index, place)
                  ? (outer * args.extent + index) * args.inner + e % args.inner
                  : int64_t{-1};
  }
}

}  // namespace

void flat_index(const FlatIndex& args, StreamRef stream) {
  const Places places{Indices(args.index),
                      TableRows(args.extent, args.op, "index", stream),
                      args.extent,
                      args.index.numel(),
                      args.flat.dim(1) * args.flat.dim(2),
                      args.flat.dim(2),
                      args.flat.numel()};
  const int64_t blocks = std::min(kMaxMapBlocks, packs_of(places.numel, kMapThreads));
  launch(flat_index_kernel, dim3(static_cast<unsigned>(blocks)), dim3(kMapThreads), 0, stream,
         places, args.flat.data_as<int64_t>());
}

}  // namespace zinc::kernels::cuda
