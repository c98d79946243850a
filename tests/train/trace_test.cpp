#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "comm/local/local.h"
#include "core/error.h"
#include "files/json/parser.h"
#include "nn/models/gpt2.h"
#include "tests/comm/forwarding_communicator.h"
#include "tests/files/scratch_folder.h"
#include "train/trace/trace_page.h"
#include "train/trace/trace_summary.h"
#include "train/trace/trace_writer.h"
#include "train/trainer.h"

namespace zinc::train {
namespace trace_test {

constexpr const char* kHead =
    "[\n{\"name\":\"zinc\",\"ph\":\"M\",\"pid\":0,\"tid\":0,\"args\":{\"version\":1}}";

std::string slice(const std::string& kind, const std::string& name, int lane, int begin, int end,
                  const std::string& args) {
  return str(",\n{\"ph\":\"X\",\"cat\":\"", kind, "\",\"ts\":", begin, ",\"dur\":", end - begin,
             ",\"pid\":0,\"tid\":", lane, ",\"name\":\"", name, "\",\"args\":{", args, "}}");
}

// Compute [100,200) and [300,400), a prefetch [150,320) that the second one waits for from 200 on,
// a gather on demand [350,360), a reduction [390,500), a sum over tensor ranks [280,290) beside the
// prefetch; transfers with NVMe [110,180) and [450,480), and a copy from the host that is none.
std::string known_trace() {
  return kHead + slice("compute", "a", 1, 100, 200, "\"id\":1") +
         slice("compute", "copy", 2, 160, 300, "\"id\":3,\"span\":2") +
         slice("prefetch", "prefetch h.1", 2, 150, 320,
               "\"id\":2,\"group\":\"h.1\",\"bytes\":1000") +
         slice("stall", "wait", 1, 200, 300, "\"id\":4,\"waited_for\":3") +
         slice("compute", "b", 1, 300, 400, "\"id\":5,\"waited_for\":3") +
         slice("gather", "gather h.2", 2, 350, 360, "\"id\":6,\"group\":\"h.2\",\"bytes\":10") +
         slice("reduce", "reduce h.1", 3, 390, 500, "\"id\":7,\"group\":\"h.1\",\"bytes\":500") +
         slice("exchange", "exchange sum", 1, 280, 290, "\"id\":18,\"bytes\":64") +
         slice("swap_in", "swap_in h.1", 16, 110, 140, "\"id\":13,\"bytes\":4096") +
         slice("swap_in", "swap_in h.2", 16, 140, 180, "\"id\":14,\"bytes\":4096") +
         slice("swap_out", "swap_out h.1", 17, 450, 480, "\"id\":15,\"bytes\":100") +
         slice("swap_in", "swap_in h.1", 4, 185, 190, "\"id\":16,\"bytes\":7") +
         slice("stall", "wait", 0, 400, 450, "\"id\":8,\"waited_for\":99") +
         slice("stall", "checkpoint", 0, 460, 490, "\"id\":17") +
         slice("step", "step 3", 0, 100, 500, "\"id\":9,\"step\":3") +
         slice("compute", "of no collective, on its lane", 2, 205, 240, "\"id\":11") +
         slice("compute", "of a collective, on compute", 1, 250, 280, "\"id\":12,\"span\":2") +
         slice("compute", "outside", 1, 500, 900, "\"id\":10");
}

void expect_known(const TraceSummary& summary) {
  ASSERT_EQ(summary.steps.size(), 1u);
  const StepSummary& step = summary.steps[0];
  EXPECT_EQ(step.step, 3);
  const auto near = [](double seconds, double microseconds) {
    EXPECT_NEAR(seconds * 1e6, microseconds, 1e-6);
  };
  near(step.seconds, 400);
  near(step.compute, 200);
  near(step.communication, 170 + 10 + 110);
  // [150,320) less compute's [150,200) and [300,320); [350,360) is covered; [390,500) less 10.
  near(step.exposed_communication, 100 + 100);
  near(step.stall, 150 + 30);
  EXPECT_EQ(step.stall_by_cause.size(), 3u);
  near(step.stall_by_cause.at("checkpoint"), 30);
  near(step.stall_by_cause.at("prefetch h.1"), 100);
  near(step.stall_by_cause.at("unknown"), 50);
  EXPECT_EQ(step.prefetch_hit_rate(), 0.5);
  EXPECT_EQ(step.gathered_bytes, 1010);
  EXPECT_EQ(step.reduced_bytes, 500);
  EXPECT_EQ(step.exchanged_bytes, 64);
  near(step.swap, 70 + 30);
  EXPECT_EQ(step.swapped_in_bytes, 2 * 4096);
  EXPECT_EQ(step.swapped_out_bytes, 100);
}

TEST(TraceWriter, AFileThatIsNoTrace_IsRefusedAndStaysAsItIs) {
  const files::ScratchFolder folder;
  for (const std::string& content :
       {std::string("It was the best of times\n"), std::string("["), std::string(kHead, 20),
        std::string("[\n{\"name\":\"another tool\",\"ph\":\"M\"}\n]\n")}) {
    const std::string path = folder.write("data.txt", content);
    EXPECT_EQ(files::message_of<IoError>([&] { TraceWriter(path, {}); }),
              "cannot create the trace '" + path +
                  "': File exists (errno 17); it holds something that is not a trace of zinc; "
                  "choose another file");
    EXPECT_EQ(files::read_whole_file(path), content);
  }
}

TEST(TraceWriter, ATraceAndAnEmptyFile_AreReplaced) {
  const files::ScratchFolder folder;
  TraceWriter(folder / "new.json", {}).finish();
  const std::string fresh = files::read_whole_file(folder / "new.json");
  for (const std::string& old : {known_trace(), std::string()}) {
    const std::string path = folder.write("trace.json", old);
    TraceWriter(path, {}).finish();
    EXPECT_EQ(files::read_whole_file(path), fresh);
  }
  TraceWriter("/dev/null", {}).finish();
}

TEST(TraceSummary, KnownTrace_GivesTheKnownFigures) {
  const TraceSummary summary = summarize_trace_text(known_trace() + "\n]\n", "t.json");
  EXPECT_TRUE(summary.complete);
  expect_known(summary);
}

TEST(TraceSummary, CutTrace_LosesItsLastLineAtMost) {
  for (const char* const end : {"", ",\n{\"ph\":\"X\",\"cat\":\"comp", ",\n", "\n"}) {
    const TraceSummary summary = summarize_trace_text(known_trace() + end, "t.json");
    EXPECT_FALSE(summary.complete) << end;
    expect_known(summary);
  }
}

// A rank was killed in the middle of a write, and another one wrote on.
TEST(TraceSummary, LineCutInTheMiddleOfAnUnfinishedTrace_IsLeftOut) {
  const std::string cut = ",\n{\"ph\":\"X\",\"cat\":\"compute\",\"ts\":7,\"pid\":0,\"tid\":2";
  const std::string more = slice("compute", "later", 1, 900, 950, "\"id\":13");
  expect_known(summarize_trace_text(known_trace() + cut + more, "t.json"));
  EXPECT_THROW(summarize_trace_text(known_trace() + cut + more + "\n]\n", "t.json"), DataError);
  // One rank leaves one such line.
  EXPECT_THROW(summarize_trace_text(known_trace() + cut + more + cut + more, "t.json"), DataError);
}

// Two steps of two slices each; times in the page are tenths of a microsecond behind its first
// step.
std::string two_steps(const std::string& name = "a") {
  return kHead + slice("compute", name, 1, 100, 150, "\"id\":1") +
         slice("stall", "wait", 1, 150, 190, "\"id\":2,\"waited_for\":1") +
         slice("step", "step 1", 0, 100, 200, "\"id\":3,\"step\":1") +
         slice("compute", "b", 1, 200, 250, "\"id\":4,\"bytes\":8") +
         slice("reduce", "reduce h", 3, 210, 240, "\"id\":5,\"span\":4") +
         slice("step", "step 2", 0, 200, 300, "\"id\":6,\"step\":2") +
         slice("compute", "behind the last step", 1, 300, 310, "\"id\":7") + "\n]\n";
}

TEST(TracePage, HasTheSlicesOfItsSteps) {
  const TracePage page = trace_page(parse_trace(two_steps(), "t.json"), "t.json");
  EXPECT_EQ(page.slices, 4);
  EXPECT_EQ(page.first_step, 1);
  EXPECT_EQ(page.last_step, 2);
  EXPECT_EQ(page.steps_left_out, 0);
  EXPECT_NE(page.html.find("\"slices\":[[1,0,500,0,0,1,0,0,0],[1,500,400,1,1,2,0,1,0],"
                           "[1,1000,500,0,2,4,0,0,8],[3,1100,300,2,3,5,4,0,0]]"),
            std::string::npos)
      << page.html;
  EXPECT_NE(page.html.find("\"kinds\":[\"compute\",\"stall\",\"reduce\"],"
                           "\"names\":[\"a\",\"wait\",\"b\",\"reduce h\"]"),
            std::string::npos)
      << page.html;
  EXPECT_NE(page.html.find("\"step\":2,\"rank\":0,\"begin\":100.0,\"end\":200.0"),
            std::string::npos)
      << page.html;
}

TEST(TracePage, HasTheStepsThatAreAskedFor_OrTheLastOnesThatFit) {
  const TraceFile trace = parse_trace(two_steps(), "t.json");
  const TracePage first = trace_page(trace, "t.json", {.last_step = 1});
  EXPECT_EQ(first.slices, 2);
  EXPECT_EQ(first.last_step, 1);
  const TracePage last = trace_page(trace, "t.json", {.most_slices = 3});
  EXPECT_EQ(last.first_step, 2);
  EXPECT_EQ(last.steps_left_out, 1);
  EXPECT_EQ(trace_page(trace, "t.json", {.most_slices = 1}).slices, 2) << "one step at least";
  EXPECT_EQ(files::message_of<DataError>([&] { trace_page(trace, "t.json", {.first_step = 3}); }),
            "t.json: the trace has no step 3 to its end");
}

TEST(TracePage, NamesAreNoMarkup) {
  const TracePage page =
      trace_page(parse_trace(two_steps("<img src=x>"), "t.json"), "</script><img>.json");
  EXPECT_EQ(page.html.find("<img"), std::string::npos);
}

TEST(TraceSummary, OtherFormsOfTheFile_GiveTheSame) {
  expect_known(summarize_trace_text("{\"traceEvents\": " + known_trace() + "\n]}", "t.json"));
}

TEST(TraceSummary, WhatIsNoTrace_IsADataError) {
  EXPECT_THROW(summarize_trace_text("[]", "t.json"), DataError);
  EXPECT_THROW(summarize_trace_text("{}", "t.json"), DataError);
  EXPECT_THROW(summarize_trace_text("", "t.json"), DataError);
  EXPECT_THROW(summarize_trace_text("[\n", "t.json"), DataError);
  EXPECT_THROW(summarize_trace_text(std::string(kHead) + "\n{\"ph\":7}\n]\n", "t.json"), DataError);
  EXPECT_THROW(summarize_trace_text(std::string(kHead) + "\nnonsense\n]\n", "t.json"), DataError);
  EXPECT_THROW(summarize_trace_text(known_trace() + "\n]\nmore", "t.json"), DataError);
}

// --- the file of a run

// Gathers and reductions that take longer.
class Delayed : public comm::ForwardingCommunicator {
 public:
  Delayed(std::unique_ptr<comm::Communicator> inner, std::chrono::microseconds gather,
          std::chrono::microseconds reduce)
      : ForwardingCommunicator(std::move(inner)), gather_(gather), reduce_(reduce) {}

  comm::Work all_gather(const comm::AllGather& args, StreamRef stream) override {
    sleep(gather_, stream);
    return ForwardingCommunicator::all_gather(args, stream);
  }
  comm::Work reduce_scatter(const comm::ReduceScatter& args, StreamRef stream) override {
    sleep(reduce_, stream);
    return ForwardingCommunicator::reduce_scatter(args, stream);
  }

 private:
  static void sleep(std::chrono::microseconds time, StreamRef stream) {
    stream.submit("delay", [time] { std::this_thread::sleep_for(time); });
  }

  std::chrono::microseconds gather_;
  std::chrono::microseconds reduce_;
};

class Cycle : public data::Dataset {
 public:
  int64_t num_samples() const override { return 64; }
  void read(int64_t index, data::Sample& sample) const override {
    for (int64_t i = 0; i < 8; ++i) {
      sample.tokens.push_back(static_cast<int32_t>((index + i) % 5));
      sample.labels.push_back(static_cast<int32_t>((index + i + 1) % 5));
    }
  }
  std::string describe() const override { return "cycle"; }
};

struct RunOptions {
  int world = 2;
  int64_t steps = 3;
  int stage = 3;
  bool overlap = true;
  int64_t max_live = 1'000'000'000;
  std::chrono::microseconds delay{0};         // of gathers
  std::chrono::microseconds reduce_delay{0};  // of reductions
  comm::Mesh mesh;                            // without delays
  nn::SequenceExchange exchange = nn::SequenceExchange::heads;
  bool tensor_sequence_parallel = false;
};

int64_t bytes_sent(comm::World& world) {
  int64_t bytes = world.communicator().bytes_sent();
  if (&world.shards() != &world) bytes += world.shards().communicator().bytes_sent();
  for (const comm::World* group : {world.tensor(), world.pipe(), world.sequence()}) {
    if (group != nullptr) bytes += group->communicator().bytes_sent();
  }
  return bytes;
}

// Trains with a trace in `path`; returns the bytes that each rank sent in the steps.
std::vector<int64_t> train_traced(const std::string& path, const RunOptions& options) {
  std::vector<std::shared_ptr<TraceRecorder>> recorders;
  comm::ConnectOptions connect{.seed = 1, .num_threads = 1};
  std::vector<std::unique_ptr<TraceWriter>> writers;
  std::vector<std::unique_ptr<comm::Communicator>> group;
  for (auto& communicator : comm::make_local_group(options.world)) {
    group.push_back(
        std::make_unique<Delayed>(std::move(communicator), options.delay, options.reduce_delay));
  }
  for (int rank = 0; rank < options.world; ++rank) {
    recorders.push_back(std::make_shared<TraceRecorder>());
    connect.rank_traces.push_back(recorders.back().get());
    writers.push_back(
        std::make_unique<TraceWriter>(path, TraceWriterOptions{.rank = rank, .begins = rank == 0}));
  }
  const Cycle dataset;
  std::vector<int64_t> sent(static_cast<size_t>(options.world));
  const auto train = [&](comm::World& world) {
    const auto rank = static_cast<size_t>(world.rank());
    if (!options.mesh.is_flat()) {
      comm::RankSettings settings = world.settings();
      settings.mesh = options.mesh;
      settings.trace = recorders[rank];
      world.configure(settings);
    }
    nn::Gpt2Config config;
    config.vocab_size = 5;
    config.max_positions = 8;
    config.hidden_size = 32;
    config.num_layers = 4;
    config.num_heads = 2;
    nn::Gpt2 model(config);
    zero::EngineConfig engine_config;
    engine_config.batch.micro_batch = 2;
    engine_config.zero.stage = options.stage;
    engine_config.zero.overlap_comm = options.overlap;
    engine_config.zero.max_live_parameters = options.max_live;
    engine_config.zero.param_persistence_threshold = 0;
    engine_config.sequence_exchange = options.exchange;
    engine_config.tensor_sequence_parallel = options.tensor_sequence_parallel;
    zero::Engine engine(model, engine_config, world);
    const comm::MeshPlace data = world.data();
    data::Loader loader(
        dataset, {.micro_batch = 2, .seq_len = 8, .rank = data.rank(), .world = data.size()});
    const int64_t before = bytes_sent(world);
    Trainer trainer(engine, loader, nullptr, {}, nullptr, {.steps = options.steps},
                    {.trace = writers[rank].get()});
    trainer.run();
    sent[rank] = bytes_sent(world) - before;
  };
  if (options.mesh.is_flat()) {
    comm::run_ranks(std::move(group), connect, train);
  } else {
    comm::run_local_ranks(options.world, {.seed = 1, .num_threads = 1}, train);
  }
  return sent;
}

struct Event {
  std::string kind;
  std::string name;
  int lane = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int64_t waited_for = 0;
  int64_t span = 0;
};

int64_t ns(double microseconds) { return static_cast<int64_t>(std::llround(microseconds * 1e3)); }

// Slices by rank and id, from a file read as one strict JSON document.
std::map<int64_t, std::map<int64_t, Event>> slices_of(const std::string& path) {
  std::map<int64_t, std::map<int64_t, Event>> ranks;
  const files::json::Value root = files::json::parse_file(path);
  for (const files::json::Value& event : root.as_array()) {
    if (!event.at("ph").is_string("X")) continue;
    const files::json::Value& args = event.at("args");
    const auto integer = [&args](const char* key) {
      return args.find(key) == nullptr ? 0 : args.at(key).as_int64();
    };
    const int64_t begin = ns(event.at("ts").as_double());
    EXPECT_TRUE(ranks[event.at("pid").as_int64()]
                    .emplace(args.at("id").as_int64(),
                             Event{.kind = event.at("cat").as_string(),
                                   .name = event.at("name").as_string(),
                                   .lane = static_cast<int>(event.at("tid").as_int64()),
                                   .begin_ns = begin,
                                   .end_ns = begin + ns(event.at("dur").as_double()),
                                   .waited_for = integer("waited_for"),
                                   .span = integer("span")})
                    .second)
        << "two events with one id";
  }
  return ranks;
}

// Expects lanes and waits of every rank; returns how many stalls of the compute lane began before
// their cause had ended, on the rank that has the fewest.
int64_t expect_lanes_and_true_waits() {
  const files::ScratchFolder folder;
  const std::string path = folder / "trace.json";
  train_traced(path, {.world = 3, .delay = std::chrono::milliseconds(2)});
  std::ofstream(path, std::ios::app) << "\n]\n";
  const auto ranks = slices_of(path);
  EXPECT_EQ(ranks.size(), 3u);
  int64_t fewest = std::numeric_limits<int64_t>::max();
  for (const auto& [rank, events] : ranks) {
    std::set<std::pair<std::string, int>> seen;
    int64_t causes = 0;
    for (const auto& [id, event] : events) {
      seen.emplace(event.kind, event.lane);
      if (event.span != 0) {
        EXPECT_TRUE(events.contains(event.span)) << event.name;
        if (!events.contains(event.span)) continue;
        const Event& span = events.at(event.span);
        EXPECT_EQ(span.lane, event.lane);
        EXPECT_LE(span.begin_ns, event.begin_ns);
        // The task that records the span is its last and may end later.
        EXPECT_TRUE(event.name == "record" || span.end_ns >= event.end_ns);
      }
      if (event.waited_for == 0) continue;
      EXPECT_TRUE(events.contains(event.waited_for)) << event.name;
      if (!events.contains(event.waited_for)) continue;
      const Event& producer = events.at(event.waited_for);
      const int64_t let_go = event.kind == "stall" ? event.end_ns : event.begin_ns;
      EXPECT_LE(producer.end_ns, let_go) << producer.name << " before " << event.name;
      if (event.kind == "stall" && event.lane == 1) {
        EXPECT_NE(producer.span, 0) << producer.name;  // compute waits for collectives only
        // A stall may be noted in the instant in which its cause ends; not all of them are.
        causes += producer.end_ns > event.begin_ns ? 1 : 0;
      }
    }
    fewest = std::min(fewest, causes);
    for (const auto& place : std::set<std::pair<std::string, int>>{{"compute", 1},
                                                                   {"prefetch", 2},
                                                                   {"reduce", 3},
                                                                   {"step", 0},
                                                                   {"mark", 0},
                                                                   {"release", 0},
                                                                   {"stall", 1}}) {
      EXPECT_TRUE(seen.contains(place)) << rank << " " << place.first;
    }
  }
  return fewest;
}

TEST(Trace, Stage3_EveryRankHasItsLanesAndTrueWaits) {
  // On a busy machine a rank may come late to every wait once, not every time.
  int64_t fewest = 0;
  for (int attempt = 0; attempt < 20 && fewest == 0; ++attempt) {
    fewest = expect_lanes_and_true_waits();
  }
  EXPECT_GT(fewest, 0);
}

TEST(Trace, Stage3_EveryGatherIsAheadAndEveryByteIsThere) {
  const files::ScratchFolder folder;
  const std::string path = folder / "trace.json";
  const RunOptions options{.world = 4, .steps = 4};
  const std::vector<int64_t> sent = train_traced(path, options);
  const TraceSummary summary = summarize_trace(path);
  EXPECT_FALSE(summary.complete);  // nobody wrote the bracket
  ASSERT_EQ(summary.steps.size(), 16u);
  std::vector<int64_t> counted(4);
  for (const StepSummary& step : summary.steps) {
    EXPECT_GT(step.gathers_ahead, 0);
    EXPECT_EQ(step.prefetch_hit_rate(), 1.0) << step.step;
    EXPECT_GT(step.compute, 0.0);
    EXPECT_LE(step.compute + step.exposed_communication, step.seconds * 1.001);
    counted[static_cast<size_t>(step.rank)] += step.gathered_bytes + step.reduced_bytes;
  }
  for (size_t rank = 0; rank < 4; ++rank) {
    // Beside the groups, a step gathers its loss, its norm and whether to stop: less than 4 KiB.
    EXPECT_LE(counted[rank], sent[rank]);
    EXPECT_GE(counted[rank], sent[rank] - options.steps * 4096);
  }
}

TEST(Trace, RanksOfAMesh_EveryByteIsThereAndIsNoCompute) {
  using nn::SequenceExchange;
  const std::vector<RunOptions> runs{
      {.stage = 0, .mesh = {.tensor = 2}},
      {.stage = 0, .mesh = {.tensor = 2}, .tensor_sequence_parallel = true},
      {.stage = 0, .mesh = {.pipe = 2}},
      {.stage = 1, .mesh = {.sequence = 2}, .exchange = SequenceExchange::heads},
      {.stage = 1, .mesh = {.sequence = 2}, .exchange = SequenceExchange::ring},
      {.world = 4, .stage = 2, .mesh = {.tensor = 2}},
      {.world = 4, .stage = 1, .mesh = {.tensor = 2, .pipe = 2}}};
  for (size_t run = 0; run < runs.size(); ++run) {
    SCOPED_TRACE(run);
    const RunOptions& options = runs[run];
    const files::ScratchFolder folder;
    const std::string path = folder / "trace.json";
    const std::vector<int64_t> sent = train_traced(path, options);
    std::vector<int64_t> counted(sent.size());
    const TraceSummary summary = summarize_trace(path);
    ASSERT_EQ(summary.steps.size(), sent.size() * static_cast<size_t>(options.steps));
    for (const StepSummary& step : summary.steps) {
      EXPECT_GT(step.exchanged_bytes, 0);
      EXPECT_GT(step.compute, 0.0);
      EXPECT_GT(step.exposed_communication, 0.0);
      EXPECT_LE(step.compute + step.exposed_communication, step.seconds * 1.001);
      counted[static_cast<size_t>(step.rank)] +=
          step.exchanged_bytes + step.gathered_bytes + step.reduced_bytes;
    }
    for (size_t rank = 0; rank < sent.size(); ++rank) {
      EXPECT_LE(counted[rank], sent[rank]) << rank;
      EXPECT_GE(counted[rank], sent[rank] - options.steps * 1024) << rank;
    }
  }
}

// Without memory for gathers ahead, nothing is prefetched, and the trace says so.
TEST(Trace, NoLiveParametersAllowed_EveryGatherIsOnDemand) {
  const files::ScratchFolder folder;
  const std::string path = folder / "trace.json";
  train_traced(path, {.max_live = 0});
  for (const StepSummary& step : summarize_trace(path).steps) {
    EXPECT_EQ(step.prefetch_hit_rate(), 0.0);
    EXPECT_GT(step.gathers_on_demand, 0);
  }
}

// Nanoseconds in which an event of one of `kinds` and a kernel of the compute lane ran at the same
// time, on rank 0.
int64_t overlap_ns(const std::string& path, const std::set<std::string>& kinds) {
  int64_t sum = 0;
  const auto ranks = slices_of(path);
  for (const auto& [id, transfer] : ranks.at(0)) {
    if (!kinds.contains(transfer.kind)) continue;
    for (const auto& [other, kernel] : ranks.at(0)) {
      if (kernel.kind != "compute" || kernel.lane != 1 || kernel.span != 0) continue;
      sum += std::max<int64_t>(0, std::min(transfer.end_ns, kernel.end_ns) -
                                      std::max(transfer.begin_ns, kernel.begin_ns));
    }
  }
  return sum;
}

void expect_overlap_where_configured(RunOptions options, const std::set<std::string>& kinds) {
  const auto overlap_of = [&](bool overlap) {
    const files::ScratchFolder folder;
    const std::string path = folder / "trace.json";
    options.overlap = overlap;
    train_traced(path, options);
    std::ofstream(path, std::ios::app) << "\n]\n";
    return overlap_ns(path, kinds);
  };
  EXPECT_EQ(overlap_of(false), 0);
  // A busy machine may run the two threads one after the other once, not every time.
  int64_t overlap = 0;
  for (int attempt = 0; attempt < 20 && overlap == 0; ++attempt) overlap = overlap_of(true);
  EXPECT_GT(overlap, 0);
}

TEST(Trace, DelayedGathers_RunBesideComputeOnlyWithOverlap) {
  expect_overlap_where_configured({.delay = std::chrono::milliseconds(2)}, {"gather", "prefetch"});
}

TEST(Trace, DelayedReductions_RunBesideComputeOnlyWithOverlap) {
  for (const int stage : {1, 2, 3}) {
    SCOPED_TRACE(stage);
    expect_overlap_where_configured({.stage = stage, .reduce_delay = std::chrono::milliseconds(2)},
                                    {"reduce"});
  }
}

TEST(TraceWriter, AFileThatCannotBeWritten_IsAnIoError) {
  const files::ScratchFolder folder;
  EXPECT_THROW(TraceWriter(folder / "no/such/folder.json", {}), IoError);
  EXPECT_THROW(TraceWriter(folder.path(), {}), IoError);
}

TEST(TraceWriter, ArrowsLeadToTheEventThatWasWaitedFor) {
  const files::ScratchFolder folder;
  const std::string path = folder / "trace.json";
  TraceRecorder recorder;
  TraceWriter writer(path, {});
  recorder.record({.kind = TraceKind::compute,
                   .lane = 2,
                   .name = "copy \"x\"",
                   .begin_ns = 1000,
                   .end_ns = 5001,
                   .id = 7,
                   .span = 6});
  recorder.record({.kind = TraceKind::stall,
                   .lane = 1,
                   .name = "wait",
                   .begin_ns = 2000,
                   .end_ns = 5500,
                   .id = 8,
                   .waited_for = 7});
  recorder.record({.kind = TraceKind::memory,
                   .name = "parameters",
                   .begin_ns = 3000,
                   .end_ns = 3000,
                   .bytes = 4096});
  writer.drain(recorder);
  EXPECT_TRUE(recorder.events().empty());
  writer.finish();
  std::vector<files::json::Value> starts;
  std::vector<files::json::Value> ends;
  int64_t live = 0;
  const files::json::Value root = files::json::parse_file(path);
  for (const files::json::Value& event : root.as_array()) {
    if (event.at("ph").is_string("s")) starts.push_back(event);
    if (event.at("ph").is_string("f")) ends.push_back(event);
    if (event.at("ph").is_string("C")) live = event.at("args").at("bytes").as_int64();
  }
  ASSERT_EQ(starts.size(), 1u);
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(starts[0].at("id").as_int64(), ends[0].at("id").as_int64());
  EXPECT_EQ(starts[0].at("tid").as_int64(), 2);
  EXPECT_EQ(starts[0].at("ts").as_double(), 5.0);
  EXPECT_EQ(ends[0].at("tid").as_int64(), 1);
  EXPECT_EQ(ends[0].at("ts").as_double(), 5.5);
  EXPECT_EQ(live, 4096);
}

}  // namespace trace_test
}  // namespace zinc::train
