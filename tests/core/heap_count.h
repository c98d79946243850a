// tests/core/heap_count.h: how often this process called operator new.
#pragma once

#include <cstdint>

namespace zinc {

int64_t heap_allocations();

}  // namespace zinc
