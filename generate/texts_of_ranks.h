// generate/texts_of_ranks.h: texts by an engine's model, for prompts that each rank has of its own.
#pragma once

#include <cstdint>
#include <vector>

#include "generate/generate.h"
#include "zero/engine.h"

namespace zinc::generate {

// Writes the texts of this rank's prompts, side by side; no prompts give no texts. See
// TextGenerator for the cost of a token and for errors. The engine may train, or only compute.
//
// Where weights are sharded (stage 3) the call is collective, and the number of prompts, their
// lengths and the ends of the texts may differ between ranks. Every pass gathers the weights on all
// ranks. So all ranks make as many passes: a rank whose texts have ended, that has none, or that
// has failed, passes one token along until the last rank has ended. What it has thrown is thrown
// then.
std::vector<GeneratedTexts> write_texts(zero::Engine& engine,
                                        std::vector<std::vector<int32_t>> prompts,
                                        const GenerateOptions& options,
                                        const OnToken& on_token = {});

}  // namespace zinc::generate
