// optim/norm_scale.h: a whole array scaled by its norm.
#pragma once

#include "core/stream.h"
#include "core/view.h"

namespace zinc::optim {

// y = x * (factor / max(|x|, least_norm)), |x| in the Frobenius norm; y may be x. With factor =
// least_norm the norm is clipped to least_norm. The sum of squares is f64 in a fixed order. `x` is
// finite. Workspace: 8 bytes for 1024 elements.
void scale_by_norm(const View& x, double factor, double least_norm, const View& y,
                   StreamRef stream);

}  // namespace zinc::optim
