#include "bench/generate_bench.h"

#include <memory>
#include <utility>

#include "bench/ceilings.h"
#include "bench/model_products.h"
#include "bench/random_batch.h"
#include "bench/samples.h"
#include "core/error.h"
#include "files/json/writer.h"
#include "generate/text_generator.h"
#include "hub/model.h"
#include "hub/model_config.h"

namespace zinc::bench {
namespace {

std::vector<std::vector<int32_t>> random_prompts(const GenerateBenchOptions& options, int64_t batch,
                                                 int64_t vocabulary) {
  const Tensor ids = random_batch(0, batch, options.prompt_tokens, vocabulary).tensors["input_ids"];
  const std::vector<int64_t> wide = ids.to_vector<int64_t>();
  const std::vector<int32_t> all(wide.begin(), wide.end());
  std::vector<std::vector<int32_t>> prompts;
  for (auto row = all.begin(); row != all.end(); row += options.prompt_tokens) {
    prompts.emplace_back(row, row + options.prompt_tokens);
  }
  return prompts;
}

// The times of one batch of texts are added to `texts`.
void write_once(nn::Model& model, const GenerateBenchOptions& options, WrittenTexts& texts) {
  generate::GenerateOptions how{.max_tokens = options.tokens};
  how.sampling.temperature = 0.0;
  auto prompts = random_prompts(options, texts.batch, model.vocab_size());
  const auto begin = Clock::now();
  generate::TextGenerator generator(model, std::move(prompts), how);
  Clock::time_point first = begin;
  int64_t written = 0;
  generator.write([&](int64_t prompt, int32_t) {
    if (prompt + 1 == texts.batch && ++written == 1) first = Clock::now();
  });
  texts.prefill_seconds.add(seconds_between(begin, first));
  texts.decode_seconds.add(seconds_since(first));
}

double multiplied_bytes(const hub::ModelConfig& config, DType dtype) {
  double weights = 0.0;
  for (const Product& product : products_of(config)) {
    weights += static_cast<double>(product.n * product.k * product.count);
  }
  return weights * static_cast<double>(size_of(dtype));
}

}  // namespace

GenerateBenchResult run_generate_bench(comm::World& world, const GenerateBenchOptions& options,
                                       const GenerateBenchHooks& hooks) {
  require(options.rounds > 0 && options.prompt_tokens > 0 && options.tokens > 1,
          "generate bench: rounds and prompt tokens must be positive, new tokens at least 2");
  require(!options.batch.empty(), "generate bench: a batch is needed");
  constexpr int64_t kProbeBytes = int64_t{256} << 20;
  constexpr uint64_t kSeed = 7;
  const hub::ModelConfig config = hub::find_model_config(options.preset).config;
  const std::unique_ptr<nn::Model> model = hub::make_model(config);
  const int64_t positions = model->max_sequence();
  if (nn::find_interface<nn::CachedCausalLm>(*model) == nullptr) {
    throw ConfigError(str("generate bench: ", options.preset, " is no decoder"));
  }
  if (positions > 0 && options.prompt_tokens + options.tokens > positions) {
    throw ConfigError(str("generate bench: ", options.prompt_tokens, " + ", options.tokens,
                          " tokens are more than the ", positions, " positions of ",
                          options.preset));
  }
  model->set_dtype(options.dtype);
  model->load(nn::InitializerSource(kSeed));
  model->eval();
  const std::unique_ptr<Probe> probe = world.context().device().is_cuda()
                                           ? make_cuda_stream_probe(1, 0, 0, kProbeBytes)
                                           : make_stream_probe(1, 0, 0, kProbeBytes);
  GenerateBenchResult result;
  for (const int64_t batch : options.batch) result.batches.push_back({.batch = batch});
  Samples rates;
  for (int64_t round = 0; round <= options.rounds; ++round) {
    for (WrittenTexts& texts : result.batches) {
      if (hooks.before_round) hooks.before_round();
      write_once(*model, options, texts);
      if (round == 0) {
        texts.prefill_seconds = texts.decode_seconds = {};
      }
      rates.add(probe->work_per_run() / seconds_of([&] {
                  probe->run();
                  world.context().compute()->synchronize();
                }));
      if (round > 0 && hooks.after_round) hooks.after_round(texts);
    }
  }
  result.weight_bytes = multiplied_bytes(config, options.dtype);
  result.stream_bytes_per_second = rates.median();
  for (WrittenTexts& texts : result.batches) {
    const auto batch = static_cast<double>(texts.batch);
    const double steps = static_cast<double>(options.tokens - 1) / texts.decode_seconds.median();
    texts.prefill_tokens_per_second =
        batch * static_cast<double>(options.prompt_tokens) / texts.prefill_seconds.median();
    texts.decode_tokens_per_second = batch * steps;
    texts.weight_bytes_per_second = result.weight_bytes * steps;
    texts.stream_share = texts.weight_bytes_per_second / result.stream_bytes_per_second;
  }
  return result;
}

std::string json_of(const GenerateBenchOptions& options, const GenerateBenchResult& result) {
  files::json::Writer json(2);
  json.begin_object().member("preset", options.preset).member("dtype", name_of(options.dtype));
  json.member("prompt_tokens", options.prompt_tokens).member("tokens", options.tokens);
  json.member("weight_bytes", result.weight_bytes);
  json.member("stream_bytes_per_second", result.stream_bytes_per_second);
  json.key("batches").begin_array();
  for (const WrittenTexts& texts : result.batches) {
    json.begin_object().member("batch", texts.batch);
    json.member("prefill_tokens_per_second", texts.prefill_tokens_per_second);
    json.member("decode_tokens_per_second", texts.decode_tokens_per_second);
    json.member("weight_bytes_per_second", texts.weight_bytes_per_second);
    json.member("stream_share", texts.stream_share);
    json.end_object();
  }
  return json.end_array().end_object().take();
}

}  // namespace zinc::bench
