// Saved inputs on NVMe: which of them move, whatever the order of use, and what disks do to them.
#include "offload/swapped_inputs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"
#include "tests/offload/faulty_queue.h"
#include "tests/offload/swap_folder.h"

namespace zinc::offload {
namespace swapped_inputs_test {

constexpr int64_t kBytes = 5000;  // two pages
constexpr int64_t kExtent = 8192;

// Passes over inputs, each with different bytes. Copies are done when they are issued.
class Passes {
 public:
  using Input = SwappedInputs::Input;

  Passes(int64_t count, int64_t num_buffers, int64_t side_by_side = 1, const Faults& faults = {})
      : inputs_(std::make_shared<SwappedInputs>(
            context_, SwappedInputsOptions{.swap = {.directory = folder_.path(),
                                                    .storage = {.block_size = 4096},
                                                    .make_storage =
                                                        [faults](const StorageOptions& options) {
                                                          return make_faulty_storage(
                                                              options, [faults] { return faults; },
                                                              true);
                                                        }},
                                           .bytes = kBytes,
                                           .count = count,
                                           .side_by_side = side_by_side,
                                           .num_buffers = num_buffers})) {}

  std::unique_ptr<Input> save(int value, uint64_t micro_batch = 0) {
    context_.random().set_position(0, micro_batch);
    std::unique_ptr<Input> input = inputs_->take(kBytes);
    std::fill_n(static_cast<std::byte*>(input->data()), kBytes, static_cast<std::byte>(value));
    input->filled({});
    inputs_->write_behind(1);
    return input;
  }
  std::vector<std::unique_ptr<Input>> save_all(int64_t count) {
    std::vector<std::unique_ptr<Input>> saved;
    for (int i = 0; i < count; ++i) saved.push_back(save(i));
    inputs_->write_behind(0);
    return saved;
  }
  static bool is_right(Input& input, int value) {
    const auto* data = static_cast<const std::byte*>(input.bring());
    return std::all_of(data, data + kBytes,
                       [value](std::byte b) { return b == static_cast<std::byte>(value); });
  }

  SwappedInputs& inputs() { return *inputs_; }
  Context& context() { return context_; }
  int64_t live(Tier tier) { return context_.allocator().report().at(tier).live; }
  // Since the last call.
  std::pair<int64_t, int64_t> extents_written_and_read() {
    const SwapTraffic now = inputs_->traffic();
    const SwapTraffic moved = now - before_;
    before_ = now;
    return {moved.bytes_written / kExtent, moved.bytes_read / kExtent};
  }

 private:
  SwapFolder folder_;
  Context context_{ContextOptions{}};
  std::shared_ptr<SwappedInputs> inputs_;
  SwapTraffic before_;
};

using Counts = std::pair<int64_t, int64_t>;

TEST(SwappedInputs, TheLastOnesNeverMove) {
  constexpr int kCount = 6;
  for (int64_t buffers = 1; buffers <= 8; buffers += buffers) {
    Passes passes(kCount, buffers);
    const int64_t used = std::min<int64_t>(buffers, kCount);
    EXPECT_EQ(passes.live(Tier::pinned_host), used * kExtent);
    EXPECT_EQ(passes.live(Tier::nvme), kCount * kExtent);
    for (int pass = 0; pass < 2; ++pass) {
      auto saved = passes.save_all(kCount);
      EXPECT_FALSE(passes.inputs().has_room());
      for (int i = kCount - 1; i >= 0; --i) {
        EXPECT_TRUE(Passes::is_right(*saved.back(), i)) << i;
        EXPECT_TRUE(Passes::is_right(*saved.back(), i)) << i << ", again";
        saved.pop_back();
      }
      EXPECT_TRUE(passes.inputs().is_unused());
      EXPECT_EQ(passes.extents_written_and_read(), Counts(kCount - used, kCount - used));
    }
  }
}

// Micro-batch by micro-batch within a stage, in both directions.
TEST(SwappedInputs, SideBySide_AreReadInTheOrderOfTheirUse) {
  constexpr int kStages = 4;
  constexpr int kTogether = 3;
  const auto moved = [](int64_t buffers) {
    Passes passes(kStages * kTogether, buffers, kTogether);
    std::vector<std::unique_ptr<Passes::Input>> saved;
    for (int i = 0; i < kStages * kTogether; ++i) {
      saved.push_back(passes.save(i, static_cast<uint64_t>(i % kTogether)));
    }
    passes.inputs().write_behind(0);
    for (int stage = kStages - 1; stage >= 0; --stage) {
      for (int micro = 0; micro < kTogether; ++micro) {
        const int i = stage * kTogether + micro;
        EXPECT_TRUE(Passes::is_right(*saved[static_cast<size_t>(i)], i)) << i;
        saved[static_cast<size_t>(i)].reset();
      }
    }
    return passes.extents_written_and_read();
  };
  // Two of four buffers let inputs through: the last one of these inputs is still there.
  EXPECT_EQ(moved(4), Counts(10, 9));
  // One buffer: the input that was saved last is overwritten by the one that is used first.
  EXPECT_EQ(moved(1), Counts(12, 12));
  EXPECT_EQ(moved(12), Counts(0, 0));
}

TEST(SwappedInputs, SmallerOnes_TakeTheSamePlacesAndMoveTheirOwnBytes) {
  Passes passes(3, 1);
  const std::array<int64_t, 3> sizes{kBytes, 10, kBytes};
  for (int pass = 0; pass < 2; ++pass) {
    std::vector<std::unique_ptr<Passes::Input>> saved;
    for (int i = 0; i < 3; ++i) {
      const int64_t bytes = sizes[static_cast<size_t>((i + pass) % 3)];
      saved.push_back(passes.inputs().take(bytes));
      std::fill_n(static_cast<std::byte*>(saved.back()->data()), bytes, static_cast<std::byte>(i));
      saved.back()->filled({});
      passes.inputs().write_behind(0);
    }
    for (int i = 2; i >= 0; --i) {
      const auto* data = static_cast<const std::byte*>(saved.back()->bring());
      const int64_t bytes = sizes[static_cast<size_t>((i + pass) % 3)];
      EXPECT_EQ(data[0], static_cast<std::byte>(i));
      EXPECT_EQ(data[bytes - 1], static_cast<std::byte>(i));
      saved.pop_back();
    }
  }
  // Three pages of the two that move in the first pass; in the second of the smaller one and one
  // of the others.
  EXPECT_EQ(passes.inputs().traffic().bytes_written, 2 * (kExtent + 4096));
  EXPECT_EQ(passes.inputs().traffic().bytes_read, 2 * (kExtent + 4096));
  EXPECT_EQ(passes.live(Tier::nvme), 3 * kExtent);
}

TEST(SwappedInputs, UsedInAnyOrder_AreRight) {
  for (uint32_t seed = 1; seed <= 8; ++seed) {
    std::mt19937 random(seed);
    const int64_t buffers = 1 + random() % 4;
    const int64_t together = 1 + random() % 3;
    Passes passes(8, buffers, together);
    std::vector<std::pair<std::unique_ptr<Passes::Input>, int>> waiting;
    for (int call = 0; call < 60; ++call) {
      const auto some = waiting.begin() + (waiting.empty() ? 0 : random() % waiting.size());
      switch (random() % 3) {
        case 0:
          if (passes.inputs().has_room())
            waiting.emplace_back(passes.save(call, random() % 3), call);
          break;
        case 1:
          if (waiting.empty()) break;
          EXPECT_TRUE(Passes::is_right(*some->first, some->second)) << seed;
          break;
        default:
          if (!waiting.empty()) waiting.erase(some);
      }
    }
  }
}

// Neither the disk nor the next copy touches a buffer before the copy from or to it is done.
TEST(SwappedInputs, SlowCopies_AreWaitedFor) {
  constexpr int kCount = 4;
  Passes passes(kCount, 1);
  const StreamRef out = passes.context().stream(StreamRole::copy_out);
  const StreamRef in = passes.context().stream(StreamRole::copy_in);
  const auto lag = [] { std::this_thread::sleep_for(std::chrono::milliseconds(3)); };
  std::array<std::byte, kBytes> copied{};
  for (int pass = 0; pass < 2; ++pass) {
    const auto value_of = [pass](int i) { return 10 * pass + i + 1; };
    std::vector<std::unique_ptr<Passes::Input>> saved;
    for (int i = 0; i < kCount; ++i) {
      saved.push_back(passes.inputs().take(kBytes));
      out.submit("fill", [=, data = saved.back()->data()] {
        if (i > 0) lag();  // the first one comes while one of the pass before is copied in
        std::memset(data, value_of(i), kBytes);
      });
      saved.back()->filled(out->record());
      passes.inputs().write_behind(0);
      if (i > 0) continue;
      in->synchronize();
      EXPECT_EQ(static_cast<int>(copied[kBytes - 1]), pass == 0 ? 0 : 1);
    }
    for (int i = kCount - 1; i >= 0; --i) {
      const void* const data = saved.back()->bring();
      out->synchronize();
      in.submit("copy", [=, &copied] {
        lag();
        std::memcpy(copied.data(), data, kBytes);
      });
      const Event done = in->record();
      saved.back()->used(done);
      saved.pop_back();
      if (i == 0) continue;
      saved.back()->bring();
      done.wait();
      EXPECT_EQ(static_cast<int>(copied[kBytes - 1]), value_of(i)) << i;
    }
  }
  in->synchronize();
}

TEST(SwappedInputs, OutliveTheEngine_ButCannotBeBroughtThen) {
  Passes passes(4, 2);
  auto saved = passes.save_all(4);
  passes.inputs().close();
  EXPECT_EQ(passes.live(Tier::pinned_host), 0);
  EXPECT_EQ(passes.live(Tier::nvme), 0);
  EXPECT_THROW(saved.front()->bring(), InvalidArgument);
}

// A fault of every transfer of one kind while `*on` holds.
Faults faults_of(offload::IoKind kind, Fate fate, const std::shared_ptr<std::atomic<bool>>& on) {
  return {
      .fate = [=](const offload::BlockIo& io) { return *on && io.kind == kind ? fate : Fate{}; }};
}

// After it the next pass finds everything as it should be.
void expect_a_right_pass(Passes& passes, int count) {
  auto saved = passes.save_all(count);
  for (int i = count - 1; i >= 0; --i) {
    EXPECT_TRUE(Passes::is_right(*saved.back(), i)) << i;
    saved.pop_back();
  }
}

TEST(SwappedInputs, AWriteThatFails_IsAnErrorOfTheForwardPass) {
  const auto on = std::make_shared<std::atomic<bool>>(true);
  Passes passes(6, 2, 1, faults_of(offload::IoKind::write, {Fate::Kind::answer, -EIO}, on));
  const IoError error = offload::io_error_of([&] { passes.save_all(6); });
  EXPECT_EQ(error.error_number(), EIO);
  EXPECT_TRUE(passes.inputs().is_unused());
  *on = false;
  // Transfers of the failed pass that were under way may still fail, once.
  try {
    passes.save_all(6);
  } catch (const IoError&) {
  }
  expect_a_right_pass(passes, 6);
}

TEST(SwappedInputs, AReadThatFails_IsAnErrorOfBackward) {
  for (const Fate fate : {Fate{Fate::Kind::answer, -EIO}, Fate{Fate::Kind::flip_bit, 4321}}) {
    const auto on = std::make_shared<std::atomic<bool>>(true);
    Passes passes(6, 2, 1, faults_of(offload::IoKind::read, fate, on));
    {
      auto saved = passes.save_all(6);
      EXPECT_TRUE(Passes::is_right(*saved[5], 5));
      EXPECT_TRUE(Passes::is_right(*saved[4], 4));
      saved.resize(4);
      const IoError error = offload::io_error_of([&] { saved[3]->bring(); });
      EXPECT_EQ(error.error_number(), EIO);
      EXPECT_NE(std::string(error.what()).find("zinc-swap-"), std::string::npos) << error.what();
      *on = false;
      EXPECT_TRUE(Passes::is_right(*saved[3], 3));
    }
    expect_a_right_pass(passes, 6);
  }
}

// Right bytes or one named error, and after errors right bytes again.
TEST(SwappedInputs, OnABadDisk_AreRightOrAnIoError) {
  int failed = 0;
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    const auto random = std::make_shared<std::mt19937>(seed);
    const auto on = std::make_shared<std::atomic<bool>>(true);
    const Faults faults{.fate = [=](const offload::BlockIo&) -> Fate {
      if (!*on || (*random)() % 12 != 0) return {};
      using Kind = Fate::Kind;
      switch ((*random)() % 5) {
        case 0:
          return {Kind::answer, -EIO};
        case 1:
          return {Kind::shorten, 512};
        case 2:
          return {Kind::flip_bit, static_cast<int64_t>((*random)() % 30000)};
        case 3:
          return {Kind::lose, 0};
        default:
          return {Kind::answer, -EAGAIN};
      }
    }};
    Passes passes(6, 1 + seed % 3, 1, faults);
    for (int pass = 0; pass < 3; ++pass) {
      *on = pass == 0;
      try {
        expect_a_right_pass(passes, 6);
      } catch (const IoError&) {
        ++failed;
        EXPECT_LT(pass, 2) << seed;
      }
    }
  }
  EXPECT_GT(failed, 5);
}

}  // namespace swapped_inputs_test
}  // namespace zinc::offload
