// apps/stop_signal.h: the first USR1, TERM or INT asks a run to end after its step; the second one
// ends the process at once.
#pragma once

#include <atomic>

namespace zinc::apps {

// Installs the handlers; call once.
const std::atomic<bool>& stop_on_signals();

}  // namespace zinc::apps
