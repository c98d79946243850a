// kernels/rotary.h: rotary position embedding (Su et al., "RoFormer", 2021, section 3.2.2), in
// place. A pair (u, v) of a head at position p turns by the angle p * frequency[j]: u' = u * cos -
// v * sin;  v' = u * sin + v * cos half_split: pair j is (x[j], x[j + n/2]); interleaved: (x[2j],
// x[2j + 1]); j < n/2, where n = rotary_dims <= D; elements from n on stay as they are.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"

namespace zinc::kernels {

enum class RotaryLayout : uint8_t {
  half_split,   // Hugging Face's Llama files
  interleaved,  // Meta's Llama files, ChatGLM
};

// How frequencies are changed for longer contexts than the model was first trained on.
struct RotaryScaling {
  enum class Kind : uint8_t {
    none,
    linear,  // every frequency / factor (position interpolation)
    llama3,  // long wavelengths / factor, short ones as they are, a ramp between
  };
  Kind kind = Kind::none;
  double factor = 1.0;
  double low_freq_factor = 1.0;            // llama3
  double high_freq_factor = 4.0;           // llama3
  double original_max_positions = 8192.0;  // llama3
};

// frequency[j] = theta^(-2j / rotary_dims), scaled; [rotary_dims / 2] radians per position, in f64.
// llama3: with wavelength w = 2 pi / f and L = original_max_positions: f where w < L /
// high_freq_factor; f / factor where w > L / low_freq_factor; else (1 - s) * f / factor + s * f
// with s = (L / w - low_freq_factor) / (high_freq_factor - low_freq_factor).
std::vector<double> rotary_frequencies(int64_t rotary_dims, double theta,
                                       const RotaryScaling& scaling = {});

// Fills host memory: cos[p, j] and sin[p, j] of the angle (first_position + p) * frequencies[j],
// computed in f64 and rounded once. Synchronous.
// cos, sin: [positions, frequencies.size()] f64 | f32, contiguous, in memory that the host can
// write.
void fill_rotary_table(std::span<const double> frequencies, int64_t first_position, const View& cos,
                       const View& sin);

struct Rotary {
  View q;                 // [B, T, H, D] f64 | f32 | bf16 | f16, in place; outer strides are free
  View k{};               // [B, T, KV, D] likewise; dtype of q; may be absent
  ConstView cos, sin;     // [positions, rotary_dims / 2] f32 (f64 for f64), contiguous
  ConstView positions{};  // [B, T] i32 | i64, contiguous: rows of cos and sin; absent: start + t
  int64_t start = 0;      // position of t = 0 where `positions` is absent
  RotaryLayout layout = RotaryLayout::half_split;
  bool inverse = false;  // turns back: the gradient of the rotation
};

// Asynchronous on `stream`. Computed in f32 (f64), rounded once. Deterministic. A position outside
// the table is an InvalidArgument from the stream; on a GPU its token becomes NaN, and the error
// comes from the next wait for the device.
void rotary(const Rotary& args, StreamRef stream);
Cost cost(const Rotary& args);

}  // namespace zinc::kernels
