// kernels/update_rows-inl.h: the rules of update_table.h as functions of numbers N.
//
// Included, without a guard, inside the namespace of each kind of number, with the attributes of
// its functions in ZINC_ELEMENT. The vocabulary: that of elementwise_table.h, and fma(). `k[i]`: a
// scalar as N. `k.has(i)`: whether it differs from 0. Their order: update_rules.cpp. Where the
// result is a direction, `w` is the weight before, 0 where the rule reads none, and the direction
// behind.

template <UpdateRule kRule>
struct UpdateRow;

template <>
struct UpdateRow<UpdateRule::adagrad> {
  template <class N, class K>
  static ZINC_ELEMENT void step(N& w, N g, N* s, const K& k) {
    if (k.has(2)) g = fma(k[2], w, g);
    s[0] = fma(g, g, s[0]);
    w = fma(k[0], g / (sqrt(s[0]) + k[1]), w);
  }
};

template <>
struct UpdateRow<UpdateRule::adamw> {
  template <class N, class K>
  static ZINC_ELEMENT void step(N& w, N g, N* s, const K& k) {
    if (k.has(8)) g = fma(k[8], w, g);
    s[0] = fma(k[0], s[0], k[1] * g);
    s[1] = fma(k[2], s[1], (k[3] * g) * g);
    const N denominator = fma(sqrt(s[1]), k[5], k[6]);
    if (k.has(7)) w = fma(k[7], w, w);
    w = fma(k[4], s[0] / denominator, w);
  }
};

template <>
struct UpdateRow<UpdateRule::amsgrad> {
  template <class N, class K>
  static ZINC_ELEMENT void step(N& w, N g, N* s, const K& k) {
    if (k.has(8)) g = fma(k[8], w, g);
    s[0] = fma(k[0], s[0], k[1] * g);
    s[1] = fma(k[2], s[1], (k[3] * g) * g);
    s[2] = select(s[2] >= s[1], s[2], s[1]);
    const N denominator = fma(sqrt(s[2]), k[5], k[6]);
    if (k.has(7)) w = fma(k[7], w, w);
    w = fma(k[4], s[0] / denominator, w);
  }
};

template <>
struct UpdateRow<UpdateRule::gradient> {
  template <class N, class K>
  static ZINC_ELEMENT void step(N& w, N g, N*, const K&) {
    w = g;
  }
};

template <>
struct UpdateRow<UpdateRule::lamb> {
  template <class N, class K>
  static ZINC_ELEMENT void step(N& w, N g, N* s, const K& k) {
    s[0] = fma(k[0], s[0], k[1] * g);
    s[1] = fma(k[2], s[1], (k[3] * g) * g);
    const N direction = s[0] / (sqrt(s[1]) + k[4]);
    w = k.has(5) ? fma(k[5], w, direction) : direction;
  }
};

template <>
struct UpdateRow<UpdateRule::lion> {
  template <class N, class K>
  static ZINC_ELEMENT void step(N& w, N g, N* s, const K& k) {
    const N u = fma(k[0], s[0], k[1] * g);
    const N sign = select(u > N(0.0), N(1.0), select(u < N(0.0), N(-1.0), u));
    if (k.has(5)) w = fma(k[5], w, w);
    w = fma(k[4], sign, w);
    s[0] = fma(k[2], s[0], k[3] * g);
  }
};

template <>
struct UpdateRow<UpdateRule::momentum> {
  template <class N, class K>
  static ZINC_ELEMENT void step(N& w, N g, N* s, const K& k) {
    if (k.has(1)) g = fma(k[1], w, g);
    s[0] = k.has(5) ? g : fma(k[2], s[0], k[3] * g);
    w = fma(k[0], k.has(4) ? fma(k[2], s[0], g) : s[0], w);
  }
};

template <>
struct UpdateRow<UpdateRule::muon> {
  template <class N, class K>
  static ZINC_ELEMENT void step(N& w, N g, N* s, const K& k) {
    const N share = k[1] * g;
    s[0] = fma(k[0], s[0], share);
    w = k.has(2) ? fma(k[0], s[0], share) : s[0];
  }
};

template <>
struct UpdateRow<UpdateRule::onebit> {
  template <class N, class K>
  static ZINC_ELEMENT void step(N& w, N g, N* s, const K& k) {
    s[0] = g;
    const N ratio = g / (sqrt(s[1]) + k[1]);
    if (k.has(2)) w = fma(k[2], w, w);
    w = fma(k[0], select(s[1] > N(0.0), ratio, N(0.0)), w);
  }
};

template <>
struct UpdateRow<UpdateRule::running_mean> {
  template <class N, class K>
  static ZINC_ELEMENT void step(N& w, N g, N*, const K& k) {
    w = fma(k[0], w, fma(k[1], g, k[2]));
  }
};

template <>
struct UpdateRow<UpdateRule::schedulefree> {
  template <class N, class K>
  static ZINC_ELEMENT void step(N& w, N g, N* s, const K& k) {
    s[1] = fma(k[0], s[1], (k[1] * g) * g);
    N u = g / fma(sqrt(s[1]), k[2], k[3]);
    if (k.has(4)) u = fma(k[4], w, u);
    w = fma(k[5], s[0] - w, w);
    w = fma(k[6], u, w);
    s[0] = fma(k[7], u, s[0]);
  }
};

template <>
struct UpdateRow<UpdateRule::schedulefree_average> {
  template <class N, class K>
  static ZINC_ELEMENT void step(N& w, N g, N* s, const K& k) {
    w = fma(k[0], s[0] - g, g);
  }
};

template <>
struct UpdateRow<UpdateRule::sgd> {
  template <class N, class K>
  static ZINC_ELEMENT void step(N& w, N g, N*, const K& k) {
    if (k.has(1)) g = fma(k[1], w, g);
    w = fma(k[0], g, w);
  }
};

template <>
struct UpdateRow<UpdateRule::sgdw> {
  template <class N, class K>
  static ZINC_ELEMENT void step(N& w, N g, N*, const K& k) {
    if (k.has(1)) w = fma(k[1], w, w);
    w = fma(k[0], g, w);
  }
};
