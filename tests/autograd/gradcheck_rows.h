// tests/autograd/gradcheck_rows.h: the table of every differentiable op.
#pragma once

#include <vector>

#include "tests/autograd/gradcheck.h"

namespace zinc::testing {

std::vector<GradcheckRow> gradcheck_rows();

// The parts of the table, one file each.
void add_elementwise_rows(std::vector<GradcheckRow>& rows);
void add_layer_rows(std::vector<GradcheckRow>& rows);
void add_attention_rows(std::vector<GradcheckRow>& rows);
void add_layout_rows(std::vector<GradcheckRow>& rows);
void add_function_rows(std::vector<GradcheckRow>& rows);

}  // namespace zinc::testing
