// core/edit_distance.h: the nearest of a list of names, for "did you mean".
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace zinc {

// Insertions, deletions, replacements and exchanges of neighbours (optimal string alignment).
int edit_distance(std::string_view a, std::string_view b);

// The candidate with the smallest distance, the first of several; empty where none is nearer than
// a third of the longer name (but one edit is always near).
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);

}  // namespace zinc
