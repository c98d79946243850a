// tests/emulator/runtime.h: an emulated GPU behind the CUDA runtime's host interface.
//
// Streams are queues of the shuffled executor (core/executor.h): what was issued runs as late, as
// early or in as random an order as streams and events allow, by seed. So a missing event wait, or
// memory that is used again too early, shows as a wrong value. CUDA's own rules hold:
//   memory      device memory is poisoned when it is new; cudaFree and cudaFreeHost wait for the
//               whole device
//   copies      from pageable memory the bytes are read at the call; to pageable memory the call
//               returns when they have arrived; between device and pinned memory they run in the
//               stream's order
//   events      a wait for an event that was never recorded does nothing; a later record does not
//               move a wait that was issued before it; any thread may query one, but only that of
//               the streams makes them progress
//   graphs      a stream that captures keeps its calls, and so does a stream that waits for its
//               events, until the first one ends the capture, which comes behind all of it; a
//               launch queues it as often as it is made, in as many lanes. Refused while a stream
//               captures: to wait for it, copies of pageable memory, in its thread calls that may
//               wait for the device (unless its mode is relaxed), to wait for events from outside
// Work that runs at its issue runs in the issuing thread: a collective then blocks that thread
// until its peers' streams have come to it, where a GPU would block a stream. So ranks that meet on
// the host while their work is under way, as no program should need to, take Order::latest, in
// which nothing runs before a wait or query needs it. Streams, events and their waits belong to the
// thread that made the streams: every thread has a device of its own, so that ranks can be threads.
#pragma once

#include <cstdint>

#include "core/executor.h"
#include "tests/emulator/capture.h"

namespace zinc::emulator {

class RuntimeStream;  // cudaStream_t

bool is_capturing(const RuntimeStream* stream);
// Queues a task that may wait for another GPU: not before the next call for its stream, so that the
// thread that queues it never waits in this one, whatever the order. Where the stream captures, the
// task of each launch is made then.
void put_off(RuntimeStream* stream, MakeTask make);

// The calling thread's device: waits for its work and starts afresh with this seed, for the streams
// that are made from now on.
void set_runtime_seed(uint64_t seed);
// Sets the schedule of the devices of threads that have none yet: seed 0 and Order::by_seed unless
// a test says otherwise.
void set_default_schedule(uint64_t seed,
                          ShuffledExecutor::Order order = ShuffledExecutor::Order::by_seed);
// A planted mistake, in all threads: cudaStreamWaitEvent does nothing.
void set_ignores_stream_waits(bool ignores);
// A planted mistake, in all threads: cudaStreamWaitEvent does nothing where the event was recorded
// by the stream that its thread made as the `number`-th, from 0 (a context makes one for each
// StreamRole, in their order); -1: no mistake.
void set_ignores_waits_for(int number);
// Calls of cudaDeviceSynchronize, cudaFree and cudaFreeHost so far, in all threads: each stops the
// whole device.
int64_t num_device_synchronizations();
// Calls in which the host waits for a stream or an event so far, copies to pageable memory among
// them, in all threads.
int64_t num_host_waits();
// Calls of cudaMalloc, cudaHostAlloc, cudaFree and cudaFreeHost so far, in all threads: on a GPU
// each may wait for it.
int64_t num_memory_calls();
// Bytes that cudaMalloc gives out at most, in all threads together; beyond it memory is exhausted.
void set_device_memory_bytes(int64_t bytes);
// Bytes that cudaMalloc has given out and not got back, in all threads.
int64_t device_memory_bytes();
// GPUs that cudaGetDeviceCount finds: 1 unless a test says otherwise.
void set_num_devices(int count);
// Sets the devices' compute capability: 9.0 unless a test says otherwise.
void set_compute_capability(int major);

}  // namespace zinc::emulator
