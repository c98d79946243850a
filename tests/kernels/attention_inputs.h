// tests/kernels/attention_inputs.h: the tensors of one case of attention.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "core/philox.h"
#include "kernels/attention.h"
#include "tests/kernels/host_array.h"

namespace zinc::test {

enum Feature : unsigned {
  kCausal = 1,
  kLengths = 2,
  kDocuments = 4,
  kAlibi = 8,
  kBias = 16,        // [B, H, Tq, Tk]
  kSharedBias = 32,  // [1, H, Tq, Tk]
  kOneBias = 64,     // [1, 1, Tq, Tk]
  kDropout = 128,
  kScale = 256,
  kWindow = 512,
  kSoftcap = 1024,
  kDistanceBias = 2048,     // [H, Tq + Tk - 1]
  kOneDistanceBias = 4096,  // [1, Tq + Tk - 1]
  kPlace = 8192,            // keys from 21 on, the last query 5 in front of the last key
  kFarPlace = 16384,        // keys from 21 on, all queries behind the last
  kLayout = 32768,          // blocks of 16, of heads 1 to H of a layout of H + 2
  kOneLayout = 65536,       // blocks of 32, the same for all heads
};
inline constexpr unsigned kAnyBias =
    kBias | kSharedBias | kOneBias | kDistanceBias | kOneDistanceBias;

struct Case {
  const char* name;
  int64_t B, Tq, Tk, H, G, D;
  unsigned features;
};
inline void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

// All tensors of a case. q, k and v lie in buffers with other data between their heads.
struct Inputs {
  Case c;
  DType dtype, wide;
  HostArray q_store, k_store, v_store, dout_store;
  HostArray out, lse, dq, dk, dv, dbias;
  HostArray lengths, begin, end, slopes, bias, words;
  kernels::AttentionMask mask;
  kernels::AttentionDropout dropout;
  double scale = 0.0, softcap = 0.0;

  Inputs(const Case& the_case, DType type)
      : c(the_case), dtype(type), wide(type == DType::f64 ? DType::f64 : DType::f32) {
    q_store = HostArray::random({c.B, c.Tq, 2, c.H, c.D}, dtype, 1, -2, 2);
    k_store = HostArray::random({c.B, c.Tk, 3, c.G, c.D}, dtype, 2, -2, 2);
    v_store = HostArray::random({c.B, c.Tk, 3, c.G, c.D}, dtype, 3);
    dout_store = HostArray::random({c.B, c.H, c.Tq, c.D}, dtype, 4);
    out = HostArray({c.B, c.Tq, c.H, c.D}, dtype);
    lse = HostArray({c.B, c.H, c.Tq}, wide);
    dq = out;
    dk = dv = HostArray({c.B, c.Tk, c.G, c.D}, dtype);
    const DeviceScope scope(device_for(dtype));
    make_mask();
  }

  void make_mask() {
    mask.causal = (c.features & kCausal) != 0;
    if (c.features & kPlace) mask.origin = {.query = 21 + c.Tk - c.Tq - 5, .key = 21};
    if (c.features & kFarPlace) mask.origin = {.query = 21 + c.Tk + 3, .key = 21};
    if (c.features & kLengths) {
      lengths = HostArray({c.B}, DType::i32);
      for (int64_t b = 0; b < c.B; ++b) {
        lengths.set(b, static_cast<double>(first_key() + c.Tk * b / c.B));
      }
      mask.key_lengths = lengths;
    }
    if (c.features & kDocuments) make_documents_of(13);
    if (c.features & kAlibi) {
      slopes = HostArray({c.H}, DType::f32);
      for (int64_t h = 0; h < c.H; ++h) slopes.set(h, std::exp2(-static_cast<double>(h + 1)));
      mask.alibi_slopes = slopes;
    }
    if (c.features & kWindow) mask.window = 11;
    if (c.features & kSoftcap) softcap = 1.5;  // scores reach 16
    if (c.features & kAnyBias) {
      const int64_t batches = c.features & kBias ? c.B : 1;
      const int64_t heads = c.features & (kOneBias | kOneDistanceBias) ? 1 : c.H;
      const bool by_distance = (c.features & (kDistanceBias | kOneDistanceBias)) != 0;
      bias = HostArray::random(
          by_distance ? Shape{heads, c.Tq + c.Tk - 1} : Shape{batches, heads, c.Tq, c.Tk}, wide, 5);
      dbias = bias;
      dbias.set_all(std::nan(""));
      mask.bias = bias;
    }
    if (c.features & kLayout) make_layout(16, c.H + 2);
    if (c.features & kOneLayout) make_layout(32, 1);
    if (c.features & kDropout) {
      dropout = {.probability = 0.25f, .key = make_random_key(7, Purpose::dropout, 1, 2, 3)};
    }
    if (c.features & kScale) scale = 0.3;
  }

  // The positions of the first query and the first key in the sequence.
  int64_t first_query() const { return mask.origin ? mask.origin->query : c.Tk - c.Tq; }
  int64_t first_key() const { return mask.origin ? mask.origin->key : 0; }

  // Sets documents of `length` tokens, and of 4 more for every batch before.
  void make_documents_of(int64_t length) {
    const DeviceScope scope(device_for(dtype));
    begin = HostArray({c.B, c.Tq}, DType::i32);
    end = begin;
    for (int64_t e = 0; e < c.B * c.Tq; ++e) {
      const int64_t position = first_query() + e % c.Tq, of_batch = length + 4 * (e / c.Tq);
      begin.set(e, static_cast<double>(position / of_batch * of_batch));
      end.set(e, static_cast<double>((position / of_batch + 1) * of_batch));
    }
    mask.key_begin = begin;
    mask.key_end = end;
  }

  // A third of the blocks, in runs and alone; every block sees itself unless it is among the
  // first, and every third row is as the one before.
  void make_layout(int64_t block, int64_t heads) {
    const int64_t tokens = std::max(first_query() + c.Tq, first_key() + c.Tk);
    const int64_t n = (tokens + block - 1) / block;
    std::vector<uint8_t> seen;
    for (int64_t e = 0; e < heads * n * n; ++e) {
      const int64_t h = e / (n * n), row = e / n % n, column = e % n;
      const int64_t like = row % 3 == 2 ? row - 1 : row;
      const uint64_t draw = hash_text(std::to_string((h * n + like) * n + column)) >> 20;
      seen.push_back(draw % 3 == 0 || column == std::max<int64_t>(like, 1) % n ? 1 : 0);
    }
    set_layout(std::make_shared<const BlockLayout>(block, heads, n, seen), heads == 1 ? 0 : 1);
  }
  void set_layout(const BlockLayoutPtr& blocks, int64_t first_head) {
    const DeviceScope scope(device_for(dtype));
    mask.layout = {.blocks = blocks, .first_head = first_head};
    if (!runs_on_cuda()) return;
    words = HostArray({std::ssize(blocks->words())}, DType::i32);
    for (int64_t w = 0; w < words.numel(); ++w) {
      words.set(w, blocks->words()[static_cast<size_t>(w)]);
    }
    mask.layout.words = words;
  }

  static View part(const HostArray& store, int64_t at, int64_t B, int64_t T, int64_t heads,
                   int64_t D) {
    const View& view = store.view();
    const View one = view.narrow(2, at, 1);
    return View(one.data(), view.dtype(), {B, T, heads, D},
                {view.stride(0), view.stride(1), view.stride(3), 1}, device(), Tier::device);
  }
  View q() const { return part(q_store, 1, c.B, c.Tq, c.H, c.D); }
  View k() const { return part(k_store, 2, c.B, c.Tk, c.G, c.D); }
  View v() const { return part(v_store, 0, c.B, c.Tk, c.G, c.D); }
  View dout() const {  // stored [B, H, Tq, D]
    const View& view = dout_store.view();
    return View(view.data(), dtype, {c.B, c.Tq, c.H, c.D},
                {view.stride(0), view.stride(2), view.stride(1), 1}, device(), Tier::device);
  }

  // The same values in f64.
  Inputs in_f64() const {
    Inputs other(c, DType::f64);
    other.q_store = q_store.as(DType::f64);
    other.k_store = k_store.as(DType::f64);
    other.v_store = v_store.as(DType::f64);
    other.dout_store = dout_store.as(DType::f64);
    if (mask.bias) {
      const DeviceScope scope(kCpu);
      other.bias = bias.as(DType::f64);
      other.mask.bias = other.bias;
    }
    return other;
  }

  void forward(StreamRef stream) {
    const DeviceScope scope(device_for(dtype));
    kernels::attention_forward({.q = q(),
                                .k = k(),
                                .v = v(),
                                .out = out,
                                .lse = lse,
                                .scale = scale,
                                .softcap = softcap,
                                .mask = mask,
                                .dropout = dropout},
                               stream);
  }
  void backward(StreamRef stream) {
    const DeviceScope scope(device_for(dtype));
    kernels::AttentionBackward args{.q = q(),
                                    .k = k(),
                                    .v = v(),
                                    .out = out,
                                    .lse = lse,
                                    .dout = dout(),
                                    .dq = dq,
                                    .dk = dk,
                                    .dv = dv,
                                    .scale = scale,
                                    .softcap = softcap,
                                    .mask = mask,
                                    .dropout = dropout};
    if (mask.bias) args.dbias = dbias;
    kernels::attention_backward(args, stream);
  }
};

}  // namespace zinc::test
