#include "tests/emulator/warpgroup.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/float16.h"
#include "tests/emulator/block.h"
#include "tests/emulator/bulk_copy.h"
#include "tests/emulator/grid.h"

namespace zinc::emulator {
namespace {

constexpr uint32_t kWholeWarp = 0xffffffffu;
constexpr int kK = 16;         // of an instruction
constexpr int kWarpRows = 16;  // of 64 rows
constexpr int kMaxN = 256;
constexpr int kGroupWarps = 4;  // of a warpgroup
constexpr int kRegisters = 64 * 1024;

std::atomic<uint64_t> issued_products{0};

struct Issue {
  WarpgroupProduct product;
  float* sum;
  const uint32_t* a;
};

struct Operation {
  WarpgroupProduct product;
  std::array<float*, kWarpSize> sum;
  std::array<const uint32_t*, kWarpSize> a;  // null: shared memory
  int first_row = 0;                         // of the warp, in a
};

struct Sums {
  float at[kWarpRows][kMaxN];
  int n = 0;
  int operations = 0;
};

struct Warp {
  bool fenced = false;
  std::vector<Operation> open;
  std::deque<std::vector<Operation>> groups;
  std::map<const float*, Sums> sums;  // by the first lane's
  int issued = 0;
  int registers = 0;
};

int row_of(int lane, int e) { return lane / 4 + e / 2 * 8; }
int column_of(int lane, int e) { return lane % 4 * 2 + e % 2; }

template <class Visit>
void for_each_sum(int n, const Visit& visit) {
  for (int lane = 0; lane < kWarpSize; ++lane) {
    for (int i = 0; i < n / 2; ++i)
      visit(lane, i, row_of(lane, i % 4), i / 4 * 8 + column_of(lane, i % 4));
  }
}

float number(MmaType type, uint16_t bits) {
  if (type == MmaType::bf16) {
    bf16 value;
    value.bits = bits;
    return static_cast<float>(value);
  }
  f16 value;
  value.bits = bits;
  return static_cast<float>(value);
}

float in_shared(MmaType type, uint64_t descriptor, bool by_k, int row, int k) {
  const std::byte* at = shared_pointer(element_address(descriptor, by_k, row, k));
  uint16_t bits, written;
  std::memcpy(&bits, async_view(at, sizeof(bits), "wgmma reads"), sizeof(bits));
  std::memcpy(&written, at, sizeof(written));
  if (written != bits) {
    throw Fault("wgmma reads shared memory that threads have written, without fence.proxy.async");
  }
  return number(type, bits);
}

void load_a(const Operation& operation, float (&a)[kWarpRows][kK]) {
  const WarpgroupProduct& product = operation.product;
  if (operation.a[0] == nullptr) {
    for (int row = 0; row < kWarpRows; ++row) {
      for (int k = 0; k < kK; ++k) {
        a[row][k] =
            in_shared(product.type, product.a, !product.transpose_a, operation.first_row + row, k);
      }
    }
    return;
  }
  for (int lane = 0; lane < kWarpSize; ++lane) {
    for (int r = 0; r < 4; ++r) {
      for (int e = 0; e < 2; ++e) {
        const uint32_t pair = operation.a[static_cast<size_t>(lane)][r];
        a[lane / 4 + r % 2 * 8][lane % 4 * 2 + r / 2 * 8 + e] =
            number(product.type, static_cast<uint16_t>(pair >> (16 * e)));
      }
    }
  }
}

void run(const Operation& operation, Sums& sums) {
  const WarpgroupProduct& product = operation.product;
  float a[kWarpRows][kK];
  load_a(operation, a);
  for (int column = 0; column < product.n; ++column) {
    float b[kK];
    for (int k = 0; k < kK; ++k) {
      b[k] = in_shared(product.type, product.b, !product.transpose_b, column, k);
    }
    for (int row = 0; row < kWarpRows; ++row) {
      float& sum = sums.at[row][column];
      if (!product.adds) sum = 0.0f;
      for (int k = 0; k < kK; ++k) sum += a[row][k] * b[k];
    }
  }
}

// One per block.
class WarpgroupUnit {
 public:
  WarpgroupUnit() {
    warps_.resize(static_cast<size_t>(Block::current().num_threads() / kWarpSize));
    Block::current().check_at_end([this] { check(); });
  }
  Warp& mine() {
    return warps_.at(static_cast<size_t>(Block::current().thread_index() / kWarpSize));
  }

  void issue(const void* const* in) {
    ++issued_products;
    Warp& warp = mine();
    if (!warp.fenced) throw Fault("wgmma without a wgmma.fence in front of its group");
    const Issue& first = *static_cast<const Issue*>(in[0]);
    if (first.product.n < 8 || first.product.n > kMaxN || first.product.n % 8 != 0) {
      throw Fault("wgmma: n is a multiple of 8 up to 256");
    }
    Operation operation{.product = first.product, .sum = {}, .a = {}};
    operation.first_row = Block::current().thread_index() / kWarpSize % kGroupWarps * kWarpRows;
    for (size_t lane = 0; lane < kWarpSize; ++lane) {
      const Issue& issue = *static_cast<const Issue*>(in[lane]);
      if (issue.product.a != first.product.a || issue.product.b != first.product.b ||
          issue.product.adds != first.product.adds) {
        throw Fault("wgmma: the lanes of a warp give it different operands");
      }
      operation.sum[lane] = issue.sum;
      operation.a[lane] = issue.a;
    }
    // Bytes that are still on their way are found now, others at the wait.
    in_shared(first.product.type, first.product.b, !first.product.transpose_b, 0, 0);
    take_sums(warp, operation);
    warp.open.push_back(operation);
    ++warp.issued;
  }
  void commit() {
    Warp& warp = mine();
    warp.groups.push_back(std::exchange(warp.open, {}));
    warp.fenced = false;
  }
  void wait(int pending) {
    Warp& warp = mine();
    while (static_cast<int>(warp.groups.size()) > pending) {
      for (const Operation& operation : warp.groups.front()) complete(warp, operation);
      warp.groups.pop_front();
    }
  }

 private:
  static void take_sums(Warp& warp, const Operation& operation) {
    Sums& sums = warp.sums[operation.sum[0]];
    const int n = operation.product.n;
    if (sums.operations == 0) {
      sums.n = n;
      for_each_sum(n, [&](int lane, int i, int row, int column) {
        float& value = operation.sum[static_cast<size_t>(lane)][i];
        sums.at[row][column] = value;
        value = std::numeric_limits<float>::quiet_NaN();
      });
    }
    if (sums.n != n) throw Fault("wgmma: products of two shapes in flight on one sum");
    ++sums.operations;
  }
  static void complete(Warp& warp, const Operation& operation) {
    const auto found = warp.sums.find(operation.sum[0]);
    Sums& sums = found->second;
    run(operation, sums);
    if (--sums.operations > 0) return;
    for_each_sum(sums.n, [&](int lane, int i, int row, int column) {
      operation.sum[static_cast<size_t>(lane)][i] = sums.at[row][column];
    });
    warp.sums.erase(found);
  }
  void check() const {
    int registers = 0, told = 0;
    for (size_t w = 0; w < warps_.size(); ++w) {
      const Warp& warp = warps_[w];
      if (!warp.open.empty() || !warp.groups.empty()) {
        throw Fault("a warp ends with products of wgmma that it has not waited for");
      }
      if (warp.issued != warps_[w / kGroupWarps * kGroupWarps].issued) {
        throw Fault("the warps of a warpgroup have issued different numbers of wgmma");
      }
      registers += warp.registers * kWarpSize;
      told += warp.registers > 0 ? 1 : 0;
    }
    if (told > 0 && told < static_cast<int>(warps_.size())) {
      throw Fault("setmaxnreg in some warps of a block, and not in all");
    }
    if (registers > kRegisters) {
      throw Fault("the warps of a block have taken " + std::to_string(registers) +
                  " registers of " + std::to_string(kRegisters));
    }
  }

  std::vector<Warp> warps_;
};

WarpgroupUnit& warpgroup_unit() { return Block::current().unit<WarpgroupUnit>(); }

void together(const char* what, std::source_location where, const void* in, Combine combine) {
  if (Block::current().num_threads() % (kGroupWarps * kWarpSize) != 0) {
    throw Fault(std::string(what) + " in a block that is not made of whole warpgroups");
  }
  warp_collective(what, where, kWholeWarp, in, nullptr, combine);
}

}  // namespace

// PTX ISA, "Matrix descriptor": bits 0-13 address, 16-29 leading and 32-45 stride byte offset, each
// without its lowest four bits; 49-51 base offset; 62-63 swizzle: none, 128, 64, 32 bytes. A unit
// is 16 bytes, or 8 elements.
uint32_t element_address(uint64_t descriptor, bool by_k, int row, int k) {
  const auto field = [&](int bit) {
    return static_cast<uint32_t>(descriptor >> bit & 0x3fff) << 4;
  };
  const uint32_t start = field(0), leading = field(16), stride = field(32);
  const int swizzle = std::array{0, 128, 64, 32}[descriptor >> 62];
  if ((descriptor >> 49 & 7) != 0) throw Fault("wgmma: a base offset, which is not emulated");
  const auto at = [](int value) { return static_cast<uint32_t>(value); };
  uint32_t offset = 0;
  if (swizzle != 0) {
    const auto rows = static_cast<uintptr_t>(swizzle) / 16;  // rows after which a pattern repeats
    if ((start >> 7 & (rows - 1)) != 0) {
      throw Fault("wgmma: a swizzled matrix begins inside the pattern");
    }
    const uint32_t width = at(swizzle);
    if (by_k) {
      offset = at(row % 8) * width + at(row / 8) * stride + at(k) * 2;
    } else {
      const uint32_t unit = at(row / 8), per_row = width / 16;
      offset = unit % per_row * 16 + unit / per_row * leading + at(k % 8) * width +
               at(k / 8) * stride + at(row % 8) * 2;
    }
  } else if (by_k) {
    offset = at(row % 8) * 16 + at(row / 8) * stride + at(k / 8) * leading + at(k % 8) * 2;
  } else {
    offset = at(row / 8) * stride + at(k % 8) * 16 + at(k / 8) * leading + at(row % 8) * 2;
  }
  return static_cast<uint32_t>(swizzled_address(start + offset, swizzle));
}

void warpgroup_multiply(const WarpgroupProduct& product, float* sum, const uint32_t* a,
                        std::source_location where) {
  const Issue issue{product, sum, a};
  together("wgmma", where, &issue,
           [](const void* const* in, void* const*, uint32_t) { warpgroup_unit().issue(in); });
}
void fence_products(std::source_location where) {
  together("wgmma.fence", where, nullptr, [](const void* const*, void* const*, uint32_t) {
    warpgroup_unit().mine().fenced = true;
  });
}
void commit_products(std::source_location where) {
  together("wgmma.commit_group", where, nullptr,
           [](const void* const*, void* const*, uint32_t) { warpgroup_unit().commit(); });
}
void wait_products(int pending, std::source_location where) {
  together("wgmma.wait_group", where, &pending, [](const void* const* in, void* const*, uint32_t) {
    warpgroup_unit().wait(*static_cast<const int*>(in[0]));
  });
}

void set_registers(int count, std::source_location where) {
  if (count < 24 || count > 256 || count % 8 != 0) {
    throw Fault("setmaxnreg: a multiple of 8 from 24 to 256");
  }
  together("setmaxnreg", where, &count, [](const void* const* in, void* const*, uint32_t) {
    warpgroup_unit().mine().registers = *static_cast<const int*>(in[0]);
  });
}

uint64_t warpgroup_products() { return issued_products; }

}  // namespace zinc::emulator
