#include "train/config/key_rules.h"

#include <utility>

#include "core/error.h"
#include "files/json/value.h"
#include "files/json/writer.h"
#include "optim/optimizer_config.h"

namespace zinc::train {
namespace {

// DeepSpeed's 1, or less, is the value of a file that does not use its key.
bool differ(const KeyRule& rule, const Reading& reading) {
  const files::json::Value* ours = reading.find(rule.keys[0]);
  const files::json::Value* theirs = reading.find(rule.keys[1]);
  return ours != nullptr && theirs != nullptr && theirs->as_int64() > 1 &&
         ours->as_int64() != theirs->as_int64();
}

bool are_both_true(const KeyRule& rule, const Reading& reading) {
  const files::json::Value* first = reading.find(rule.keys[0]);
  const files::json::Value* second = reading.find(rule.keys[1]);
  return first != nullptr && second != nullptr && first->as_bool() && second->as_bool();
}

bool looks_ahead_without_momentum(const KeyRule&, const Reading& reading) {
  const optim::OptimizerConfig& optimizer = reading.config.engine.optimizer;
  return optimizer.kind == optim::OptimizerKind::sgd && optimizer.nesterov &&
         (optimizer.hyper.momentum == 0.0 || optimizer.dampening != 0.0);
}

constexpr std::array kKeyRules{
    KeyRule{.keys = {"zinc.mesh.tensor", "tensor_parallel.autotp_size"},
            .is_broken = differ,
            .what = "zinc.mesh.tensor {first} contradicts tensor_parallel.autotp_size {second}",
            .why = "both are the number of tensor ranks",
            .cure = "leave one out"},
    KeyRule{.keys = {"zinc.mesh.sequence", "sequence_parallel_size"},
            .is_broken = differ,
            .what = "zinc.mesh.sequence {first} contradicts sequence_parallel_size {second}",
            .why = "both are the number of ranks that share a sequence",
            .cure = "leave one out"},
    KeyRule{.keys = {"zinc.mesh.pipe", "pipeline.stages"},
            .is_broken = differ,
            .what = "zinc.mesh.pipe {first} contradicts pipeline.stages {second}",
            .why = "both are the number of ranks of a pipeline",
            .cure = "leave one out"},
    KeyRule{.keys = {"zinc.recompute_every_blocks", "pipeline.activation_checkpoint_interval"},
            .is_broken = differ,
            .what = "zinc.recompute_every_blocks {first} contradicts "
                    "pipeline.activation_checkpoint_interval {second}",
            .why = "both are the number of blocks with one saved input",
            .cure = "leave one out"},
    KeyRule{.keys = {"fp16.enabled", "bf16.enabled"},
            .is_broken = are_both_true,
            .what = "fp16 and bf16 are both enabled",
            .why = "a model has one dtype",
            .cure = "choose one"},
    KeyRule{.keys = {"optimizer.params.nesterov", "optimizer.params.momentum",
                     "optimizer.params.dampening"},
            .is_broken = looks_ahead_without_momentum,
            .what = "optimizer.params.nesterov needs a momentum and no dampening",
            .why = "it looks ahead by the momentum",
            .cure = "give optimizer.params.momentum alone, or leave nesterov out"},
};

std::string with_values(std::string_view text, std::string_view first, std::string_view second) {
  std::string made(text);
  for (const auto& [name, value] : {std::pair("{first}", first), std::pair("{second}", second)}) {
    const size_t at = made.find(name);
    if (at != std::string::npos) made.replace(at, std::string_view(name).size(), value);
  }
  return made;
}

void report(const Reading& reading, std::span<const std::string_view> keys,
            const std::string& message) {
  for (const std::string_view key : keys) {
    if (const files::json::Value* at = reading.find(key); at != nullptr) {
      reading.findings.problem(*at, message);
      return;
    }
  }
  reading.findings.problem(message);
}

std::string line_of(std::span<const std::string_view> keys, std::string_view what,
                    std::string_view why, std::string_view cure) {
  std::string names;
  for (const std::string_view key : keys) {
    if (!key.empty()) names += str(names.empty() ? "" : ", ", '`', key, '`');
  }
  return str("| ", names, " | ", what, " | ", why, " | ", cure, " |\n");
}

}  // namespace

std::string KeyRule::message(const Reading& reading) const {
  const auto value_of = [&](std::string_view key) {
    const files::json::Value* value = reading.find(key);
    return value == nullptr ? std::string() : files::json::write(*value);
  };
  return str(with_values(what, value_of(keys[0]), value_of(keys[1])), ": ", why, "; ", cure);
}

std::span<const KeyRule> key_rules() { return kKeyRules; }

void report_key_rules(const Reading& reading) {
  for (const KeyRule& rule : kKeyRules) {
    if (rule.is_broken(rule, reading)) report(reading, rule.keys, rule.message(reading));
  }
}

void report_config_rules(const Reading& reading) {
  const zero::ConfigFacts nothing_yet;
  const zero::ConfigCase read{reading.config.engine, nothing_yet};
  for (const zero::ConfigRule* rule : zero::broken_rules(read)) {
    report(reading, rule->keys, rule->message(read));
  }
}

std::string config_rules_markdown() {
  std::string text = "| keys | refused | why | instead |\n|---|---|---|---|\n";
  for (const KeyRule& rule : kKeyRules) {
    text += line_of(rule.keys, with_values(rule.what, "N", "M"), rule.why, rule.cure);
  }
  for (const zero::ConfigRule& rule : zero::config_rules()) {
    text += line_of(rule.keys, zero::text_on_page(rule.what), zero::text_on_page(rule.why),
                    zero::text_on_page(rule.cure));
  }
  return text;
}

}  // namespace zinc::train
