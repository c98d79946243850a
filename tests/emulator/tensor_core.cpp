#include "tests/emulator/tensor_core.h"

#include <atomic>
#include <cstring>
#include <source_location>

#include "core/float16.h"
#include "tests/emulator/block.h"
#include "tests/emulator/grid.h"

namespace zinc::emulator {
namespace {

constexpr uint32_t kAllLanes = 0xffffffffu;
constexpr int kRows = 8;          // of a matrix of ldmatrix
constexpr size_t kRowBytes = 16;  // of one of these rows

std::atomic<uint64_t> products{0};
std::atomic<uint64_t> bank_conflicts{0};

struct MatrixRow {
  const void* address;
  bool transposed;
};

void count_conflicts(const void* const* in) {
  for (int first = 0; first < kWarpSize; first += kRows) {
    const void* taken[kRows] = {};  // by group of four banks
    for (int r = 0; r < kRows; ++r) {
      const void* address = static_cast<const MatrixRow*>(in[first + r])->address;
      const void*& owner = taken[reinterpret_cast<uintptr_t>(address) / kRowBytes % kRows];
      if (owner != nullptr && owner != address) ++bank_conflicts;
      owner = address;
    }
  }
}

void combine_matrices(const void* const* in, void* const* out, uint32_t) {
  count_conflicts(in);
  const bool transposed = static_cast<const MatrixRow*>(in[0])->transposed;
  for (int m = 0; m < 4; ++m) {
    uint16_t values[kRows][kRows];
    for (int r = 0; r < kRows; ++r) {
      std::memcpy(values[r], static_cast<const MatrixRow*>(in[m * kRows + r])->address, kRowBytes);
    }
    for (int lane = 0; lane < kWarpSize; ++lane) {
      const int row = lane / 4, column = lane % 4 * 2;
      const uint32_t low = transposed ? values[column][row] : values[row][column];
      const uint32_t high = transposed ? values[column + 1][row] : values[row][column + 1];
      static_cast<uint32_t*>(out[lane])[m] = low | high << 16;
    }
  }
}

struct Operands {
  const float* sum;
  const uint32_t* a;
  const uint32_t* b;
};

template <class T>
float half_of(uint32_t pair, int which) {
  T value;
  value.bits = static_cast<uint16_t>(pair >> (16 * which));
  return static_cast<float>(value);
}

template <class T>
void combine_products(const void* const* in, void* const* out, uint32_t) {
  ++products;
  float a[16][16], b[16][8], sum[16][8];
  for (int lane = 0; lane < kWarpSize; ++lane) {
    const auto& mine = *static_cast<const Operands*>(in[lane]);
    const int group = lane / 4, pair = lane % 4 * 2;
    for (int e = 0; e < 2; ++e) {
      for (int r = 0; r < 4; ++r) {
        a[group + r % 2 * 8][pair + r / 2 * 8 + e] = half_of<T>(mine.a[r], e);
      }
      for (int r = 0; r < 2; ++r) {
        b[pair + r * 8 + e][group] = half_of<T>(mine.b[r], e);
        sum[group + r * 8][pair + e] = mine.sum[2 * r + e];
      }
    }
  }
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < 16; ++k) {
      for (int column = 0; column < 8; ++column) sum[row][column] += a[row][k] * b[k][column];
    }
  }
  for (int lane = 0; lane < kWarpSize; ++lane) {
    for (int e = 0; e < 4; ++e) {
      static_cast<float*>(out[lane])[e] = sum[lane / 4 + e / 2 * 8][lane % 4 * 2 + e % 2];
    }
  }
}

}  // namespace

void load_matrices(const void* row, bool transposed, uint32_t (&out)[4]) {
  require_aligned(row, kRowBytes, "ldmatrix");
  Block::current().require_shared(row, kRowBytes, "ldmatrix reads");
  const MatrixRow in{row, transposed};
  warp_collective("ldmatrix", std::source_location::current(), kAllLanes, &in, out,
                  &combine_matrices);
}

void multiply_add(MmaType type, float (&sum)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  const Operands in{sum, a, b};
  warp_collective("mma", std::source_location::current(), kAllLanes, &in, sum,
                  type == MmaType::bf16 ? &combine_products<bf16> : &combine_products<f16>);
}

TensorCoreUse tensor_core_use() { return {products, bank_conflicts}; }

}  // namespace zinc::emulator
