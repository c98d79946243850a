// The choice of the kernel for an attention, the cache of plans and the check, with a test library
// that is right, wrong, absent or unsteady.
#include "kernels/attention_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

#include "core/context.h"
#include "core/float16.h"
#include "kernels/device_notes.h"
#include "kernels/fill.h"
#include "tests/kernels/attention_inputs.h"
#include "tests/kernels/cpu_context.h"
#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace attention_library_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace zinc::test;

constexpr AttentionRule kRule{
    .dtype = DType::bf16, .head_size = 64, .causal = true, .min_keys = 1024};

struct Counts {
  int opened = 0, made = 0, checked = 0, run = 0;
};

// Counts what is asked of it.
class FakeLibrary final : public AttentionLibrary {
 public:
  using Run = std::function<void(const AttentionProblem&, const AttentionArrays&, StreamRef)>;
  FakeLibrary(Counts& counts, Run run = {}) : counts_(counts), run_(std::move(run)) {}
  std::string name() const override { return "fake 1.0"; }
  MadePlan make_plan(const AttentionKey& key) override {
    ++counts_.made;
    if (key.D == 128) return {.plan = nullptr, .why_not = "heads are too large"};
    return {.plan = std::make_unique<Plan>(*this), .why_not = ""};
  }

 private:
  class Plan final : public AttentionPlan {
   public:
    explicit Plan(FakeLibrary& library) : library_(library) {}
    void run(const AttentionProblem& p, const AttentionArrays& arrays, std::byte*,
             StreamRef stream) override {
      ++library_.counts_.run;
      if (library_.run_) library_.run_(p, arrays, stream);
    }

   private:
    FakeLibrary& library_;
  };

  Counts& counts_;
  Run run_;
};

// A problem on memory that nobody reads.
struct Problem {
  alignas(16) std::byte place[32];
  AttentionPass pass = AttentionPass::forward;
  AttentionProblem p;
  AttentionArrays arrays;

  explicit Problem(int64_t tokens = 1024, int64_t head_size = 64, DType dtype = DType::bf16) {
    p.B = 2;
    p.Tq = p.Tk = tokens;
    p.H = p.G = 4;
    p.D = head_size;
    p.dtype = dtype;
    for (HeadsView* view :
         {&p.q, &p.k, &p.v, &arrays.out, &arrays.dout, &arrays.dq, &arrays.dk, &arrays.dv}) {
      view->data = place;
      view->batch = tokens * 4 * head_size;
      view->row = 4 * head_size;
      view->head = head_size;
    }
  }
};

class AttentionLibraryChoice : public ::testing::Test {
 protected:
  AttentionLibraryChoice() {
    library_.set_table({&kRule, 1});
    library_.set_backend(
        {.open = [this] { return open(); },
         .check =
             [this](AttentionLibrary&, const AttentionKey& small, std::byte*, StreamRef) {
               ++counts_.checked;
               checked_.push_back(small);
               return small.Tq >= differs_from_ ? differs_ : "";
             }});
  }
  LibraryAttention::Opened open() {
    ++counts_.opened;
    if (!missing_.empty()) return {.library = nullptr, .why_not = missing_};
    return {.library = std::make_shared<FakeLibrary>(counts_), .why_not = ""};
  }
  bool run(const Problem& problem) {
    return library_.run(problem.pass, problem.p, problem.arrays, workspace_.data(),
                        context_.stream(), {});
  }
  int64_t bytes_of(const Problem& problem) {
    return library_.workspace_bytes(problem.pass, problem.p);
  }

  CpuContext context_;
  LibraryAttention library_;
  Counts counts_;
  std::string missing_, differs_;
  int64_t differs_from_ = 0;  // tokens
  std::vector<AttentionKey> checked_;
  std::vector<std::byte> workspace_{static_cast<size_t>(kAttentionCheckBytes)};
};

TEST_F(AttentionLibraryChoice, TheTableDecidesByPassShapeTypeAndMask) {
  Problem problem;
  EXPECT_GT(bytes_of(problem), kAttentionCheckBytes);
  EXPECT_EQ(bytes_of(Problem(1023)), 0);
  EXPECT_EQ(bytes_of(Problem(1024, 128)), 0);
  EXPECT_EQ(bytes_of(Problem(1024, 64, DType::f16)), 0);
  const auto without = [&](auto&& change) {
    Problem other;
    change(other);
    return bytes_of(other) == 0;
  };
  EXPECT_TRUE(without([](Problem& other) { other.pass = AttentionPass::backward; }));
  EXPECT_TRUE(without([](Problem& other) { other.p.mask.causal = false; }));
  EXPECT_TRUE(without([](Problem& other) { other.p.mask.window = 7; }));
  EXPECT_TRUE(without(
      [](Problem& other) { other.p.mask.key_lengths = ConstView(other.place, DType::i32, {2}); }));
  EXPECT_TRUE(without(
      [](Problem& other) { other.p.mask.alibi_slopes = ConstView(other.place, DType::f32, {4}); }));
  EXPECT_THAT(library_.notes(), IsEmpty());
  library_.choose(AttentionChoice::own);
  EXPECT_EQ(bytes_of(problem), 0);
}

// The workspace of cuDNN's plans: tests/cudnn compares these numbers with the plans.
TEST(AttentionPlanBytes, ForwardTakesNextToNothing_BackwardTheGradientOfAllScores) {
  AttentionKey key;
  key.B = 64;
  key.H = key.G = 12;
  key.Tq = key.Tk = 1024;
  key.D = 64;
  key.dtype = DType::bf16;
  EXPECT_EQ(attention_plan_bytes(key), 256);
  key.lengths = true;
  EXPECT_EQ(attention_plan_bytes(key), 512);
  key.pass = AttentionPass::backward;
  const int64_t heads = 64 * 12;
  const int64_t bytes = heads * 1024 * 1024 * 2 + heads * 1024 * 4 + 512;
  EXPECT_EQ(attention_plan_bytes(key), bytes);
  key.G = 4;
  EXPECT_EQ(attention_plan_bytes(key), bytes + 2 * heads * 1024 * 64 * 2);
  key.G = 12;
  key.Tq = key.Tk = 1000;  // 1024 of scores, 1000 of sums
  EXPECT_EQ(attention_plan_bytes(key), bytes - heads * 24 * 4);
}

TEST_F(AttentionLibraryChoice, WithoutMeasuredLinesNothingIsAsked) {
  EXPECT_THAT(attention_table(), IsEmpty());
  EXPECT_EQ(LibraryAttention().workspace_bytes(AttentionPass::forward, Problem().p), 0);
}

TEST_F(AttentionLibraryChoice, TheOutlookSaysWhoTakesItAndWhy) {
  const LibraryAttention::Backend none;
  EXPECT_EQ(library_.outlook(DType::f16, none),
            "zinc's own kernels: no line of the library's table is about f16 (docs/kernels.md)");
  EXPECT_EQ(counts_.opened, 0);
  EXPECT_EQ(library_.outlook(DType::bf16, none),
            "fake 1.0 for forward of bf16, head size 64, causal, from 1024 keys, if it agrees with "
            "zinc's own "
            "kernels at its first use; these for the rest");
  library_.choose(AttentionChoice::library);
  EXPECT_THAT(library_.outlook(DType::f16, none), HasSubstr("fake 1.0 for all that it takes"));
  library_.choose(AttentionChoice::own);
  EXPECT_THAT(library_.outlook(DType::bf16, none), HasSubstr("own kernels, chosen by name"));
}

TEST_F(AttentionLibraryChoice, TheOutlookNamesWhatIsMissing) {
  missing_ = "libfake.so is not found";
  EXPECT_EQ(library_.outlook(DType::bf16, {}), "zinc's own kernels: libfake.so is not found");
  EXPECT_FALSE(run(Problem()));
  EXPECT_EQ(counts_.opened, 1);
}

TEST_F(AttentionLibraryChoice, ByName_EverythingThatAGraphCanSayIsAsked) {
  library_.choose(AttentionChoice::library);
  static std::byte place[8];
  const ConstView ints(place, DType::i32, {1}), floats(place, DType::f32, {1});
  for (const AttentionPass pass : {AttentionPass::forward, AttentionPass::backward}) {
    const auto asked = [&](auto&& change) {
      Problem problem(48, 128, DType::f16);
      problem.pass = pass;
      change(problem.p);
      return bytes_of(problem) > 0;
    };
    EXPECT_TRUE(asked([](AttentionProblem&) {}));
    EXPECT_TRUE(asked([](AttentionProblem& p) { p.D = 64; }));
    EXPECT_TRUE(asked([](AttentionProblem& p) { p.G = 2; }));
    EXPECT_TRUE(asked([](AttentionProblem& p) { p.mask.window = 5; }));
    EXPECT_TRUE(asked([&](AttentionProblem& p) { p.mask.key_lengths = ints; }));
    EXPECT_TRUE(asked([&](AttentionProblem& p) { p.mask.alibi_slopes = floats; }));
    EXPECT_TRUE(asked([](AttentionProblem& p) {
      p.Tq = 3;
      p.mask.causal = false;
    }));
    EXPECT_THAT(library_.notes(), IsEmpty());
  }
}

TEST_F(AttentionLibraryChoice, ByName_WhatItIsNotAskedIsNamedOnceWithShapeAndReason) {
  library_.choose(AttentionChoice::library);
  static std::byte place[8];
  const ConstView some(place, DType::i32, {1});
  const auto reason = [&](auto&& change) {
    LibraryAttention library;
    library.choose(AttentionChoice::library);
    Problem problem;
    change(problem.p);
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(library.workspace_bytes(AttentionPass::backward, problem.p), 0);
    }
    return library.notes().size() == 1 ? library.notes()[0] : "";
  };
  EXPECT_EQ(reason([](AttentionProblem& p) { p.D = 80; }),
            "attention backward of 2 x 1024 queries and 1024 keys, 4 heads of 80, bf16 runs on "
            "zinc's own kernels: the head size is neither 64 nor 128");
  EXPECT_THAT(reason([](AttentionProblem& p) { p.dtype = DType::f32; }), HasSubstr("the dtype"));
  EXPECT_THAT(reason([](AttentionProblem& p) { p.Tq = 3; }), HasSubstr("are cached"));
  EXPECT_THAT(reason([](AttentionProblem& p) { p.dropout.probability = 0.1f; }),
              HasSubstr("dropout"));
  EXPECT_THAT(reason([&](AttentionProblem& p) { p.mask.key_begin = some; }), HasSubstr("packed"));
  EXPECT_THAT(reason([&](AttentionProblem& p) { p.mask.key_end = some; }), HasSubstr("packed"));
  EXPECT_THAT(reason([&](AttentionProblem& p) { p.mask.bias = some; }), HasSubstr("a bias"));
  EXPECT_THAT(reason([](AttentionProblem& p) { p.softcap = 50; }), HasSubstr("capped"));
  const std::vector<uint8_t> all(1, 1);
  EXPECT_THAT(reason([&](AttentionProblem& p) {
                p.mask.layout.blocks = std::make_shared<const BlockLayout>(16, 1, 1, all);
              }),
              HasSubstr("a layout of blocks hides keys"));
  EXPECT_THAT(reason([](AttentionProblem& p) { p.Tq = p.Tk = 16384; }),
              HasSubstr("its workspace would be 4295491840 bytes, and 3221225472 are allowed"));
  EXPECT_THAT(reason([&](AttentionProblem& p) {
                p.mask.causal = false;
                p.mask.alibi_slopes = some;
              }),
              HasSubstr("ALiBi reaches"));
  EXPECT_THAT(reason([](AttentionProblem& p) {
                p.mask.causal = false;
                p.mask.window = 4;
              }),
              HasSubstr("the window reaches"));
}

TEST_F(AttentionLibraryChoice, NotesAreBounded) {
  library_.choose(AttentionChoice::library);
  for (int64_t i = 1; i < 100; ++i) bytes_of(Problem(i, 80));
  EXPECT_LE(library_.notes().size(), DeviceNotes::kMaxLines);
}

TEST_F(AttentionLibraryChoice, APlanIsMadeOncePerKey_AKindIsCheckedOnce) {
  EXPECT_TRUE(run(Problem()));
  EXPECT_TRUE(run(Problem()));
  EXPECT_EQ(counts_.opened, 1);
  EXPECT_EQ(counts_.made, 1);
  EXPECT_EQ(counts_.checked, 3);
  EXPECT_EQ(counts_.run, 2);
  Problem strided;
  strided.p.k.row *= 2;
  EXPECT_TRUE(run(strided));
  EXPECT_TRUE(run(Problem(2048)));
  EXPECT_EQ(counts_.made, 3);
  EXPECT_EQ(counts_.checked, 3);
  Problem grouped;
  grouped.p.G = 2;
  EXPECT_TRUE(run(grouped));
  EXPECT_EQ(counts_.checked, 6);
  EXPECT_LT(checked_[3].G, checked_[3].H);
  EXPECT_THAT(library_.notes(), IsEmpty());
}

TEST_F(AttentionLibraryChoice, EachPassAndMaskIsAKindOfItsOwn) {
  const auto kinds = [&](auto&& change) {
    const int before = counts_.checked;
    Problem problem;
    change(problem);
    EXPECT_TRUE(run(problem));
    return counts_.checked - before;
  };
  static std::byte place[8];
  EXPECT_EQ(kinds([](Problem&) {}), 3);
  EXPECT_EQ(kinds([](Problem& other) { other.pass = AttentionPass::backward; }), 3);
  EXPECT_EQ(kinds([](Problem& other) { other.p.mask.window = 100; }), 3);
  EXPECT_GT(checked_.back().window, 0);
  EXPECT_LT(checked_.back().window, 40);
  EXPECT_EQ(kinds([](Problem& other) { other.p.mask.window = 200; }), 0);
  EXPECT_EQ(
      kinds([](Problem& other) { other.p.mask.alibi_slopes = ConstView(place, DType::f32, {4}); }),
      3);
  EXPECT_EQ(counts_.made, 5);
}

TEST_F(AttentionLibraryChoice, AKindIsCheckedWithinATile_WithATail_AndOverSeveralTiles) {
  Problem problem(2048, 64);
  EXPECT_TRUE(run(problem));
  ASSERT_EQ(checked_.size(), 3u);
  for (const AttentionKey& small : checked_) {
    EXPECT_EQ(small.D, 64);
    EXPECT_EQ(small.dtype, DType::bf16);
    EXPECT_EQ(small.causal, problem.p.mask.causal);
    EXPECT_EQ(small.Tk, small.Tq);
  }
  EXPECT_LT(checked_[0].Tq, 64);
  EXPECT_NE(checked_[1].Tq % 64, 0);
  EXPECT_GT(checked_[1].Tq, 128);
  EXPECT_EQ(checked_[2].Tq % 128, 0);
  EXPECT_GT(checked_[2].Tq, 2 * 128);
}

TEST_F(AttentionLibraryChoice, ALibraryThatIsWrongForLongerTextsAloneNeverRuns) {
  differs_ = "out is 0.3 apart";
  differs_from_ = 384;
  EXPECT_FALSE(run(Problem()));
  EXPECT_FALSE(run(Problem()));
  EXPECT_EQ(counts_.checked, 3);
  EXPECT_EQ(counts_.run, 0);
  EXPECT_THAT(library_.notes(), ElementsAre(HasSubstr("384 tokens): out is 0.3 apart; own ")));
}

TEST_F(AttentionLibraryChoice, PlansAreBounded) {
  const auto count = static_cast<int64_t>(LibraryAttention::kMaxPlans);
  for (int64_t i = 0; i < count + 3; ++i) EXPECT_TRUE(run(Problem(1024 + i)));
  EXPECT_EQ(library_.num_plans(), 3u);
}

TEST_F(AttentionLibraryChoice, RowsThatAreNotAlignedAreOurs) {
  Problem problem;
  problem.p.v.data = problem.place + 8;
  EXPECT_FALSE(run(problem));
  problem = Problem();
  problem.arrays.out.row += 4;
  EXPECT_FALSE(run(problem));
  EXPECT_EQ(counts_.run, 0);
  problem = Problem();
  problem.arrays.dk.row += 4;
  EXPECT_TRUE(run(problem));
  problem.pass = AttentionPass::backward;
  EXPECT_FALSE(run(problem));
}

TEST_F(AttentionLibraryChoice, AMissingLibraryIsALine_ByNameAnError) {
  missing_ = "libfake.so is not found";
  EXPECT_FALSE(run(Problem()));
  EXPECT_FALSE(run(Problem()));
  EXPECT_EQ(counts_.opened, 1);
  EXPECT_THAT(library_.notes(), ElementsAre(HasSubstr("own kernels: libfake.so is not found")));
  library_.choose(AttentionChoice::library);
  try {
    run(Problem());
    FAIL() << "a missing library was accepted";
  } catch (const CudaError& error) {
    EXPECT_THAT(error.what(), HasSubstr("chosen by name: libfake.so is not found"));
  }
}

TEST_F(AttentionLibraryChoice, ARefusedProblemIsOursAndNamedOnce) {
  EXPECT_FALSE(run(Problem(1024, 128)));
  EXPECT_FALSE(run(Problem(1024, 128)));
  EXPECT_FALSE(run(Problem(2048, 128)));
  EXPECT_EQ(counts_.made, 2);
  EXPECT_THAT(
      library_.notes(),
      ElementsAre(HasSubstr("fake 1.0 does not take attention forward of bf16, head size 128, "
                            "causal: heads are too large")));
}

TEST_F(AttentionLibraryChoice, AWrongLibraryNeverRuns_ByNameItIsAnError) {
  differs_ = "out is 0.3 apart";
  EXPECT_FALSE(run(Problem()));
  EXPECT_FALSE(run(Problem(2048)));
  EXPECT_EQ(counts_.checked, 1);
  EXPECT_EQ(counts_.run, 0);
  EXPECT_THAT(library_.notes(), ElementsAre(HasSubstr("out is 0.3 apart; own kernels take it")));
  library_.choose(AttentionChoice::library);
  EXPECT_THROW(run(Problem()), CudaError);
}

TEST(AttentionLibrary, AMetaDeviceCountsTheWorkspace) {
  Context context({.device = {.kind = DeviceKind::cuda, .index = 0, .meta = true}});
  const ContextScope scope(context);
  auto& library = context.slot<LibraryAttention>();
  const Block q = context.allocate(2 * 256 * 4 * 64 * 2, Label::activations);
  const View view(q.data(), DType::bf16, {2, 256, 4, 64}, context.device(), Tier::device);
  const Block of_lse = context.allocate(2 * 4 * 256 * 4, Label::activations);
  const View lse(of_lse.data(), DType::f32, {2, 4, 256}, context.device(), Tier::device);
  const Block out = context.allocate(view.bytes(), Label::activations);
  const View to(out.data(), DType::bf16, view.shape(), context.device(), Tier::device);
  const auto peak_of = [&](AttentionChoice choice, AttentionPass pass) {
    library.choose(choice);
    context.allocator().reset_peaks();
    if (pass == AttentionPass::forward) {
      attention_forward({.q = view, .k = view, .v = view, .out = to}, context.compute());
    } else {
      attention_backward({.q = view,
                          .k = view,
                          .v = view,
                          .out = view,
                          .lse = lse,
                          .dout = view,
                          .dq = to,
                          .dk = to,
                          .dv = to,
                          .dbias = {}},
                         context.compute());
    }
    return context.allocator().report().at(Tier::device, Label::workspace).peak;
  };
  EXPECT_EQ(peak_of(AttentionChoice::own, AttentionPass::forward), 0);
  EXPECT_EQ(peak_of(AttentionChoice::own, AttentionPass::backward), lse.bytes());
  // The check's problems need more than 256 bytes if only lengths are given.
  EXPECT_EQ(peak_of(AttentionChoice::library, AttentionPass::forward), kAttentionCheckBytes + 256);
  EXPECT_EQ(peak_of(AttentionChoice::library, AttentionPass::backward),
            kAttentionCheckBytes + 2 * 4 * 256 * 256 * 2 + lse.bytes() + 256);
}

// The library's check on the device, with a library that computes by our kernels, and with another
// scale where it is wrong.
class AttentionLibraryOnDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!runs_on_cuda()) GTEST_SKIP() << "needs a CUDA device";
  }
  // Forward or backward, as the arrays are of.
  static void compute(const AttentionProblem& p, const AttentionArrays& arrays, double factor,
                      StreamRef stream) {
    const auto view = [&](const HeadsView& of, int64_t tokens, int64_t heads) {
      return View(const_cast<void*>(of.data), p.dtype, {p.B, tokens, heads, p.D},
                  {of.batch, of.row, of.head, 1}, p.device, Tier::device);
    };
    auto& library = Context::current().slot<LibraryAttention>();
    const AttentionChoice before = library.choice();
    library.choose(AttentionChoice::own);
    View sums;
    if (arrays.lse != nullptr) {
      sums = View(arrays.lse, DType::f32, {p.B, p.H, p.Tq}, p.device, Tier::device);
    }
    const View q = view(p.q, p.Tq, p.H), k = view(p.k, p.Tk, p.G), v = view(p.v, p.Tk, p.G);
    const View out = view(arrays.out, p.Tq, p.H);
    if (arrays.dq.data == nullptr) {
      attention_forward({.q = q,
                         .k = k,
                         .v = v,
                         .out = out,
                         .lse = sums,
                         .scale = p.scale * factor,
                         .mask = p.mask},
                        stream);
    } else {
      attention_backward({.q = q,
                          .k = k,
                          .v = v,
                          .out = out,
                          .lse = sums,
                          .dout = view(arrays.dout, p.Tq, p.H),
                          .dq = view(arrays.dq, p.Tq, p.H),
                          .dk = view(arrays.dk, p.Tk, p.G),
                          .dv = view(arrays.dv, p.Tk, p.G),
                          .dbias = {},
                          .scale = p.scale * factor,
                          .mask = p.mask},
                         stream);
    }
    library.choose(before);
  }
  void set_library(LibraryAttention& library, const FakeLibrary::Run& run) {
    const FakeLibrary::Run counted = [this, run](const AttentionProblem& p,
                                                 const AttentionArrays& arrays, StreamRef stream) {
      if (arrays.dq.data != nullptr) of_library_ = std::max(of_library_, own_workspace(p));
      run(p, arrays, stream);
    };
    const auto open = [this, counted] {
      return LibraryAttention::Opened{.library = std::make_shared<FakeLibrary>(counts_, counted),
                                      .why_not = ""};
    };
    library.set_backend({.open = open, .check = {}});
  }
  // The workspace that our backward allocates for a problem.
  static int64_t own_workspace(const AttentionProblem& p) {
    return (p.B * p.H * p.Tq * int64_t{sizeof(float)} + 255) / 256 * 256;
  }
  // The peak on a meta device: it depends on the shape alone, whichever kernel takes the problem.
  static int64_t planned_peak(const Case& c, AttentionPass pass, LibraryAttention& library) {
    AttentionProblem p;
    p.B = c.B;
    p.Tq = c.Tq;
    p.Tk = c.Tk;
    p.H = c.H;
    p.G = c.G;
    p.D = c.D;
    p.dtype = DType::bf16;
    p.mask.causal = (c.features & kCausal) != 0;
    const int64_t bytes = library.workspace_bytes(pass, p);
    return pass == AttentionPass::forward ? bytes : std::max(bytes, own_workspace(p));
  }
  // The case by a context whose table names its pass from `min_keys` on and whose library is `run`.
  Inputs computed(const Case& c, AttentionPass pass, const FakeLibrary::Run& run,
                  int64_t min_keys = 1) {
    const AttentionRule rule{.pass = pass,
                             .dtype = DType::bf16,
                             .head_size = c.D,
                             .causal = (c.features & kCausal) != 0,
                             .min_keys = min_keys};
    CpuContext context;
    auto& library = Context::current().slot<LibraryAttention>();
    library.set_table({&rule, 1});
    set_library(library, run);
    Inputs x(c, DType::bf16);
    x.forward(context.stream());
    if (pass == AttentionPass::backward) x.backward(context.stream());
    context.stream()->synchronize();
    notes_ = library.notes();
    const MemoryFigures figures = context->allocator().report().at(Tier::device, Label::workspace);
    EXPECT_EQ(figures.live, 0);
    EXPECT_EQ(figures.peak, planned_peak(c, pass, library) + of_library_);
    return x;
  }
  HostArray out_of(const Case& c, const FakeLibrary::Run& run, int64_t min_keys = 1) {
    return computed(c, AttentionPass::forward, run, min_keys).out;
  }
  Inputs own(const Case& c) {
    CpuContext context;
    Inputs x(c, DType::bf16);
    x.forward(context.stream());
    x.backward(context.stream());
    context.stream()->synchronize();
    return x;
  }
  HostArray own_out(const Case& c) { return own(c).out; }
  // Our own, with another scale.
  static FakeLibrary::Run by_scale(std::function<double(const AttentionProblem&)> factor) {
    return
        [factor = std::move(factor)](const AttentionProblem& p, const AttentionArrays& arrays,
                                     StreamRef stream) { compute(p, arrays, factor(p), stream); };
  }
  static void right(const AttentionProblem& p, const AttentionArrays& arrays, StreamRef stream) {
    compute(p, arrays, 1.0, stream);
  }

  Counts counts_;
  // The most that the library allocated beside its caller's workspace, as it computes by our
  // kernels.
  int64_t of_library_ = 0;
  std::vector<std::string> notes_;
};

constexpr Case kGrouped{"Grouped", 1, 40, 40, 4, 2, 64, kCausal};

TEST_F(AttentionLibraryOnDevice, AnAgreeingLibraryIsUsed) {
  const HostArray out = out_of(kGrouped, right);
  EXPECT_THAT(notes_, IsEmpty());
  EXPECT_EQ(counts_.run, 3 * 2 + 1);  // twice in each check
  EXPECT_TRUE(same_bits(out, own_out(kGrouped)));
}

TEST_F(AttentionLibraryOnDevice, ALineOfTheTableIsObeyed) {
  out_of(kGrouped, right, kGrouped.Tk + 1);
  EXPECT_EQ(counts_.opened, 0);
  EXPECT_EQ(counts_.run, 0);
  // A library's own result is used, once it is trusted.
  int runs = 0;
  const HostArray out =
      out_of(kGrouped, by_scale([&](const AttentionProblem&) { return ++runs > 6 ? 1.5 : 1.0; }),
             kGrouped.Tk);
  EXPECT_EQ(counts_.run, 7);
  EXPECT_FALSE(same_bits(out, own_out(kGrouped)));
}

TEST_F(AttentionLibraryOnDevice, AWrongLibraryIsFoundAndNotUsed) {
  const HostArray out = out_of(kGrouped, by_scale([](const AttentionProblem&) { return 1.05; }));
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("apart")));
  EXPECT_EQ(counts_.run, 2);
  EXPECT_TRUE(same_bits(out, own_out(kGrouped)));
}

TEST_F(AttentionLibraryOnDevice, OneThatIsWrongForOneLengthIsFoundAndNotUsed) {
  for (const int64_t tokens : {40, 136, 384}) {
    const HostArray out = out_of(
        kGrouped, by_scale([&](const AttentionProblem& p) { return p.Tq == tokens ? 1.05 : 1.0; }));
    EXPECT_THAT(notes_, ElementsAre(HasSubstr(str(tokens, " tokens): out of query"))));
    EXPECT_TRUE(same_bits(out, own_out(kGrouped)));
  }
}

// A number where a query's rows are summed would not show among those of hundreds of them.
TEST_F(AttentionLibraryOnDevice, OneThatIsWrongInOneNumberIsFound) {
  out_of(kGrouped, [](const AttentionProblem& p, const AttentionArrays& arrays, StreamRef stream) {
    right(p, arrays, stream);
    if (p.Tq < 384) return;
    const HeadsView& out = arrays.out;
    auto* last = static_cast<bf16*>(const_cast<void*>(out.data)) + out.at(0, 383, 1);
    fill({.y = View(last, DType::bf16, {1}, p.device, Tier::device), .value = 0.25}, stream);
  });
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("384 tokens): out of query 383 is")));
}

TEST_F(AttentionLibraryOnDevice, OneThatLeavesSumsOrOutputUnwrittenIsFound) {
  out_of(kGrouped, [](const AttentionProblem& p, const AttentionArrays& arrays, StreamRef stream) {
    right(p, {.out = arrays.out}, stream);
  });
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("lse[0] is nan")));
  out_of(kGrouped, [](const AttentionProblem&, const AttentionArrays&, StreamRef) {});
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("out of query 0 is nan apart")));
}

TEST_F(AttentionLibraryOnDevice, ALibraryWhoseBitsChangeIsNotUsed) {
  int runs = 0;
  out_of(kGrouped,
         by_scale([&](const AttentionProblem&) { return ++runs % 2 == 0 ? 1.001 : 1.0; }));
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("two runs of it give other bits")));
}

TEST_F(AttentionLibraryOnDevice, Backward_AnAgreeingLibraryIsUsed) {
  const Inputs x = computed(kGrouped, AttentionPass::backward, right);
  EXPECT_THAT(notes_, IsEmpty());
  EXPECT_EQ(counts_.run, 3 * 2 + 1);
  const Inputs expected = own(kGrouped);
  EXPECT_TRUE(same_bits(x.dq, expected.dq));
  EXPECT_TRUE(same_bits(x.dk, expected.dk));
  EXPECT_TRUE(same_bits(x.dv, expected.dv));
}

TEST_F(AttentionLibraryOnDevice, Backward_AWrongGradientOfEachIsFoundAndNotUsed) {
  using Which = HeadsView AttentionArrays::*;
  for (const auto& [which, name] : {std::pair<Which, const char*>{&AttentionArrays::dq, "dq of qu"},
                                    {&AttentionArrays::dk, "dk of key"},
                                    {&AttentionArrays::dv, "dv of key"}}) {
    const Inputs x = computed(
        kGrouped, AttentionPass::backward,
        [which = which](const AttentionProblem& p, const AttentionArrays& arrays,
                        StreamRef stream) {
          right(p, arrays, stream);
          if (p.Tq < 136) return;
          const HeadsView& view = arrays.*which;
          auto* one = static_cast<bf16*>(const_cast<void*>(view.data)) + view.at(0, 100, 0);
          fill({.y = View(one, DType::bf16, {1}, p.device, Tier::device), .value = 5.0}, stream);
        });
    EXPECT_THAT(notes_, ElementsAre(HasSubstr(str("136 tokens): ", name))));
    EXPECT_THAT(notes_, ElementsAre(HasSubstr(" 100 is")));
    EXPECT_TRUE(same_bits(x.dq, own(kGrouped).dq));
  }
}

TEST_F(AttentionLibraryOnDevice, Backward_ALibraryWhoseBitsChangeIsNotUsed) {
  int runs = 0;
  computed(kGrouped, AttentionPass::backward,
           by_scale([&](const AttentionProblem&) { return ++runs % 2 == 0 ? 1.001 : 1.0; }));
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("two runs of it give other bits")));
}

// The problems of the check have the masks of their kind: a library that leaves one out is found.
TEST_F(AttentionLibraryOnDevice, ALibraryThatForgetsAMaskIsFound) {
  struct Forgotten {
    unsigned features;
    const char* name;
    void (*forget)(AttentionMask&);
  };
  for (const Forgotten& one :
       {Forgotten{kCausal | kWindow, "window", [](AttentionMask& mask) { mask.window = 0; }},
        Forgotten{kCausal | kAlibi, "ALiBi", [](AttentionMask& mask) { mask.alibi_slopes = {}; }},
        Forgotten{kLengths, "lengths", [](AttentionMask& mask) { mask.key_lengths = {}; }}}) {
    Case c = kGrouped;
    c.features = one.features;
    for (const AttentionPass pass : {AttentionPass::forward, AttentionPass::backward}) {
      const auto error = [&](bool forgets) -> std::string {
        CpuContext context;
        auto& library = Context::current().slot<LibraryAttention>();
        set_library(library, [&](const AttentionProblem& p, const AttentionArrays& arrays,
                                 StreamRef stream) {
          AttentionProblem other = p;
          if (forgets) one.forget(other.mask);
          right(other, arrays, stream);
        });
        Inputs x(c, DType::bf16);
        if (pass == AttentionPass::backward) x.forward(context.stream());
        library.choose(AttentionChoice::library);
        try {
          if (pass == AttentionPass::forward) x.forward(context.stream());
          if (pass == AttentionPass::backward) x.backward(context.stream());
        } catch (const CudaError& caught) {
          return caught.what();
        }
        context.stream()->synchronize();
        return "";
      };
      EXPECT_EQ(error(false), "") << one.name;
      EXPECT_THAT(error(true), HasSubstr(" apart")) << one.name;
    }
  }
}

}  // namespace attention_library_test
}  // namespace zinc::kernels
