// A CUDA driver that does nothing, for cuDNN's plans on a machine without a GPU: cuDNN calls these
// functions while it finalizes a plan, looks each up by name and refuses every engine where one is
// missing. Success and a kernel that is not null are all that it wants of them.
#define ZINC_DOES_NOTHING(name) \
  int name();                   \
  int name() { return 0; }
#define ZINC_GIVES_SOMETHING(name) \
  int name(void** made);           \
  int name(void** made) {          \
    static char something;         \
    *made = &something;            \
    return 0;                      \
  }

extern "C" {

ZINC_GIVES_SOMETHING(cuLibraryLoadData)
ZINC_GIVES_SOMETHING(cuLibraryGetKernel)

ZINC_DOES_NOTHING(cuCtxGetCurrent)
ZINC_DOES_NOTHING(cuCtxGetLimit)
ZINC_DOES_NOTHING(cuCtxPopCurrent)
ZINC_DOES_NOTHING(cuCtxPushCurrent)
ZINC_DOES_NOTHING(cuDeviceGet)
ZINC_DOES_NOTHING(cuDeviceGetCount)
ZINC_DOES_NOTHING(cuDriverGetVersion)
ZINC_DOES_NOTHING(cuGetErrorName)
ZINC_DOES_NOTHING(cuGetErrorString)
ZINC_DOES_NOTHING(cuKernelGetAttribute)
ZINC_DOES_NOTHING(cuKernelSetAttribute)
ZINC_DOES_NOTHING(cuLaunchCooperativeKernel)
ZINC_DOES_NOTHING(cuLaunchKernel)
ZINC_DOES_NOTHING(cuLaunchKernelEx)
ZINC_DOES_NOTHING(cuLibraryLoadFromFile)
ZINC_DOES_NOTHING(cuLibraryUnload)
ZINC_DOES_NOTHING(cuLinkAddData)
ZINC_DOES_NOTHING(cuLinkComplete)
ZINC_DOES_NOTHING(cuLinkCreate)
ZINC_DOES_NOTHING(cuLinkDestroy)
ZINC_DOES_NOTHING(cuOccupancyMaxPotentialClusterSize)
ZINC_DOES_NOTHING(cuStreamGetCtx)

}  // extern "C"
