// apps/help/help_text.h: what --help prints, and the same for docs/options.md.
//
// Options stand in groups. A group's place is that of its name in kOptionGroups, whatever the order
// in which options were added; names that are not there come first.
#pragma once

#include <array>
#include <initializer_list>
#include <memory>
#include <string>

namespace CLI {
class App;
class FormatterBase;
}  // namespace CLI

namespace zinc::apps {

inline constexpr const char* kMostNeeded = "Options that most runs need";
inline constexpr const char* kOfModel = "Model";
inline constexpr const char* kOfData = "Data";
inline constexpr const char* kOfLength = "Length, batches, learning rate";
inline constexpr const char* kOfMemory = "Memory and precision";
inline constexpr const char* kOfRanks = "Ranks and devices";
inline constexpr const char* kOfFiles = "Files";
inline constexpr const char* kOfFigures = "Figures, evaluations, samples";
inline constexpr const char* kOfSearch = "Search for the fastest configuration that fits";
inline constexpr const char* kOfOutput = "What is printed";
inline constexpr const char* kOfWriting = "How text is written";
inline constexpr const char* kOfMeasuring = "How it is measured";
inline constexpr const char* kOfDisk = "Disk";
inline constexpr std::array kOptionGroups = {
    kMostNeeded, kOfModel,  kOfData, kOfLength, kOfWriting, kOfMeasuring, kOfMemory,
    kOfRanks,    kOfSearch, kOfDisk, kOfOutput, kOfFigures, kOfFiles};

// Puts the options with these names ("--seq") into `group`.
void put_into(CLI::App& verb, const char* group, std::initializer_list<const char*> names);

// The same for kMostNeeded, which --help joins, and the lines below the options.
void begin_help(CLI::App& verb, std::initializer_list<const char*> most_needed, const char* example,
                const char* page);

// Lines of at most 100 columns, types without their ranges.
std::shared_ptr<CLI::FormatterBase> help_formatter();

// A section for each verb, with a table for each group.
std::string options_tables(const CLI::App& app);

}  // namespace zinc::apps
