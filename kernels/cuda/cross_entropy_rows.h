// kernels/cuda/cross_entropy_rows.h: what cross_entropy and linear_cross_entropy share; contracts
// in kernels/cpu/cross_entropy_rows.h. Labels: Note [Indices outside their range on a GPU].
#pragma once

#include "core/stream.h"
#include "kernels/cpu/cross_entropy_rows.h"

namespace zinc::kernels::cuda {

void cross_entropy_rows(const char* op, const cpu::CrossEntropyRows& args, StreamRef stream);
void sum_row_losses(const double* row_loss, int64_t rows, const View& loss, StreamRef stream);

// The same as the functions of kernels/cpu/linear_cross_entropy.h; columns are summed in the order
// of Note [Order of sums].
void sum_columns(const char* op, const ConstView& x, const View& sum, bool accumulate,
                 StreamRef stream);
void round_sum(const char* op, const ConstView& sum, const View& target, bool accumulate,
               StreamRef stream);

}  // namespace zinc::kernels::cuda
