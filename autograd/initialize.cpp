#include <cmath>
#include <cstdint>
#include <string_view>

#include "autograd/parameter.h"
#include "core/parallel.h"
#include "core/philox.h"

namespace zinc::autograd {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements per chunk

// F(-2) of the normal distribution; F(2) = 1 - F(-2).
constexpr double kLowerTail = 0.022750131948179207200;

template <int n>
double polynomial(const double (&coefficients)[n], double x) {
  double sum = coefficients[n - 1];
  for (int i = n - 2; i >= 0; --i) sum = sum * x + coefficients[i];
  return sum;
}

// Natural logarithm of a positive normal number from operations that round exactly, so that it has
// the same bits under every C library: log(2^e m) = e log 2 + 2 atanh((m - 1) / (m + 1)).
double exact_log(double x) {
  int exponent = 0;
  double mantissa = std::frexp(x, &exponent);  // in [1/2, 1)
  if (mantissa < 0.70710678118654752440) {
    mantissa *= 2;
    --exponent;
  }
  const double s = (mantissa - 1) / (mantissa + 1);  // |s| < 0.1716: s^24 / 25 is below 2^-53
  double series = 0;
  for (int k = 23; k >= 1; k -= 2) series = series * (s * s) + 1.0 / k;
  return exponent * 0.69314718055994530942 + 2 * s * series;
}

// z with F(z) = p. Wichura 1988, PPND16: relative error about 1e-16.
double inverse_normal(double p) {
  static constexpr double a[] = {3.3871328727963666080e0,  1.3314166789178437745e+2,
                                 1.9715909503065514427e+3, 1.3731693765509461125e+4,
                                 4.5921953931549871457e+4, 6.7265770927008700853e+4,
                                 3.3430575583588128105e+4, 2.5090809287301226727e+3};
  static constexpr double b[] = {1.0,
                                 4.2313330701600911252e+1,
                                 6.8718700749205790830e+2,
                                 5.3941960214247511077e+3,
                                 2.1213794301586595867e+4,
                                 3.9307895800092710610e+4,
                                 2.8729085735721942674e+4,
                                 5.2264952788528545610e+3};
  static constexpr double c[] = {1.42343711074968357734e0,  4.63033784615654529590e0,
                                 5.76949722146069140550e0,  3.64784832476320460504e0,
                                 1.27045825245236838258e0,  2.41780725177450611770e-1,
                                 2.27238449892691845833e-2, 7.74545014278341407640e-4};
  static constexpr double d[] = {1.0,
                                 2.05319162663775882187e0,
                                 1.67638483018380384940e0,
                                 6.89767334985100004550e-1,
                                 1.48103976427480074590e-1,
                                 1.51986665636164571966e-2,
                                 5.47593808499534494600e-4,
                                 1.05075007164441684324e-9};
  static constexpr double e[] = {6.65790464350110377720e0,  5.46378491116411436990e0,
                                 1.78482653991729133580e0,  2.96560571828504891230e-1,
                                 2.65321895265761230930e-2, 1.24266094738807843860e-3,
                                 2.71155556874348757815e-5, 2.01033439929228813265e-7};
  static constexpr double f[] = {1.0,
                                 5.99832206555887937690e-1,
                                 1.36929880922735805310e-1,
                                 1.48753612908506148525e-2,
                                 7.86869131145613259100e-4,
                                 1.84631831751005468180e-5,
                                 1.42151175831644588870e-7,
                                 2.04426310338993978564e-15};
  const double q = p - 0.5;
  if (std::abs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * polynomial(a, r) / polynomial(b, r);
  }
  const double r = std::sqrt(-exact_log(q < 0 ? p : 1 - p));
  const double z = r <= 5 ? polynomial(c, r - 1.6) / polynomial(d, r - 1.6)
                          : polynomial(e, r - 5) / polynomial(f, r - 5);
  return q < 0 ? -z : z;
}

double element(const Initializer& initializer, uint64_t bits) {
  const double open = (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52;  // in (0, 1)
  switch (initializer.kind) {
    case Initializer::Kind::constant:
      return initializer.first;
    case Initializer::Kind::uniform:
      return initializer.first +
             (initializer.second - initializer.first) * (static_cast<double>(bits >> 11) * 0x1p-53);
    case Initializer::Kind::normal:
      return initializer.first + initializer.second * inverse_normal(open);
    case Initializer::Kind::truncated_normal:
      return initializer.first +
             initializer.second * inverse_normal(kLowerTail + (1 - 2 * kLowerTail) * open);
  }
  return 0;
}

template <class T>
T rounded(double value) {
  if constexpr (sizeof(T) == 2) {
    return T(round_to_odd(value));
  } else {
    return static_cast<T>(value);
  }
}

}  // namespace

void initialize_range(const Initializer& initializer, uint64_t seed, std::string_view name,
                      int64_t begin, View out) {
  require(out.is_contiguous() && begin >= 0,
          "initialize_range: `out` must be contiguous and `begin` not negative");
  require(out.device().is_cpu() && !out.device().meta, "initialize_range: `out` must lie in host ",
          "memory, not on ", out.device());
  const RandomKey key = make_random_key(seed, Purpose::initialize, 0, 0, hash_text(name));
  dispatch_float(out.dtype(), [&]<class T>() {
    T* data = out.data_as<T>();
    if (initializer.kind == Initializer::Kind::constant) {
      const T value = rounded<T>(initializer.first);
      parallel_for(out.numel(), kGrain, [=](int64_t from, int64_t to) {
        for (int64_t i = from; i < to; ++i) data[i] = value;
      });
      return;
    }
    parallel_for(out.numel(), kGrain, [=](int64_t from, int64_t to) {
      PhiloxBlock block{};
      uint64_t held = ~uint64_t{0};
      for (int64_t i = from; i < to; ++i) {
        const auto index = static_cast<uint64_t>(begin + i);
        if (index / 2 != held) {
          held = index / 2;
          block = philox4x32(held, key.counter_high, key.key);
        }
        const auto word = static_cast<size_t>(2 * (index % 2));
        const uint64_t bits = block.word[word] | (uint64_t{block.word[word + 1]} << 32);
        data[i] = rounded<T>(element(initializer, bits));
      }
    });
  });
}

}  // namespace zinc::autograd
