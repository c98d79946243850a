#include "tests/structure/tree_rules.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>

namespace zinc::structure {
namespace {

// A call that library code does not make. `keyword` is a cheap first look.
struct Call {
  const char* keyword;
  const char* pattern;
  const char* allowed;
  const char* text;
};

constexpr const char* kAllButModels = "(?!nn/models/).*";
constexpr const char* kModelsAttend =
    "a model knows of no ranks, caches or packing: it says what its attention is "
    "(nn/attention/attend.h)";
constexpr const char* kPrograms = "(apps|bench|tests|examples)/.*";

constexpr std::array kCalls{
    Call{"std::c", R"(\bstd::(cout|cerr|clog|cin)\b)", kPrograms, "the library never prints"},
    Call{"print", R"(\b(printf|fprintf|vprintf|vfprintf|fmt::print|fmt::println)\s*\()",
         "(apps|bench|tests|examples)/.*|zinc\\.h",  // run_program() is a program's main()
         "the library never prints"},
    Call{"put", R"(\b(puts|fputs|putchar|fputc)\s*\()", kPrograms, "the library never prints"},
    Call{"perror", R"(\bperror\s*\()", kPrograms, "the library never prints"},
    Call{"exit", R"((^|[^.>:\w])(std::|::)?(exit|_exit|_Exit|quick_exit)\s*\()", kPrograms,
         "the library never exits"},
    Call{"abort", R"((std::|[^\w]::|^\s*|[;{}]\s*)abort\s*\(\s*\))", kPrograms,
         "the library never aborts"},
    Call{"terminate", R"(\bstd::terminate\s*\(\s*\))", kPrograms, "the library never aborts"},
    Call{"assert", R"(\bassert\s*\()", "tests/.*", "use require() or bug_check()"},
    Call{"getenv", R"(\b(secure_)?getenv\s*\()",
         "(apps|bench|tests|examples)/.*|comm/connect\\.cpp",
         "the environment is read in apps/ and comm/connect.cpp only"},
    Call{"putenv", R"(\bputenv\s*\()", "(apps|tests)/.*", "the environment is set in apps/ only"},
    Call{"setenv", R"(\b(un)?setenv\s*\()", "(apps|tests)/.*",
         "the environment is set in apps/ only"},
    Call{"thread_local", R"(\bthread_local\b)", "core/(context|parallel)\\.cpp|(tests|bench)/.*",
         "the current Context and the team of parallel loops are the only thread-local state"},
    Call{"#pragma omp", R"(^\s*#\s*pragma\s+omp\s+(?!simd))", "(tests|bench)/.*",
         "loops over threads are parallel_for() of core/parallel.h"},
    Call{"<<<", R"(<<<)", "tests/emulator/.*", "device code is launched through launch()"},
    Call{"anks", R"(\b(TensorRanks|SequenceRanks|tensor_ranks|num_tensor_ranks|sequence_ranks)\b)",
         kAllButModels, kModelsAttend},
    Call{"ache", R"(\b(KvCache|kv_cache|cache)\b)", kAllButModels, kModelsAttend},
    Call{"pack", R"(\b(un)?pack(ed|ing)\b)", kAllButModels, kModelsAttend},
    Call{"scope.", R"(\bscope\.\w+)", kAllButModels, kModelsAttend},
};

bool is_header(const std::string& path) { return path.ends_with(".h") || path.ends_with(".cuh"); }

}  // namespace

std::vector<Problem> check_calls(const std::vector<SourceFile>& files) {
  static const auto patterns = [] {
    std::array<std::regex, kCalls.size()> made;
    for (size_t i = 0; i < kCalls.size(); ++i) made[i] = std::regex(kCalls[i].pattern);
    return made;
  }();
  static const auto allowed = [] {
    std::array<std::regex, kCalls.size()> made;
    for (size_t i = 0; i < kCalls.size(); ++i) made[i] = std::regex(kCalls[i].allowed);
    return made;
  }();
  std::vector<Problem> problems;
  for (const SourceFile& file : files) {
    for (size_t c = 0; c < kCalls.size(); ++c) {
      if (std::regex_match(file.path, allowed[c])) continue;
      for (size_t i = 0; i < file.code.size(); ++i) {
        if (file.code[i].find(kCalls[c].keyword) == std::string::npos) continue;
        if (!std::regex_search(file.code[i], patterns[c])) continue;
        problems.push_back({"call", file.path, static_cast<int>(i) + 1, kCalls[c].text});
      }
    }
  }
  return problems;
}

std::vector<Problem> check_kernels(const std::vector<SourceFile>& files) {
  const auto exists = [&](std::string_view prefix, std::string_view suffix) {
    return std::ranges::any_of(files, [&](const SourceFile& file) {
      const std::string_view path = file.path;
      if (path.size() < prefix.size() + suffix.size()) return false;
      if (!path.starts_with(prefix) || !path.ends_with(suffix)) return false;
      return path.substr(prefix.size()).find('/') == std::string_view::npos;
    });
  };
  std::vector<Problem> problems;
  static const std::regex header(R"(kernels/([a-z0-9_]+)\.h)");
  for (const SourceFile& file : files) {
    std::smatch match;
    if (!std::regex_match(file.path, match, header)) continue;
    const std::string op = match[1];
    const auto need = [&](bool there, const std::string& part, const std::string& path) {
      if (!there)
        problems.push_back({"kernel", file.path, 1, op + " has no " + part + ": " + path});
    };
    const std::string dispatcher = "kernels/" + op + ".cpp";
    const std::string test = "tests/kernels/" + op + "_test.cpp";
    const std::string bench = "bench/kernels/" + op + "_bench.cpp";
    need(exists(dispatcher, ""), "dispatcher", dispatcher);
    need(exists("kernels/cpu/" + op, ".cpp"), "CPU file", "kernels/cpu/" + op + "*.cpp");
    need(exists(test, ""), "test", test);
    need(exists(bench, ""), "bench entry", bench);
  }
  return problems;
}

std::vector<Problem> check_folders(const std::vector<SourceFile>& files) {
  std::map<std::string, std::set<std::string>> stems;  // by folder, sorted
  std::set<std::string> headers;
  for (const SourceFile& file : files) {
    const std::filesystem::path path(file.path);
    const std::string folder = path.parent_path().string();
    if (folder.empty() || folder.starts_with("tests/")) continue;
    stems[folder].insert(path.stem().string());
    if (path.extension() == ".h") headers.insert(folder + "/" + path.stem().string());
  }
  std::vector<Problem> problems;
  for (auto& [folder, names] : stems) {
    // gemm_onednn.cpp belongs to gemm.h.
    const auto belongs_to_another = [&](const std::string& name) {
      if (headers.contains(folder + "/" + name)) return false;
      for (size_t end = name.rfind('_'); end != std::string::npos && end > 0;
           end = name.rfind('_', end - 1)) {
        if (headers.contains(folder + "/" + name.substr(0, end))) return true;
      }
      return false;
    };
    std::erase_if(names, belongs_to_another);
    if (names.size() <= kMaxConcepts) continue;
    problems.push_back({"folder", folder, 1,
                        std::to_string(names.size()) + " concepts; " +
                            std::to_string(kMaxConcepts) +
                            " are the limit: make folders named after what they decide"});
  }
  return problems;
}

std::vector<Problem> check_names(const std::vector<SourceFile>& files) {
  std::vector<Problem> problems;
  static const std::regex empty_word(
      "(.*_)?(utils?|helpers?|common|misc|base|manager2)(_.*)?|new_.*");
  static const std::regex snake_case("[a-z0-9_]+(-inl)?");
  for (const SourceFile& file : files) {
    const std::string stem = std::filesystem::path(file.path).stem().string();
    if (std::regex_match(stem, empty_word)) {
      problems.push_back({"name", file.path, 1, "the name says nothing: name the concept"});
    }
    if (!std::regex_match(stem, snake_case)) {
      problems.push_back({"name", file.path, 1, "file names are in snake_case"});
    }
    if (is_header(file.path) && !stem.ends_with("-inl") &&
        std::ranges::find(file.code, "#pragma once") == file.code.end()) {
      problems.push_back({"name", file.path, 1, "a header has #pragma once"});
    }
  }
  return problems;
}

std::vector<Problem> check_test_namespaces(const std::vector<SourceFile>& files) {
  std::vector<Problem> problems;
  for (const SourceFile& file : files) {
    if (!file.path.starts_with("tests/") || !file.path.ends_with("_test.cpp")) continue;
    const auto unnamed = std::ranges::find(file.code, "namespace {");
    if (unnamed == file.code.end()) continue;
    problems.push_back({"test_namespace", file.path,
                        static_cast<int>(unnamed - file.code.begin()) + 1,
                        "call it " + std::filesystem::path(file.path).stem().string() +
                            ": several test files are compiled as one"});
  }
  return problems;
}

std::vector<Exception> parse_exceptions(std::string_view text) {
  std::vector<Exception> exceptions;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.front() == '#') continue;
    std::istringstream words(line);
    Exception exception;
    words >> exception.rule >> exception.path >> std::ws;
    std::getline(words, exception.reason);
    if (exception.reason.empty()) {
      throw std::runtime_error("an exception is 'rule path reason', not '" + line + "'");
    }
    exceptions.push_back(std::move(exception));
  }
  return exceptions;
}

std::vector<Problem> check_exports(const std::vector<SourceFile>& files) {
  const auto zinc = std::ranges::find(files, "zinc.h", &SourceFile::path);
  if (zinc == files.end()) return {};
  static const std::regex exported(R"(^using autograd::(\w+);)");
  std::set<std::string> names;
  std::smatch match;
  for (const std::string& line : zinc->code) {
    if (std::regex_search(line, match, exported)) names.insert(match[1]);
  }
  // A declaration at the margin: `struct Name`, `using Name =`, `Result name(`.
  static const std::regex declared(
      R"(^(?:(?:struct|class|enum class) (\w+)|using (?:\w+::)?(\w+)|(?:inline )?[\w:<>]+ (\w+)\())");
  std::vector<Problem> problems;
  for (const SourceFile& file : files) {
    const bool has_functions =
        file.path.starts_with("autograd/ops/") || file.path.starts_with("autograd/functions/");
    if (!has_functions || !is_header(file.path)) continue;
    for (size_t i = 0; i < file.code.size(); ++i) {
      if (!std::regex_search(file.code[i], match, declared)) continue;
      const std::string name = match[1].str() + match[2].str() + match[3].str();
      if (!names.insert(name).second) continue;
      problems.push_back({"export", file.path, static_cast<int>(i) + 1,
                          name + " is in no using-declaration of zinc.h"});
    }
  }
  return problems;
}

std::vector<Problem> check_tree(const std::vector<SourceFile>& files,
                                const std::vector<Exception>& exceptions) {
  std::vector<Problem> all;
  for (const auto check : {check_layers, check_doors, check_calls, check_kernels, check_folders,
                           check_names, check_own_headers, check_test_namespaces, check_exports}) {
    std::ranges::move(check(files), std::back_inserter(all));
  }
  for (const Exception& exception : exceptions) {
    const auto matches = [&](const Problem& problem) {
      return problem.rule == exception.rule && problem.path == exception.path;
    };
    if (std::erase_if(all, matches) == 0) {
      all.push_back({"exception", exception.path, 1,
                     "nothing here breaks rule '" + exception.rule +
                         "' any more: delete its line in tests/structure/exceptions.txt"});
    }
  }
  return all;
}

}  // namespace zinc::structure
