// hub/builtin_families.h: the rows of the families that zinc has. Each is in a separate file,
// <family>_family.cpp.
#pragma once

#include <array>

#include "hub/family.h"

namespace zinc::hub {

Family gpt2_family();
Family llama_family();
Family mistral_family();  // with llama's
Family qwen2_family();    // with llama's
Family qwen3_family();    // with llama's
Family gpt_neox_family();
Family bloom_family();
Family chatglm_family();
Family bert_family();
Family roberta_family();
Family t5_family();
Family encoder_classifier_family();

// In the order in which people read them.
inline constexpr std::array<Family (*)(), 12> kBuiltinFamilies = {
    gpt2_family,  llama_family,    mistral_family, qwen2_family,
    qwen3_family, gpt_neox_family, bloom_family,   chatglm_family,
    bert_family,  roberta_family,  t5_family,      encoder_classifier_family};

}  // namespace zinc::hub
