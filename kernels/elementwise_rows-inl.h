// kernels/elementwise_rows-inl.h: the lines of elementwise_table.h as functions of numbers N.
//
// Included, without a guard, inside the namespace of each kind of number, with the attributes of
// its functions in ZINC_ELEMENT.

template <UnaryOp kOp>
struct UnaryRow;
#define ZINC_ROW(name, value_of_row, dx, ...)                                        \
  template <>                                                                        \
  struct UnaryRow<UnaryOp::name> {                                                   \
    template <class N>                                                               \
    static ZINC_ELEMENT N value(N x, [[maybe_unused]] N p, [[maybe_unused]] N q) {   \
      return value_of_row;                                                           \
    }                                                                                \
    template <class N>                                                               \
    static ZINC_ELEMENT N gradient([[maybe_unused]] N x, N dy, [[maybe_unused]] N p, \
                                   [[maybe_unused]] N q) {                           \
      return dx;                                                                     \
    }                                                                                \
  };
ZINC_UNARY_OPS(ZINC_ROW)
#undef ZINC_ROW

template <BinaryOp kOp>
struct BinaryRow;
#define ZINC_ROW(name, value_of_row, da, db, reads)                                         \
  template <>                                                                               \
  struct BinaryRow<BinaryOp::name> {                                                        \
    template <class N>                                                                      \
    static ZINC_ELEMENT N value(N a, N b) {                                                 \
      return value_of_row;                                                                  \
    }                                                                                       \
    template <class N>                                                                      \
    static ZINC_ELEMENT N gradient_of_a([[maybe_unused]] N a, [[maybe_unused]] N b, N dy) { \
      return da;                                                                            \
    }                                                                                       \
    /* What one element adds to the gradient of b. */                                       \
    template <class N>                                                                      \
    static ZINC_ELEMENT N gradient_of_b([[maybe_unused]] N a, [[maybe_unused]] N b, N dy) { \
      return db;                                                                            \
    }                                                                                       \
  };
ZINC_BINARY_OPS(ZINC_ROW)
#undef ZINC_ROW

template <CompareOp kOp>
struct CompareRow;
#define ZINC_ROW(name, mask)                   \
  template <>                                  \
  struct CompareRow<CompareOp::name> {         \
    template <class N>                         \
    static ZINC_ELEMENT auto holds(N a, N b) { \
      return mask;                             \
    }                                          \
  };
ZINC_COMPARE_OPS(ZINC_ROW)
#undef ZINC_ROW

// The same for an op that is known when they run.
template <class N>
ZINC_ELEMENT N value_of(UnaryOp op, N x, N p, N q) {
  switch (op) {
#define ZINC_ROW(name, ...) \
  case UnaryOp::name:       \
    return UnaryRow<UnaryOp::name>::value(x, p, q);
    ZINC_UNARY_OPS(ZINC_ROW)
#undef ZINC_ROW
  }
  return x;
}
template <class N>
ZINC_ELEMENT N gradient_of(UnaryOp op, N x, N dy, N p, N q) {
  switch (op) {
#define ZINC_ROW(name, ...) \
  case UnaryOp::name:       \
    return UnaryRow<UnaryOp::name>::gradient(x, dy, p, q);
    ZINC_UNARY_OPS(ZINC_ROW)
#undef ZINC_ROW
  }
  return x;
}
#define ZINC_ROW(name, function) \
  case BinaryOp::name:           \
    return BinaryRow<BinaryOp::name>::function;
#define ZINC_VALUE_ROW(name, ...) ZINC_ROW(name, value(a, b))
#define ZINC_A_ROW(name, ...) ZINC_ROW(name, gradient_of_a(a, b, dy))
#define ZINC_B_ROW(name, ...) ZINC_ROW(name, gradient_of_b(a, b, dy))
template <class N>
ZINC_ELEMENT N value_of(BinaryOp op, N a, N b) {
  switch (op) { ZINC_BINARY_OPS(ZINC_VALUE_ROW) }
  return a;
}
template <class N>
ZINC_ELEMENT N gradient_of_a(BinaryOp op, N a, N b, N dy) {
  switch (op) { ZINC_BINARY_OPS(ZINC_A_ROW) }
  return dy;
}
template <class N>
ZINC_ELEMENT N gradient_of_b(BinaryOp op, N a, N b, N dy) {
  switch (op) { ZINC_BINARY_OPS(ZINC_B_ROW) }
  return dy;
}
#undef ZINC_B_ROW
#undef ZINC_A_ROW
#undef ZINC_VALUE_ROW
#undef ZINC_ROW

template <class N>
ZINC_ELEMENT bool holds(CompareOp op, N a, N b) {
  switch (op) {
#define ZINC_ROW(name, ...) \
  case CompareOp::name:     \
    return CompareRow<CompareOp::name>::holds(a, b);
    ZINC_COMPARE_OPS(ZINC_ROW)
#undef ZINC_ROW
  }
  return false;
}
