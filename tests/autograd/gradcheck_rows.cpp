#include "tests/autograd/gradcheck_rows.h"

namespace zinc::testing {

std::vector<GradcheckRow> gradcheck_rows() {
  std::vector<GradcheckRow> rows;
  add_elementwise_rows(rows);
  add_layer_rows(rows);
  add_attention_rows(rows);
  add_layout_rows(rows);
  add_function_rows(rows);
  return rows;
}

}  // namespace zinc::testing
