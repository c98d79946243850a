// core/build_info.h: what this library was built from and with, for `zinc report` and for the
// record of a run. The values are fixed at configure time; the revision is that of the last build.
#pragma once

#include <span>
#include <string_view>

namespace zinc {

struct BuildDependency {
  std::string_view name;     // "oneDNN"
  bool found;                // false: the fallback source was built
  std::string_view version;  // empty when not found
  std::string_view package;  // Debian package that provides it
};

struct BuildInfo {
  std::string_view version;       // "0.1.0"
  std::string_view git_revision;  // 12 digits, "-dirty" after local changes; "unknown" outside git
  std::string_view compiler;      // "GNU 12.2.0"
  std::string_view build_type;    // "Release"
  std::string_view flags;         // compiler flags of that build type, sanitizers included
  std::span<const BuildDependency> dependencies;
};

// All strings live as long as the program.
BuildInfo build_info();

}  // namespace zinc
