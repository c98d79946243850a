// core/host_device.h: marks functions that device code calls too.
#pragma once

#if defined(__CUDACC__)
#define ZINC_HOST_DEVICE __host__ __device__
#else
#define ZINC_HOST_DEVICE
#endif
