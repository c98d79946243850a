// kernels/cpu/tiles.h: the tile registers of AMX, for products of bf16.
//
// TDPBF16PS adds to 16 x 16 sums in f32 the product of 16 rows of 32 elements with 32 rows of 16,
// of which two at a time lie as pairs. It takes 16 cycles.
#pragma once

#include "kernels/cpu/bf16_panels.h"

#ifdef ZINC_BF16_DOT
#include <sys/syscall.h>
#include <unistd.h>

#define ZINC_TILES \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,amx-tile,amx-bf16")))

namespace zinc::kernels::cpu {

inline constexpr int64_t kTileRows = 16;
inline constexpr int64_t kTileDepth = 32;  // elements of k
inline constexpr int64_t kTileBytes = 1024;

// Whether the CPU has tiles and the kernel lets this process use them.
inline bool may_use_tiles() {
  static const bool may = [] {
    constexpr int kRequestState = 0x1023, kTileData = 18;  // Linux, asm/prctl.h
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
           __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512bf16") != 0 &&
           __builtin_cpu_supports("amx-tile") != 0 && __builtin_cpu_supports("amx-bf16") != 0 &&
           ::syscall(SYS_arch_prctl, kRequestState, kTileData) == 0;
  }();
  return may;
}

// The operand of LDTILECFG. No tile has a shape at first.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  void set(int tile, int64_t tile_rows, int64_t bytes) {
    rows[tile] = static_cast<uint8_t>(tile_rows);
    row_bytes[tile] = static_cast<uint16_t>(bytes);
  }
};

// Before tiles are loaded or configured: the compiler does not know that this reads memory.
inline void finish_stores() { __asm__ volatile("" ::: "memory"); }

}  // namespace zinc::kernels::cpu
#endif
