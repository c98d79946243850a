#include <array>
#include <optional>
#include <regex>
#include <sstream>

#include "tests/structure/tree_rules.h"

namespace zinc::structure {
namespace {

struct Include {
  std::string target;
  bool quoted = false;
};

// The include of a line; `code` tells a directive from a comment, `line` has the quoted name.
std::optional<Include> include_of(const std::string& line, const std::string& code) {
  static const std::regex directive(R"(^\s*#\s*include\s*([<"]))");
  if (!std::regex_search(code, directive)) return std::nullopt;
  static const std::regex named(R"(#\s*include\s*([<"])([^>"]+)[>"])");
  std::smatch match;
  if (!std::regex_search(line, match, named)) return std::nullopt;
  return Include{.target = match[2], .quoted = match[1] == "\""};
}

template <class Visit>
void for_each_include(const std::vector<SourceFile>& files, Visit&& visit) {
  for (const SourceFile& file : files) {
    for (size_t i = 0; i < file.lines.size(); ++i) {
      if (file.code[i].find("include") == std::string::npos) continue;
      const std::optional<Include> include = include_of(file.lines[i], file.code[i]);
      if (include) visit(file, static_cast<int>(i) + 1, *include);
    }
  }
}

// The files that may include a header of another project. The first row whose pattern fits decides.
struct Door {
  const char* header;
  const char* allowed;
  const char* text;
};

constexpr std::array kDoors{
    Door{"mpi\\.h", "comm/mpi/.*|tests/ranks/.*|bench/mpi/.*", "MPI belongs in comm/mpi/"},
    Door{"nccl\\.h", "comm/nccl/.*", "NCCL belongs in comm/nccl/"},
    Door{"rapidjson/.*", "files/json/.*", "RapidJSON belongs in files/json/"},
    Door{"(oneapi/dnnl/)?dnnl.*", "kernels/cpu/gemm.*|bench/.*",
         "oneDNN belongs in kernels/cpu/gemm*"},
    Door{"omp\\.h", "kernels/cpu/gemm.*",
         "OpenMP is oneDNN's and belongs in kernels/cpu/gemm*; loops take core/parallel.h"},
    Door{"hwy/.*", "kernels/cpu/.*|bench/.*", "Highway belongs in kernels/cpu/"},
    Door{"CLI/.*", "apps/.*", "CLI11 belongs in apps/"},
    Door{"pcre2\\.h", "text/.*_pcre2\\.cpp", "PCRE2 belongs in a text/*_pcre2.cpp"},
    Door{"utf8proc\\.h", "text/.*_utf8proc\\.cpp", "utf8proc belongs in a text/*_utf8proc.cpp"},
    Door{"sentencepiece_.*", "text/.*_sentencepiece\\.cpp",
         "sentencepiece belongs in a text/*_sentencepiece.cpp"},
    Door{"zlib\\.h", "data/.*_zlib\\.cpp", "zlib belongs in a data/*_zlib.cpp"},
    Door{"libaio\\.h", "offload/aio_.*", "libaio belongs in offload/aio_*"},
    Door{"cudnn.*", "kernels/cuda/cudnn_descriptor\\.h",
         "cuDNN belongs in kernels/cuda/cudnn_descriptor.h"},
    Door{"cublas.*", "kernels/cuda/gemm.*", "cuBLASLt belongs in kernels/cuda/gemm*"},
    Door{"(cuda|nv|curand|cooperative_groups).*",
         "core/cuda/.*|kernels/cuda/.*|comm/nccl/.*|tests/emulator/.*",
         "CUDA belongs in core/cuda/ and kernels/cuda/"},
    Door{"boost/context/.*", "tests/emulator/.*", "Boost.Context belongs in tests/emulator/"},
    Door{"fmt/.*", ".*\\.cpp|.*\\.cu|(tests|bench|apps)/.*", "a public header includes no fmt"},
    Door{"(gtest|gmock)/.*", "tests/.*", "GoogleTest belongs in tests/"},
    Door{"benchmark/.*", "bench/.*", "Google Benchmark belongs in bench/"},
    Door{"zinc/.*", "tests/consumer/.*", "the installed package belongs in tests/consumer/"},
    Door{"sanitizer/.*", ".*", ""},
    Door{"(sys|linux|netinet|arpa|net)/.*", ".*", ""},
    Door{"[a-z0-9_]+", ".*", ""},  // the standard library
    Door{"(stdio|stdlib|string|time|errno|unistd|fcntl|signal|pthread|sched|dlfcn|poll|dirent|"
         "spawn|termios|netdb|malloc|execinfo|"
         "cxxabi|[a-z]mmintrin|x86intrin|cpuid|fenv|syslog|ucontext|link|getopt|langinfo)\\.h",
         ".*", ""},
};

// Words that the last cell of a row may have in place of names.
constexpr std::string_view kAllAbove = "all above";
constexpr std::string_view kAllOfThese = "all of these";

// The cells of a row of a Markdown table.
std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream row(line.substr(1));
  for (std::string cell; std::getline(row, cell, '|');) cells.push_back(cell);
  return cells;
}

// "zero/update" of "zero/update/whole_step.h", "zero" of "zero/engine.h".
std::string inner_folder(std::string_view path) {
  const size_t first = path.find('/');
  const size_t second = path.find('/', first + 1);
  return std::string(path.substr(0, second == std::string_view::npos ? first : second));
}

const Door* door_of(const std::string& header) {
  static const auto patterns = [] {
    std::array<std::regex, kDoors.size()> made;
    for (size_t i = 0; i < kDoors.size(); ++i) made[i] = std::regex(kDoors[i].header);
    return made;
  }();
  for (size_t i = 0; i < kDoors.size(); ++i) {
    if (std::regex_match(header, patterns[i])) return &kDoors[i];
  }
  return nullptr;
}

}  // namespace

const LayerTable& layer_table() {
  static const LayerTable table{
      {"core", {}},
      {"files", {"core"}},
      {"kernels", {"core"}},
      {"comm", {"kernels", "core"}},
      {"tensor", {"kernels", "core"}},
      {"autograd", {"tensor", "kernels", "core"}},
      {"text", {"files", "core"}},
      {"nn", {"autograd", "tensor", "core"}},
      {"optim", {"autograd", "tensor", "kernels", "core"}},
      {"offload", {"core"}},
      {"parallel", {"nn", "autograd", "tensor", "comm", "kernels", "core"}},
      {"zero",
       {"parallel", "nn", "optim", "offload", "autograd", "tensor", "comm", "kernels", "core"}},
      {"data", {"text", "files", "nn", "autograd", "tensor", "core"}},
      {"hub", {"text", "files", "nn", "autograd", "tensor", "core"}},
      {"generate",
       {"hub", "text", "files", "zero", "parallel", "nn", "optim", "offload", "autograd", "tensor",
        "comm", "kernels", "core"}},
      {"train",
       {"generate", "hub", "data", "text", "files", "zero", "parallel", "nn", "optim", "offload",
        "autograd", "tensor", "comm", "kernels", "core"}},
      {"plan",
       {"train", "generate", "hub", "data", "text", "files", "zero", "parallel", "nn", "optim",
        "offload", "autograd", "tensor", "comm", "kernels", "core"}},
      {"apps",
       {"plan", "train", "generate", "hub", "data", "text", "files", "zero", "parallel", "nn",
        "optim", "offload", "autograd", "tensor", "comm", "kernels", "core"}},
  };
  return table;
}

LayerTable parse_cmake_layers(std::string_view text) {
  LayerTable table;
  static const std::regex row(R"(^\s*set\(ZINC_SEES_([a-z]+)\s+([^)]*)\))");
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (!std::regex_search(line, match, row)) continue;
    std::set<std::string>& sees = table[match[1]];
    std::istringstream names{match[2] == "\"\"" ? std::string() : match[2].str()};
    for (std::string name; names >> name;) sees.insert(name);
  }
  return table;
}

LayerTable parse_inner_table(std::string_view page) {
  LayerTable table;
  constexpr std::string_view kTitle = "## The folders of ";
  static const std::regex row("\\| `([a-z]+)/`( itself)? .*"), name("[a-z]+");
  std::istringstream lines{std::string(page)};
  std::string layer;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("## ")) {
      layer = line.starts_with(kTitle) ? line.substr(kTitle.size()) : std::string();
    }
    std::smatch match;
    if (layer.empty() || !std::regex_match(line, match, row)) continue;
    std::set<std::string>& sees = table[match[2].matched ? layer : layer + "/" + match[1].str()];
    const std::string last = cells_of(line).back();
    for (const std::string_view all : {kAllAbove, kAllOfThese}) {
      if (last.find(all) != std::string::npos) sees.emplace(all);
    }
    if (!sees.empty()) continue;
    for (std::sregex_iterator at(last.begin(), last.end(), name), end; at != end; ++at) {
      sees.insert((*at)[0] == "itself" ? layer : layer + "/" + (*at)[0].str());
    }
  }
  return table;
}

std::vector<Problem> check_inner(const std::vector<SourceFile>& files, const LayerTable& table) {
  std::vector<Problem> problems;
  LayerTable seen;
  for_each_include(files, [&](const SourceFile& file, int line, const Include& include) {
    const std::string layer(top_folder(file.path));
    if (layer != top_folder(include.target) || !table.contains(layer)) return;
    if (include.target == "zero/engine_config.h") return;  // plain data
    const std::string from = inner_folder(file.path), to = inner_folder(include.target);
    if (from == to) return;
    seen[from].insert(to);
    const auto row = table.find(from);
    if (row != table.end() &&
        (row->second.contains(to) || row->second.contains(std::string(kAllOfThese)) ||
         (row->second.contains(std::string(kAllAbove)) && to != layer))) {
      return;
    }
    problems.push_back({"inner", file.path, line,
                        "\"" + include.target + "\": " + from +
                            " may not include it (docs/architecture.md, \"The folders of " + layer +
                            "\")"});
  });
  for (const auto& [from, sees] : table) {
    for (const std::string& to : sees) {
      if (to == kAllAbove || to == kAllOfThese || seen[from].contains(to)) continue;
      problems.push_back({"inner", "docs/architecture.md", 1,
                          "\"The folders of " + from.substr(0, from.find('/')) + "\": " + from +
                              " does not include " + to});
    }
  }
  return problems;
}

std::vector<Problem> check_layers(const std::vector<SourceFile>& files) {
  std::vector<Problem> problems;
  for_each_include(files, [&](const SourceFile& file, int line, const Include& include) {
    if (!include.quoted) return;
    const auto report = [&](std::string text) {
      problems.push_back({"layer", file.path, line, std::move(text)});
    };
    const std::string from(top_folder(file.path));
    const std::string to(top_folder(include.target));
    const auto row = layer_table().find(from);
    const bool to_layer = layer_table().contains(to);
    const bool outside = row == layer_table().end();  // tests, bench, examples, zinc.h
    if (outside && (to_layer || include.target == "zinc.h" || to == "bench" || to == from)) return;
    if (from == "tests" && file.path.starts_with("tests/consumer/") && to == "zinc") return;
    if (from == "apps" && (to == "bench" || include.target == "zinc.h")) return;
    if (!to_layer) {
      report("\"" + include.target +
             "\" must be named from the root of the tree, as in \"core/error.h\"");
    } else if (to != from && !row->second.contains(to)) {
      std::string allowed = from;
      for (const std::string& name : row->second) allowed += ", " + name;
      report("\"" + include.target + "\": " + from + " may include " + allowed +
             " (docs/architecture.md, \"Layers\")");
    }
  });
  return problems;
}

std::vector<Problem> check_doors(const std::vector<SourceFile>& files) {
  std::vector<Problem> problems;
  for_each_include(files, [&](const SourceFile& file, int line, const Include& include) {
    if (include.quoted) return;
    const Door* door = door_of(include.target);
    if (door == nullptr) {
      problems.push_back({"door", file.path, line,
                          "<" + include.target +
                              "> is in no row of the table in tests/structure/include_rules.cpp"});
    } else if (!std::regex_match(file.path, std::regex(door->allowed))) {
      problems.push_back({"door", file.path, line, "<" + include.target + ">: " + door->text});
    }
  });
  return problems;
}

std::vector<Problem> check_own_headers(const std::vector<SourceFile>& files) {
  std::set<std::string> paths;
  for (const SourceFile& file : files) paths.insert(file.path);
  std::set<std::string> checked;
  std::vector<Problem> problems;
  for_each_include(files, [&](const SourceFile& file, int line, const Include& include) {
    if (!file.path.ends_with(".cpp") ||
        !layer_table().contains(std::string(top_folder(file.path)))) {
      return;
    }
    const std::string own = file.path.substr(0, file.path.size() - 4) + ".h";
    if (!paths.contains(own) || !checked.insert(file.path).second || include.target == own) return;
    problems.push_back({"own_header", file.path, line, "\"" + own + "\" must be included first"});
  });
  return problems;
}

}  // namespace zinc::structure
