// Who takes which attention: the choice, the cache of plans and the check, with a library of our
// own that is right, wrong, absent or unsteady.
#include "kernels/attention_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "core/context.h"
#include "core/float16.h"
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
  using Run = std::function<void(const AttentionProblem&, const HeadsView&, float*, StreamRef)>;
  FakeLibrary(Counts& counts, Run run = {}) : counts_(counts), run_(std::move(run)) {}
  std::string name() const override { return "fake 1.0"; }
  MadePlan make_plan(const AttentionKey& key) override {
    ++counts_.made;
    if (key.D == 256) return {.plan = nullptr, .why_not = "heads are too large"};
    return {.plan = std::make_unique<Plan>(*this), .why_not = ""};
  }

 private:
  class Plan final : public AttentionPlan {
   public:
    explicit Plan(FakeLibrary& library) : library_(library) {}
    void run(const AttentionProblem& p, const HeadsView& out, float* lse, std::byte*,
             StreamRef stream) override {
      ++library_.counts_.run;
      if (library_.run_) library_.run_(p, out, lse, stream);
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
  AttentionProblem p;
  HeadsView out;

  explicit Problem(int64_t tokens = 1024, int64_t head_size = 64, DType dtype = DType::bf16) {
    p.B = 2;
    p.Tq = p.Tk = tokens;
    p.H = p.G = 4;
    p.D = head_size;
    p.dtype = dtype;
    for (HeadsView* view : {&p.q, &p.k, &p.v, &out}) {
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
    return library_.run_forward(problem.p, problem.out, nullptr, nullptr, context_.stream(), {});
  }

  CpuContext context_;
  LibraryAttention library_;
  Counts counts_;
  std::string missing_, differs_;
  int64_t differs_from_ = 0;  // tokens
  std::vector<AttentionKey> checked_;
};

TEST_F(AttentionLibraryChoice, TheTableDecidesByShapeTypeAndMask) {
  const int64_t bytes = kAttentionPlanBytes + kAttentionCheckBytes;
  Problem problem;
  EXPECT_EQ(library_.workspace_bytes(problem.p), bytes);
  EXPECT_EQ(library_.workspace_bytes(Problem(1023).p), 0);
  EXPECT_EQ(library_.workspace_bytes(Problem(1024, 128).p), 0);
  EXPECT_EQ(library_.workspace_bytes(Problem(1024, 64, DType::f16).p), 0);
  problem.p.mask.causal = false;
  EXPECT_EQ(library_.workspace_bytes(problem.p), 0);
  problem.p.mask.causal = true;
  problem.p.mask.key_lengths = ConstView(problem.place, DType::i32, {2});
  EXPECT_EQ(library_.workspace_bytes(problem.p), 0);
  library_.choose(AttentionChoice::own);
  EXPECT_EQ(library_.workspace_bytes(Problem().p), 0);
}

TEST_F(AttentionLibraryChoice, WithoutMeasuredLinesNothingIsAsked) {
  EXPECT_THAT(attention_table(), IsEmpty());
  EXPECT_EQ(LibraryAttention().workspace_bytes(Problem().p), 0);
}

TEST_F(AttentionLibraryChoice, TheOutlookSaysWhoTakesItAndWhy) {
  const LibraryAttention::Backend none;
  EXPECT_EQ(library_.outlook(DType::f16, none),
            "zinc's own kernels: no line of the library's table is about f16 (docs/kernels.md)");
  EXPECT_EQ(counts_.opened, 0);
  EXPECT_EQ(library_.outlook(DType::bf16, none),
            "fake 1.0 for bf16, head size 64, causal, from 1024 keys, if it agrees with zinc's own "
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
  EXPECT_GT(library_.workspace_bytes(Problem(7, 24, DType::f16).p), 0);
  const auto refused = [&](auto&& change) {
    Problem problem;
    change(problem.p);
    return library_.workspace_bytes(problem.p) == 0;
  };
  static std::byte place[4];
  const ConstView some(place, DType::i32, {1});
  EXPECT_TRUE(refused([](AttentionProblem& p) { p.dtype = DType::f32; }));
  EXPECT_TRUE(refused([](AttentionProblem& p) { p.D = 60; }));
  EXPECT_TRUE(refused([](AttentionProblem& p) { p.D = 264; }));
  EXPECT_TRUE(refused([](AttentionProblem& p) { p.Tq = 3; }));
  EXPECT_TRUE(refused([](AttentionProblem& p) { p.dropout.probability = 0.1f; }));
  EXPECT_TRUE(refused([&](AttentionProblem& p) { p.mask.key_begin = some; }));
  EXPECT_TRUE(refused([&](AttentionProblem& p) { p.mask.key_end = some; }));
  EXPECT_TRUE(refused([&](AttentionProblem& p) { p.mask.bias = some; }));
  EXPECT_TRUE(refused([&](AttentionProblem& p) { p.mask.alibi_slopes = some; }));
  EXPECT_FALSE(refused([](AttentionProblem& p) {
    p.Tq = 3;
    p.mask.causal = false;
  }));
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
  problem.out.row += 4;
  EXPECT_FALSE(run(problem));
  EXPECT_EQ(counts_.run, 0);
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
  EXPECT_FALSE(run(Problem(1024, 256)));
  EXPECT_FALSE(run(Problem(1024, 256)));
  EXPECT_FALSE(run(Problem(2048, 256)));
  EXPECT_EQ(counts_.made, 2);
  EXPECT_THAT(library_.notes(),
              ElementsAre(HasSubstr("fake 1.0 does not take attention of bf16, head size 256, "
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
  const auto peak_of = [&](AttentionChoice choice) {
    library.choose(choice);
    const Block q = context.allocate(2 * 64 * 4 * 64 * 2, Label::activations);
    const View view(q.data(), DType::bf16, {2, 64, 4, 64}, context.device(), Tier::device);
    const Block out = context.allocate(view.bytes(), Label::activations);
    attention_forward({.q = view,
                       .k = view,
                       .v = view,
                       .out = View(out.data(), DType::bf16, view.shape(), context.device())},
                      context.compute());
    return context.allocator().report().at(Tier::device, Label::workspace).peak;
  };
  EXPECT_EQ(peak_of(AttentionChoice::own), 0);
  EXPECT_EQ(peak_of(AttentionChoice::library), kAttentionPlanBytes + kAttentionCheckBytes);
}

// On the device, with its own check: a library that computes by our kernels, with another scale
// where it is wrong.
class AttentionLibraryOnDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!runs_on_cuda()) GTEST_SKIP() << "needs a CUDA device";
  }
  static void compute(const AttentionProblem& p, const HeadsView& out, float* lse, double factor,
                      StreamRef stream) {
    const auto view = [&](const HeadsView& of, int64_t tokens, int64_t heads) {
      return View(const_cast<void*>(of.data), p.dtype, {p.B, tokens, heads, p.D},
                  {of.batch, of.row, of.head, 1}, p.device, Tier::device);
    };
    auto& library = Context::current().slot<LibraryAttention>();
    library.choose(AttentionChoice::own);
    View sums;
    if (lse != nullptr) sums = View(lse, DType::f32, {p.B, p.H, p.Tq}, p.device);
    attention_forward({.q = view(p.q, p.Tq, p.H),
                       .k = view(p.k, p.Tk, p.G),
                       .v = view(p.v, p.Tk, p.G),
                       .out = view(out, p.Tq, p.H),
                       .lse = sums,
                       .scale = p.scale * factor,
                       .mask = p.mask},
                      stream);
    library.choose(AttentionChoice::by_table);
  }
  // out of the case by a context whose table names it from `min_keys` on and whose library is
  // `run`.
  HostArray out_of(const Case& c, const FakeLibrary::Run& run, int64_t min_keys = 1) {
    const AttentionRule rule{.dtype = DType::bf16,
                             .head_size = c.D,
                             .causal = (c.features & kCausal) != 0,
                             .min_keys = min_keys};
    CpuContext context;
    auto& library = Context::current().slot<LibraryAttention>();
    library.set_table({&rule, 1});
    library.set_backend({.open =
                             [&] {
                               return LibraryAttention::Opened{
                                   .library = std::make_shared<FakeLibrary>(counts_, run),
                                   .why_not = ""};
                             },
                         .check = {}});
    Inputs x(c, DType::bf16);
    x.forward(context.stream());
    context.stream()->synchronize();
    notes_ = library.notes();
    const MemoryReport memory = context->allocator().report();
    EXPECT_EQ(memory.at(Tier::device, Label::workspace).live, 0);
    EXPECT_EQ(memory.at(Tier::device, Label::workspace).peak,
              c.Tk >= min_keys ? kAttentionPlanBytes + kAttentionCheckBytes : 0);
    return x.out;
  }
  HostArray own_out(const Case& c) {
    CpuContext context;
    Inputs own(c, DType::bf16);
    own.forward(context.stream());
    return own.out;
  }
  // Our own forward, with another scale.
  static FakeLibrary::Run by_scale(std::function<double(const AttentionProblem&)> factor) {
    return
        [factor = std::move(factor)](const AttentionProblem& p, const HeadsView& out, float* lse,
                                     StreamRef stream) { compute(p, out, lse, factor(p), stream); };
  }
  static void right(const AttentionProblem& p, const HeadsView& out, float* lse, StreamRef stream) {
    compute(p, out, lse, 1.0, stream);
  }

  Counts counts_;
  std::vector<std::string> notes_;
};

constexpr Case kGrouped{"Grouped", 1, 40, 40, 4, 2, 16, kCausal};

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
  // What it computes is what is used, once it is trusted.
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
    EXPECT_THAT(notes_, ElementsAre(HasSubstr(concat(tokens, " tokens): out of query"))));
    EXPECT_TRUE(same_bits(out, own_out(kGrouped)));
  }
}

// A number where a query's rows are summed would not show among those of hundreds of them.
TEST_F(AttentionLibraryOnDevice, OneThatIsWrongInOneNumberIsFound) {
  out_of(kGrouped,
         [](const AttentionProblem& p, const HeadsView& out, float* lse, StreamRef stream) {
           right(p, out, lse, stream);
           if (p.Tq < 384) return;
           auto* last = static_cast<bf16*>(const_cast<void*>(out.data)) + out.at(0, 383, 1);
           fill({.y = View(last, DType::bf16, {1}, p.device, Tier::device), .value = 0.25}, stream);
         });
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("384 tokens): out of query 383 is")));
}

TEST_F(AttentionLibraryOnDevice, OneThatLeavesSumsOrOutputUnwrittenIsFound) {
  out_of(kGrouped, [](const AttentionProblem& p, const HeadsView& out, float*, StreamRef stream) {
    right(p, out, nullptr, stream);
  });
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("lse[0] is nan")));
  out_of(kGrouped, [](const AttentionProblem&, const HeadsView&, float*, StreamRef) {});
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("out of query 0 is nan apart")));
}

TEST_F(AttentionLibraryOnDevice, ALibraryWhoseBitsChangeIsNotUsed) {
  int runs = 0;
  out_of(kGrouped,
         by_scale([&](const AttentionProblem&) { return ++runs % 2 == 0 ? 1.001 : 1.0; }));
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("two runs of it give other bits")));
}

}  // namespace attention_library_test
}  // namespace zinc::kernels
