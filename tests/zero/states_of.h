// tests/zero/states_of.h: all states that an engine keeps of a parameter.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "core/error.h"
#include "zero/engine.h"

namespace zinc::zero::test {

// By name. Collective.
inline std::map<std::string, Tensor> states_of(Engine& engine, const std::string& parameter) {
  std::map<std::string, Tensor> states;
  for (const std::string& kind : engine.state().kinds) {
    if (kind == kWeightsKind) continue;
    try {
      states.emplace(kind, engine.optimizer_state(parameter, kind));
    } catch (const InvalidArgument&) {  // the parameter is updated by another rule
    }
  }
  EXPECT_TRUE(!states.empty() || engine.state().kinds.size() == 1) << parameter;
  return states;
}

}  // namespace zinc::zero::test
