// Each rule on planted files that break it, so that the checkers are seen failing.
#include "tests/structure/tree_rules.h"

#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace zinc::structure {
namespace tree_rules_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> text_of(const std::vector<Problem>& problems) {
  std::vector<std::string> text;
  for (const Problem& problem : problems) text.push_back(to_string(problem));
  return text;
}

template <class Check>
std::vector<std::string> problems_of(Check check, std::string path, std::string_view text) {
  return text_of(check({parse_source(std::move(path), text)}));
}

TEST(SourceTree, Stripper_DropsCommentsAndLiterals_KeepsLines) {
  const SourceFile file = parse_source("core/x.cpp",
                                       "int a = 1'000; // exit(1)\n"
                                       "/* abort()\n"
                                       "   printf() */ int b;\n"
                                       "auto s = \"exit(2) \\\" \"; char c = '\"'; f();\n"
                                       "auto r = R\"x(exit(3)\n)\" )x\"; g();\n");
  ASSERT_EQ(file.code.size(), file.lines.size());
  EXPECT_EQ(file.code[0].substr(0, 14), "int a = 1'000;");
  EXPECT_EQ(file.code[0].find("exit"), std::string::npos);
  EXPECT_EQ(file.code[1].find("abort"), std::string::npos);
  EXPECT_THAT(file.code[2], AllOf(HasSubstr("int b;"), ::testing::Not(HasSubstr("printf"))));
  EXPECT_EQ(file.code[3], "auto s = \"\"; char c = ''; f();");
  EXPECT_EQ(file.code[4].find("exit"), std::string::npos);
  EXPECT_THAT(file.code[5], HasSubstr("g();"));
}

TEST(LayerRule, UpwardInclude_IsNamedWithFileAndLine) {
  EXPECT_THAT(problems_of(check_layers, "tensor/a.cpp",
                          "#include \"tensor/a.h\"\n#include \"zero/engine.h\"\n"),
              ElementsAre("tensor/a.cpp:2: layer: \"zero/engine.h\": tensor may include tensor, "
                          "core, kernels (docs/architecture.md, \"Layers\")"));
}

TEST(LayerRule, PeersDoNotIncludeEachOther) {
  EXPECT_THAT(problems_of(check_layers, "tensor/a.h", "#include \"comm/work.h\"\n"),
              ElementsAre(HasSubstr("tensor/a.h:1: layer")));
  EXPECT_THAT(problems_of(check_layers, "nn/a.h", "#include \"optim/adamw.h\"\n"),
              ElementsAre(HasSubstr("nn/a.h:1: layer")));
  EXPECT_THAT(problems_of(check_layers, "nn/a.h", "#include \"kernels/gemm.h\"\n"),
              ElementsAre(HasSubstr("nn/a.h:1: layer")));
}

TEST(LayerRule, IncludesAreNamedFromTheRoot) {
  EXPECT_THAT(problems_of(check_layers, "core/a.cpp", "#include \"a.h\"\n"),
              ElementsAre(HasSubstr("from the root")));
  EXPECT_THAT(problems_of(check_layers, "core/a.cpp", "#include \"../core/a.h\"\n"),
              ElementsAre(HasSubstr("from the root")));
  EXPECT_THAT(problems_of(check_layers, "train/a.cpp", "#include \"tests/train/a.h\"\n"),
              ElementsAre(HasSubstr("from the root")));
}

// Problems of the files by a page with two folders below zero/ itself.
std::vector<std::string> inner_problems(
    const std::vector<std::pair<std::string, std::string>>& files) {
  const LayerTable table = parse_inner_table(
      "## The folders of zero\n\n"
      "| folder | decides | start at | includes |\n|---|---|---|---|\n"
      "| `low/` | a | `a.h` | |\n"
      "| `high/` | b | `b.h` | low |\n"
      "| `zero/` itself | c | `c.h` | all of these |\n\n"
      "## The folders of files\n\n"
      "| folder | decides | start at | includes |\n|---|---|---|---|\n"
      "| `files/` itself | e | `e.h` | |\n"
      "| `json/` | f | `f.h` | itself |\n\n"
      "## Other\n\n| `low/` | d | `d.h` | high |\n");
  std::vector<SourceFile> sources;
  for (const auto& [path, text] : files) sources.push_back(parse_source(path, text));
  return text_of(check_inner(sources, table));
}

TEST(InnerRule, WhatTheTableSaysPasses_AndIsNeeded) {
  const std::pair<std::string, std::string> high{
      "zero/high/b.h", "#include \"zero/low/a.h\"\n#include \"zero/engine_config.h\"\n"};
  const std::pair<std::string, std::string> root{"zero/c.h", "#include \"zero/high/b.h\"\n"};
  const std::pair<std::string, std::string> json{"files/json/f.h", "#include \"files/e.h\"\n"};
  EXPECT_THAT(inner_problems({high, root, json}), IsEmpty());
  EXPECT_THAT(inner_problems({root, json}),
              ElementsAre(HasSubstr("high does not include zero/low")));
  EXPECT_THAT(inner_problems({high}), ElementsAre(HasSubstr("files/json does not include files")));
}

TEST(InnerRule, UpwardInclude_IsNamedWithFileAndLine) {
  EXPECT_THAT(
      inner_problems({{"files/e.h", "#include \"files/json/f.h\"\n"},
                      {"files/json/f.h", "#include \"files/e.h\"\n"},
                      {"zero/low/a.h", "#include \"zero/c.h\"\n#include \"zero/high/b.h\"\n"},
                      {"zero/high/b.h", "#include \"zero/low/a.h\"\n"},
                      {"zero/new/b.h", "#include \"zero/low/a.h\"\n"}}),
      ElementsAre(HasSubstr("files/e.h:1: inner: \"files/json/f.h\": files may not"),
                  HasSubstr("zero/low/a.h:1: inner: \"zero/c.h\": zero/low may not"),
                  HasSubstr("zero/low/a.h:2: inner: \"zero/high/b.h\""),
                  HasSubstr("zero/new/b.h:1: inner")));
}

TEST(LayerRule, DownwardAndCommentedIncludesPass) {
  EXPECT_THAT(problems_of(check_layers, "zero/a.cpp",
                          "#include \"comm/work.h\"\n// #include \"train/x.h\"\n"
                          "#include <vector>\n"),
              IsEmpty());
  EXPECT_THAT(problems_of(check_layers, "tests/zero/a_test.cpp", "#include \"train/x.h\"\n"),
              IsEmpty());
}

TEST(LayerRule, SpacesInTheDirectiveDoNotHideIt) {
  EXPECT_THAT(problems_of(check_layers, "core/a.cpp", "  #  include  \"zero/engine.h\"\n"),
              ElementsAre(HasSubstr("core/a.cpp:1: layer")));
}

struct DoorCase {
  const char* name;
  const char* header;
  const char* inside;
  const char* outside;
};
class DoorRule : public ::testing::TestWithParam<DoorCase> {};

TEST_P(DoorRule, OpensInOnePlaceOnly) {
  const std::string line = std::string("#include <") + GetParam().header + ">\n";
  EXPECT_THAT(problems_of(check_doors, GetParam().inside, line), IsEmpty());
  EXPECT_THAT(problems_of(check_doors, GetParam().outside, line),
              ElementsAre(HasSubstr(std::string(GetParam().outside) + ":1: door: <")));
}

INSTANTIATE_TEST_SUITE_P(
    All, DoorRule,
    ::testing::Values(
        DoorCase{"mpi", "mpi.h", "comm/mpi/mpi.cpp", "comm/connect.cpp"},
        DoorCase{"nccl", "nccl.h", "comm/nccl/nccl.cpp", "comm/mpi/mpi.cpp"},
        DoorCase{"rapidjson", "rapidjson/reader.h", "files/json/reader.cpp", "files/config.cpp"},
        DoorCase{"onednn", "dnnl.hpp", "kernels/cpu/gemm_onednn.cpp", "kernels/cpu/softmax.cpp"},
        DoorCase{"onednn_3", "oneapi/dnnl/dnnl.hpp", "kernels/cpu/gemm.cpp", "nn/linear.cpp"},
        DoorCase{"openmp", "omp.h", "kernels/cpu/gemm_onednn.cpp", "kernels/cpu/softmax.cpp"},
        DoorCase{"highway", "hwy/highway.h", "kernels/cpu/softmax.cpp", "core/float16.h"},
        DoorCase{"cli11", "CLI/CLI.hpp", "apps/zinc_main.cpp", "train/config.cpp"},
        DoorCase{"fmt", "fmt/format.h", "core/error.cpp", "core/error.h"},
        DoorCase{"libaio", "libaio.h", "offload/aio_storage.cpp", "offload/storage.cpp"},
        DoorCase{"sentencepiece", "sentencepiece_processor.h", "text/piece_sentencepiece.cpp",
                 "text/piece.cpp"},
        DoorCase{"zlib", "zlib.h", "data/records/gzip_zlib.cpp", "data/records/gzip.cpp"},
        DoorCase{"utf8proc", "utf8proc.h", "text/form_utf8proc.cpp", "text/form.cpp"},
        DoorCase{"pcre2", "pcre2.h", "text/tokenizer_pcre2.cpp", "train/tokenizer.cpp"},
        DoorCase{"cuda", "cuda_runtime.h", "core/cuda/stream.cpp", "core/stream.cpp"},
        DoorCase{"cublas", "cublasLt.h", "kernels/cuda/gemm.cu", "kernels/cuda/softmax.cu"},
        DoorCase{"cudnn", "cudnn.h", "kernels/cuda/cudnn_descriptor.h",
                 "kernels/cuda/attention.cu"},
        DoorCase{"installed", "zinc/zinc.h", "tests/consumer/own_model.cpp", "examples/a.cpp"},
        DoorCase{"gtest", "gtest/gtest.h", "tests/core/a_test.cpp", "core/a.cpp"},
        DoorCase{"boost", "boost/context/detail/fcontext.hpp", "tests/emulator/fiber.cpp",
                 "core/fiber.cpp"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(DoorRuleUnknown, HeaderInNoRowIsRefused) {
  EXPECT_THAT(problems_of(check_doors, "core/a.cpp", "#include <torch/torch.h>\n"),
              ElementsAre(HasSubstr("<torch/torch.h> is in no row")));
  EXPECT_THAT(problems_of(check_doors, "core/a.cpp", "#include <vector>\n#include <sys/mman.h>\n"),
              IsEmpty());
}

TEST(CallRule, LibraryThatPrintsExitsOrAborts_IsCaught) {
  for (const char* line :
       {"std::cout << 1;", "  printf(\"x\");", "std::fprintf(stderr, \"x\");", "fmt::print(\"x\");",
        "std::exit(1);", "exit(1);", "  _exit(1);", "std::abort();", "if (x) { abort(); }",
        "std::terminate();", "assert(x);", "getenv(\"X\");", "std::getenv(\"X\");",
        "setenv(\"X\", \"1\", 1);", "thread_local int x;", "#pragma omp parallel for",
        "kernel<<<1, 2>>>(x);"}) {
    EXPECT_THAT(problems_of(check_calls, "nn/a.cpp", std::string("\n") + line + "\n"),
                ElementsAre(HasSubstr("nn/a.cpp:2: call: ")))
        << line;
  }
}

TEST(CallRule, ModelThatNamesRanksCachesOrPacking_IsCaught) {
  for (const char* line : {"TensorRanks* ranks = tensor_ranks();", "nn::SequenceRanks* ranks;",
                           "void encode(KvCache& cache);", "if (scope.positions.defined()) {",
                           "const bool packed = true;", "x / num_tensor_ranks();"}) {
    EXPECT_THAT(problems_of(check_calls, "nn/models/a.cpp", line),
                testing::Contains(HasSubstr("knows of no ranks")))
        << line;
    EXPECT_THAT(problems_of(check_calls, "nn/attention/attend.cpp", line), IsEmpty()) << line;
  }
  for (const char* line : {"ids.rank() == 2", "cached_elements_per_token()", "start_of(scope)"}) {
    EXPECT_THAT(problems_of(check_calls, "nn/models/a.cpp", line), IsEmpty()) << line;
  }
}

TEST(CallRule, WhatOnlyLooksAlike_Passes) {
  for (const char* line :
       {"std::snprintf(text, 8, \"x\");", "communicator.abort(1);", "void abort(int code);",
        "virtual void abort() = 0;", "work->abort();", "static_assert(true);", "// std::exit(1)",
        "const char* s = \"exit(1)\";", "on_exit(f);", "std::set_terminate(f);", "output(1);",
        "scope.exit();"}) {
    EXPECT_THAT(problems_of(check_calls, "comm/a.cpp", line), IsEmpty()) << line;
  }
}

TEST(CallRule, ProgramsMayPrintAndExit) {
  EXPECT_THAT(problems_of(check_calls, "apps/a.cpp", "std::printf(\"x\"); std::exit(64);\n"),
              IsEmpty());
  EXPECT_THAT(problems_of(check_calls, "comm/connect.cpp", "std::getenv(\"RANK\");\n"), IsEmpty());
}

std::vector<SourceFile> complete_op() {
  std::vector<SourceFile> files;
  for (const char* path : {"bench/kernels/relu_bench.cpp", "kernels/cpu/relu.cpp",
                           "kernels/relu.cpp", "kernels/relu.h", "tests/kernels/relu_test.cpp"}) {
    files.push_back(parse_source(path, "#pragma once\n"));
  }
  return files;
}

TEST(KernelRule, CompleteOpPasses) {
  EXPECT_THAT(text_of(check_kernels(complete_op())), IsEmpty());
}

TEST(KernelRule, EachMissingPartIsNamed) {
  for (const size_t part : {0, 1, 2, 4}) {
    std::vector<SourceFile> files = complete_op();
    const std::string path = files[part].path;
    files.erase(files.begin() + static_cast<std::ptrdiff_t>(part));
    const std::string folder = path.substr(0, path.rfind('/'));
    EXPECT_THAT(text_of(check_kernels(files)),
                ElementsAre(AllOf(HasSubstr("kernels/relu.h:1: kernel: relu has no "),
                                  HasSubstr(": " + folder + "/relu"))))
        << path;
  }
}

TEST(KernelRule, SeveralCpuFilesAndPrivateHeadersPass) {
  std::vector<SourceFile> files = complete_op();
  files[1].path = "kernels/cpu/relu_onednn.cpp";
  files.push_back(parse_source("kernels/cpu/rows.h", "#pragma once\n"));
  EXPECT_THAT(text_of(check_kernels(files)), IsEmpty());
}

TEST(ExportRule, WhatZincHLacks_IsNamedOnce) {
  const auto problems = [](std::string_view header) {
    return text_of(check_exports({parse_source("autograd/ops/relu.h", header),
                                  parse_source("autograd/ops/relu.cpp", "Tensor hidden(int a);\n"),
                                  parse_source("zinc.h", "using autograd::relu;\n")}));
  };
  EXPECT_THAT(problems("// Tensor of(x);\nTensor relu(const Tensor& x);\n  int f(int a);\n"),
              IsEmpty());
  EXPECT_THAT(
      problems("Tensor silu(int a);\ninline Tensor silu(double a) { return f(a); }\n"),
      ElementsAre("autograd/ops/relu.h:1: export: silu is in no using-declaration of zinc.h"));
  for (const char* line : {"struct Parts {", "enum class Parts {", "using kernels::Parts;",
                           "using Parts = int;", "std::vector<Tensor> Parts(int a);"}) {
    EXPECT_THAT(problems(line), ElementsAre(HasSubstr("Parts is in no"))) << line;
  }
}

TEST(FolderRule, TwentyFiveConceptsPassAndOneMoreFails) {
  std::vector<SourceFile> files;
  for (int i = 0; i < 25; ++i) {
    const std::string name = "core/a" + std::to_string(i);
    for (const char* end : {".h", ".cpp", "_mpi.cpp", "_no_mpi.cpp"}) {
      files.push_back(parse_source(name + end, ""));
    }
    files.push_back(parse_source("tests/core/a" + std::to_string(i) + "_test.cpp", ""));
  }
  files.push_back(parse_source("tests/core/b_test.cpp", ""));
  EXPECT_THAT(text_of(check_folders(files)), IsEmpty());
  files.push_back(parse_source("core/cuda/b.cpp", ""));
  EXPECT_THAT(text_of(check_folders(files)), IsEmpty());
  files.push_back(parse_source("core/b.cpp", ""));
  EXPECT_THAT(text_of(check_folders(files)), ElementsAre(HasSubstr("core:1: folder: 26 concepts")));
}

TEST(NameRule, EmptyWordsWrongCaseAndMissingGuardAreCaught) {
  for (const char* path : {"core/utils.cpp", "core/string_utils.cpp", "core/helpers.cpp",
                           "nn/common.cpp", "nn/misc.cpp", "nn/base.cpp", "nn/new_linear.cpp"}) {
    EXPECT_THAT(problems_of(check_names, path, ""), ElementsAre(HasSubstr("says nothing"))) << path;
  }
  EXPECT_THAT(problems_of(check_names, "nn/Linear.cpp", ""), ElementsAre(HasSubstr("snake_case")));
  EXPECT_THAT(problems_of(check_names, "nn/linear.h", "// #pragma once\n"),
              ElementsAre(HasSubstr("#pragma once")));
  EXPECT_THAT(problems_of(check_names, "nn/linear.h", "// x\n#pragma once\n"), IsEmpty());
  EXPECT_THAT(problems_of(check_names, "core/database.cpp", ""), IsEmpty());
}

TEST(OwnHeaderRule, AnotherIncludeBeforeIt_IsCaught) {
  const SourceFile header = parse_source("core/a.h", "#pragma once\n");
  const auto problems = [&](const char* text) {
    return text_of(check_own_headers({header, parse_source("core/a.cpp", text)}));
  };
  EXPECT_THAT(problems("// A.\n#include \"core/a.h\"\n#include <string>\n"), IsEmpty());
  EXPECT_THAT(problems("#include <string>\n\n#include \"core/a.h\"\n"),
              ElementsAre(HasSubstr("core/a.cpp:1: own_header: \"core/a.h\"")));
  EXPECT_THAT(problems_of(check_own_headers, "core/b.cpp", "#include <string>\n"), IsEmpty());
}

TEST(TestNamespaceRule, UnnamedOneIsCaughtInATestOnly) {
  const char* text = "namespace zinc {\nnamespace {\n}\n}\n";
  EXPECT_THAT(problems_of(check_test_namespaces, "tests/core/a_test.cpp", text),
              ElementsAre(HasSubstr("tests/core/a_test.cpp:2: test_namespace: call it a_test")));
  EXPECT_THAT(problems_of(check_test_namespaces, "tests/core/a.cpp", text), IsEmpty());
}

TEST(Exceptions, RemoveTheirProblemAndNoOther) {
  const std::vector<SourceFile> files{parse_source("nn/linear.h", ""),
                                      parse_source("nn/misc.cpp", "")};
  EXPECT_EQ(check_tree(files, {}).size(), 2u);
  EXPECT_THAT(text_of(check_tree(files, parse_exceptions("# comment\nname nn/misc.cpp because\n"))),
              ElementsAre(HasSubstr("nn/linear.h:1: name")));
}

TEST(Exceptions, StaleOrUnexplainedOnesAreProblems) {
  EXPECT_THAT(text_of(check_tree({}, parse_exceptions("folder core once it was full\n"))),
              ElementsAre(HasSubstr("core:1: exception: nothing here breaks rule 'folder'")));
  EXPECT_THROW(parse_exceptions("folder core\n"), std::runtime_error);
}

TEST(CMakeLayers, AreReadFromSetLines) {
  const LayerTable table =
      parse_cmake_layers("set(ZINC_SEES_core \"\")\nset(ZINC_SEES_nn tensor core)\n");
  EXPECT_EQ(table.size(), 2u);
  EXPECT_TRUE(table.at("core").empty());
  EXPECT_EQ(table.at("nn"), (std::set<std::string>{"core", "tensor"}));
}

}  // namespace tree_rules_test
}  // namespace zinc::structure
