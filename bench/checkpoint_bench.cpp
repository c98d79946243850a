#include "bench/checkpoint_bench.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>

#include "bench/random_batch.h"
#include "bench/samples.h"
#include "core/error.h"
#include "files/atomic_file.h"
#include "files/json/writer.h"
#include "hub/model.h"
#include "hub/model_config.h"
#include "train/checkpoint/save_checkpoint.h"
#include "zero/engine.h"

namespace zinc::bench {
namespace {

// Steps that are timed beside one write: training comes first, and may keep it long.
constexpr int64_t kMostBeside = 8;

// A folder that is removed with all that is in it.
struct Folder {
  explicit Folder(const std::string& parent) : path(parent + "/zinc-bench-checkpoint") {
    std::filesystem::create_directories(path);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::string path;
};

// Returns when the disk is done with the removal, which may take as long as the write.
void remove_now(const std::string& path) {
  std::filesystem::remove_all(path);
  ::sync();
}

// Writes the same bytes from memory to one file, past the page cache, with a sync: the disk's own
// time.
void write_plain(const std::string& path, std::span<const std::byte> bytes) {
  files::AtomicFile file = files::AtomicFile::create_shared(path, 0, /*direct=*/true);
  file.write(0, bytes);
  file.commit();
}

}  // namespace

CheckpointBenchResult run_checkpoint_bench(comm::World& world,
                                           const CheckpointBenchOptions& options) {
  const hub::ModelConfigFile config = hub::find_model_config(options.preset);
  const std::unique_ptr<nn::Model> model = hub::make_model(config.config);
  zero::EngineConfig engine_config;
  engine_config.batch = {.micro_batch = options.batch, .sequence = options.seq};
  engine_config.precision.dtype = options.dtype;
  engine_config.zero.stage = 1;
  zero::Engine engine(*model, engine_config, world);
  int64_t batches = 0;
  const auto step = [&] {
    const nn::Batch batch =
        random_batch(batches++, options.batch, options.seq, model->vocab_size());
    engine.backward(engine.forward(batch));
    engine.step();
    world.context().compute()->synchronize();
  };
  step();

  CheckpointBenchResult result;
  result.bytes = engine.usage().own.trained;
  const auto size = static_cast<size_t>(result.bytes);
  std::vector<std::byte> from(size, std::byte{1}), to(size, std::byte{2});
  const Folder folder(options.directory);
  train::CheckpointSaver saver(engine, folder.path);
  std::vector<double> stalls, copies, writes, plains, loads, steps, besides;
  for (int64_t round = -1; round < options.rounds; ++round) {
    remove_now(folder.path + "/beside");
    const double copy = seconds_of([&] { std::memcpy(to.data(), from.data(), size); });
    const double stall = seconds_of([&] { saver.begin("beside", {}, true); });
    double beside = 0.0;
    int64_t steps_beside = 0;
    bool is_done = false;
    while (!is_done && steps_beside < kMostBeside) {
      const double seconds = seconds_of(step);
      is_done = saver.poll().has_value();
      if (is_done) continue;  // this step had a write beside it for a part alone
      beside += seconds;
      ++steps_beside;
    }
    if (!is_done) saver.finish();
    std::vector<double> alone;
    for (int64_t i = 0; i < std::max<int64_t>(steps_beside, 2); ++i) {
      alone.push_back(seconds_of(step));
    }
    const double plain = seconds_of([&] { write_plain(folder.path + "/plain", from); });
    remove_now(folder.path + "/plain");
    remove_now(folder.path + "/waited");
    const double write = seconds_of([&] {
      saver.begin("waited", {}, false);
      saver.finish();
    });
    const double load = seconds_of([&] { train::load_checkpoint(engine, folder.path, "waited"); });
    if (round < 0) continue;
    copies.push_back(copy);
    stalls.push_back(stall);
    if (steps_beside > 0) besides.push_back(beside / static_cast<double>(steps_beside));
    steps.push_back(median(alone));
    plains.push_back(plain);
    writes.push_back(write);
    loads.push_back(load);
  }
  result.copy_seconds = median(copies);
  result.stall_seconds = median(stalls);
  result.plain_seconds = median(plains);
  result.write_seconds = median(writes);
  result.load_seconds = median(loads);
  result.step_seconds = median(steps);
  if (!besides.empty()) result.beside_seconds = median(besides);
  return result;
}

std::string json_of(const CheckpointBenchOptions& options, const CheckpointBenchResult& result) {
  files::json::Writer json(2);
  json.begin_object();
  json.member("preset", options.preset).member("dtype", name_of(options.dtype));
  json.member("bytes", result.bytes);
  json.member("copy_seconds", result.copy_seconds).member("stall_seconds", result.stall_seconds);
  json.member("plain_seconds", result.plain_seconds).member("write_seconds", result.write_seconds);
  json.member("load_seconds", result.load_seconds);
  json.member("step_seconds", result.step_seconds).member("beside_seconds", result.beside_seconds);
  json.end_object();
  return json.take();
}

}  // namespace zinc::bench
