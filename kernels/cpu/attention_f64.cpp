// The f64 path of attention: rows of scores one by one, plain loops. Forward runs over (b, h, i) in
// parallel; backward over key heads, or over what shares an element of dbias, so that each gradient
// is added up by one thread in the order of h and i.
#include <cmath>
#include <limits>
#include <vector>

#include "core/parallel.h"
#include "kernels/attention_problem.h"

namespace zinc::kernels::cpu {
namespace {

struct Row {
  int64_t b, h, i;
};

const double* row_pointer(const HeadsView& view, int64_t b, int64_t t, int64_t h) {
  return static_cast<const double*>(view.data) + view.at(b, t, h);
}
double* row_target(const HeadsView& view, int64_t b, int64_t t, int64_t h) {
  return const_cast<double*>(row_pointer(view, b, t, h));
}

double dot(const double* x, const double* y, int64_t n) {
  double sum = 0.0;
  for (int64_t d = 0; d < n; ++d) sum += x[d] * y[d];
  return sum;
}
void add_scaled(double factor, const double* x, double* y, int64_t n) {
  for (int64_t d = 0; d < n; ++d) y[d] += factor * x[d];
}

struct Score {
  double value;
  double slope;  // growth of the score with the scaled product
};

Score score(const AttentionProblem& p, const Row& row, int64_t j) {
  const int64_t g = row.h / p.heads_per_group();
  Score s{p.scale * dot(row_pointer(p.q, row.b, row.i, row.h), row_pointer(p.k, row.b, j, g), p.D),
          1.0};
  if (p.softcap != 0.0) {
    const double part = std::tanh(s.value / p.softcap);
    s = {p.softcap * part, 1.0 - part * part};
  }
  if (p.mask.alibi_slopes) {
    const auto distance = static_cast<double>(std::abs(p.position(row.i) - j));
    s.value -= double{p.mask.alibi_slopes.data_as<float>()[row.h]} * distance;
  }
  if (p.mask.bias) {
    const int64_t at = p.bias_rows(p.mask.bias).at(row.b, row.h, row.i);
    s.value += p.mask.bias.data_as<double>()[at + j];
  }
  return s;
}

double kept(const AttentionProblem& p, const Row& row, int64_t j) {
  const float probability = p.dropout.probability;
  if (probability == 0.0f) return 1.0;
  const float draw = p.dropout.key.uniform(p.dropout_element(row.b, row.h, row.i, j));
  return draw < probability ? 0.0 : 1.0 / (1.0 - double{probability});
}

// visit(j) for every key that the query sees, in order.
template <class Visit>
void for_each_key(const AttentionProblem& p, const Row& row, const Visit& visit) {
  const KeyRange keys = p.keys_of(row.b, row.i);
  p.for_each_run(row.h, row.i, [&](const KeyRange& run) {
    const KeyRange seen = run.within(keys);
    for (int64_t j = seen.begin; j < seen.end; ++j) visit(j);
  });
}

void forward_row(const AttentionProblem& p, const Row& row, double* out, double* lse,
                 std::vector<double>& scores) {
  std::fill(out, out + p.D, 0.0);
  double max = -std::numeric_limits<double>::infinity();
  for_each_key(p, row, [&](int64_t j) {
    scores[static_cast<size_t>(j)] = score(p, row, j).value;
    max = std::max(max, scores[static_cast<size_t>(j)]);
  });
  if (lse != nullptr) *lse = max;
  if (std::isinf(max) && max < 0.0) return;  // no key, or all at -infinity
  double sum = 0.0;
  for_each_key(p, row, [&](int64_t j) {
    double& s = scores[static_cast<size_t>(j)];
    s = std::exp(s - max);
    sum += s;
  });
  for_each_key(p, row, [&](int64_t j) {
    const double weight = scores[static_cast<size_t>(j)] / sum * kept(p, row, j);
    add_scaled(weight, row_pointer(p.v, row.b, j, row.h / p.heads_per_group()), out, p.D);
  });
  if (lse != nullptr) *lse = max + std::log(sum);
}

void backward_row(const AttentionProblem& p, const AttentionGradients& g, const Row& row) {
  const int64_t group = row.h / p.heads_per_group();
  const double* dout = row_pointer(g.dout, row.b, row.i, row.h);
  const double delta = dot(dout, row_pointer(g.out, row.b, row.i, row.h), p.D);
  const double lse = static_cast<const double*>(g.lse)[p.lse_at(row.b, row.h, row.i)];
  double* dq = row_target(g.dq, row.b, row.i, row.h);
  std::fill(dq, dq + p.D, 0.0);
  if (std::isinf(lse) && lse < 0.0) return;
  for_each_key(p, row, [&](int64_t j) {
    const Score s = score(p, row, j);
    const double weight = std::exp(s.value - lse);
    const double keep = kept(p, row, j);
    const double dweight = keep * dot(dout, row_pointer(p.v, row.b, j, group), p.D);
    const double ds = weight * (dweight - delta);
    add_scaled(weight * keep, dout, row_target(g.dv, row.b, j, group), p.D);
    const double dproduct = ds * s.slope * p.scale;
    add_scaled(dproduct, row_pointer(p.k, row.b, j, group), dq, p.D);
    add_scaled(dproduct, row_pointer(p.q, row.b, row.i, row.h), row_target(g.dk, row.b, j, group),
               p.D);
    if (g.dbias) {
      const int64_t at = p.bias_rows(g.dbias).at(row.b, row.h, row.i);
      g.dbias.data_as<double>()[at + j] += ds;
    }
  });
}

}  // namespace

void attention_forward_f64(const AttentionProblem& p, const HeadsView& out, double* lse) {
  parallel_for(p.B * p.H, 1, [&](int64_t t, int64_t) {
    std::vector<double> scores(static_cast<size_t>(p.Tk));
    for (int64_t i = 0; i < p.Tq; ++i) {
      const Row row{t / p.H, t % p.H, i};
      forward_row(p, row, row_target(out, row.b, i, row.h),
                  lse == nullptr ? nullptr : lse + p.lse_at(row.b, row.h, i), scores);
    }
  });
}

void attention_backward_f64(const AttentionProblem& p, const AttentionGradients& g) {
  for (int64_t b = 0; b < p.B; ++b) {
    for (int64_t j = 0; j < p.Tk; ++j) {
      for (int64_t h = 0; h < p.G; ++h) {
        std::fill_n(row_target(g.dk, b, j, h), p.D, 0.0);
        std::fill_n(row_target(g.dv, b, j, h), p.D, 0.0);
      }
    }
  }
  if (g.dbias) std::fill_n(g.dbias.data_as<double>(), g.dbias.numel(), 0.0);
  const auto group = [&](int64_t b, int64_t h) {
    for (int64_t i = 0; i < p.Tq; ++i) backward_row(p, g, {b, h, i});
  };
  const bool over_batch = g.dbias && p.bias_rows(g.dbias).batch == 0;
  const bool over_heads = g.dbias && p.bias_rows(g.dbias).head == 0;
  const int64_t batches = over_batch ? 1 : p.B;
  const int64_t groups = over_heads ? 1 : p.G;
  parallel_for(batches * groups, 1, [&](int64_t t, int64_t) {
    const int64_t b_begin = over_batch ? 0 : t / groups;
    const int64_t b_end = over_batch ? p.B : b_begin + 1;
    const int64_t heads = over_heads ? p.H : p.heads_per_group();
    const int64_t h_begin = over_heads ? 0 : t % groups * heads;
    for (int64_t b = b_begin; b < b_end; ++b) {
      for (int64_t h = h_begin; h < h_begin + heads; ++h) group(b, h);
    }
  });
}

}  // namespace zinc::kernels::cpu
