// A GPU's kernels do not touch memory for an index outside their table, and the next wait for the
// device names the index: core/index_fault.h.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>

#include "core/context.h"
#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/gather_rows.h"
#include "kernels/rotary.h"
#include "tests/kernels/host_array.h"
#include "tests/kernels/test_device.h"

namespace zinc::kernels {
namespace index_fault_test {

using namespace zinc::test;

// The messages that the host gets when it waits for a GPU that ran `work`: by its stream, and by an
// event of it.
std::pair<std::string, std::string> heard_after(const std::function<void(StreamRef)>& work) {
  Context context({.device = device()});
  const ContextScope scope(context);
  work(context.compute());
  const Event event = context.compute()->record();
  return {message_of_invalid([&] { context.compute()->synchronize(); }),
          message_of_invalid([&] { event.wait(); })};
}

void expect_heard(const std::function<void(StreamRef)>& work, const std::string& message) {
  const auto [by_stream, by_event] = heard_after(work);
  EXPECT_EQ(by_stream, message);
  EXPECT_EQ(by_event, message);
}

TEST(IndexFault, BadIndexOnAGpu_IsNamedByTheNextWait) {
  if (!runs_on_cuda()) return;
  const HostArray table = HostArray::full({5, 4}, DType::f32, 1.0);
  const HostArray ids = HostArray::of({1, 4, 9}, {3}, DType::i64);
  const HostArray good = HostArray::of({1, 4, 0}, {3}, DType::i64);
  const HostArray rows = HostArray::full({3, 4}, DType::f32, 1.0);
  HostArray y({3, 4}, DType::f32), dtable({5, 4}, DType::f32), loss({1}, DType::f32);
  const HostArray workspace(Shape{embedding_backward_workspace_bytes(3)}, DType::u8);
  expect_heard(
      [&](StreamRef stream) {
        embedding_forward({.ids = ids, .table = table, .y = y}, stream);
        embedding_forward({.ids = good, .table = table, .y = y}, stream);
      },
      "embedding: ids[2] is 9, outside [0, 5)");
  expect_heard(
      [&](StreamRef stream) {
        embedding_forward(
            {.ids = good, .table = table, .position_table = table, .positions = ids, .y = y},
            stream);
      },
      "embedding: positions[2] is 9, outside [0, 5)");
  expect_heard(
      [&](StreamRef stream) {
        embedding_backward({.ids = ids, .dy = rows, .dtable = dtable, .workspace = workspace},
                           stream);
      },
      "embedding_backward: ids[2] is 9, outside [0, 5)");
  expect_heard([&](StreamRef stream) { gather_rows({.x = table, .ids = ids, .y = y}, stream); },
               "gather_rows: ids[2] is 9, outside [0, 5)");
  expect_heard(
      [&](StreamRef stream) { scatter_rows({.x = rows, .ids = ids, .y = dtable}, stream); },
      "scatter_rows: ids[2] is 9, outside [0, 5)");
  const HostArray labels = HostArray::of({3, -1, -100}, {3}, DType::i32);
  expect_heard(
      [&](StreamRef stream) {
        cross_entropy_forward({.logits = rows, .labels = labels, .loss = loss}, stream);
      },
      "cross_entropy: labels[1] is -1, outside [0, 4)");
  HostArray q = HostArray::full({1, 3, 1, 4}, DType::f32, 1.0);
  const HostArray angles = HostArray::full({5, 2}, DType::f32, 1.0);
  const HostArray positions = HostArray::of({0, 5, 1}, {1, 3}, DType::i32);
  expect_heard(
      [&](StreamRef stream) {
        rotary({.q = q, .cos = angles, .sin = angles, .positions = positions}, stream);
      },
      "rotary: positions[1] is 5, outside [0, 5)");
}

TEST(IndexFault, GoodAndIgnoredIndices_AreQuiet) {
  if (!runs_on_cuda()) return;
  const HostArray table = HostArray::full({5, 4}, DType::f32, 1.0);
  const HostArray ids = HostArray::of({0, 4, 2}, {3}, DType::i32);
  const HostArray labels = HostArray::of({3, -100, 0}, {3}, DType::i64);
  const HostArray rows = HostArray::full({3, 4}, DType::f32, 1.0);
  const HostArray absent = HostArray::of({0, static_cast<double>(kAbsentRow), 2}, {3}, DType::i32);
  const HostArray workspace(Shape{embedding_backward_workspace_bytes(3)}, DType::u8);
  HostArray y({3, 4}, DType::f32), dtable({5, 4}, DType::f32), loss({1}, DType::f32);
  expect_heard(
      [&](StreamRef stream) {
        embedding_forward({.ids = ids, .table = table, .y = y}, stream);
        embedding_forward({.ids = absent, .allows_absent = true, .table = table, .y = y}, stream);
        embedding_backward({.ids = absent,
                            .allows_absent = true,
                            .dy = rows,
                            .dtable = dtable,
                            .workspace = workspace},
                           stream);
        gather_rows({.x = table, .ids = ids, .y = y}, stream);
        cross_entropy_forward({.logits = rows, .labels = labels, .loss = loss}, stream);
      },
      "");
}

}  // namespace index_fault_test
}  // namespace zinc::kernels
