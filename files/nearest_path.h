// files/nearest_path.h: what a path that leads nowhere may have meant.
#pragma once

#include <string>

namespace zinc::files {

// The path with its first name that does not exist replaced by the nearest one of its folder
// (nearest_name() of core/edit_distance.h). Empty where no name is near, or all exist.
std::string nearest_path(const std::string& path);

// "there is no file 'PATH'", with the nearest path where there is one: "; did you mean 'OTHER'?".
// `kind`: "file", "folder".
std::string no_such_path(const std::string& kind, const std::string& path);

}  // namespace zinc::files
