// core/device_checks.h: whether a device that a user asked for can do the work.
#pragma once

#include "core/device.h"
#include "core/dtype.h"

namespace zinc {

// Throws ConfigError with the reason and the cure where this process has no such device, or where
// its hardware does not compute in `dtype`, or, with `fp8`, does not multiply 8 bits. A CPU does
// both in bf16; a meta device can do everything.
void require_device(const Device& device, DType dtype, bool fp8 = false);

}  // namespace zinc
