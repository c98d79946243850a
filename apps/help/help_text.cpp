#include "apps/help/help_text.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string_view>
#include <vector>

namespace zinc::apps {
namespace {

constexpr size_t kNameColumns = 30;
constexpr size_t kTextColumns = 68;  // beside a name

std::vector<std::string> groups_of(const CLI::App& app) {
  std::vector<std::string> groups = app.get_groups();
  const auto place = [](const std::string& group) {
    const auto at =
        std::ranges::find_if(kOptionGroups, [&group](const char* known) { return group == known; });
    return at == kOptionGroups.end() ? 0 : 1 + (at - kOptionGroups.begin());
  };
  std::ranges::stable_sort(groups, {}, place);
  return groups;
}

std::vector<const CLI::Option*> options_of(const CLI::App& app, const std::string& group) {
  return app.get_options([&group](const CLI::Option* option) {
    return option->get_group() == group && option->nonpositional();
  });
}

// "INT" of "INT:INT in [1 - 9007199254740992]"; a list of words stays.
std::string type_of(const CLI::Option& option) {
  if (option.get_type_size() == 0) return "";
  const std::string name = option.get_type_name();
  const size_t colon = name.find(':');
  std::string type = name;
  if (colon != std::string::npos) {
    type = name[colon + 1] == '{' ? name.substr(colon + 1) : name.substr(0, colon);
  }
  if (option.get_expected_max() == CLI::detail::expected_max_vector_size) type += " ...";
  return type;
}

std::string wrapped(std::string_view text, size_t columns) {
  std::string lines;
  size_t used = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    if (used > 0) {
      const bool fits = used + 1 + end <= columns;
      lines += fits ? ' ' : '\n';
      used = fits ? used + 1 : 0;
    }
    lines += text.substr(0, end);
    used += end;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

class HelpFormatter final : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(kNameColumns); }

  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    if (mode != CLI::AppFormatMode::Normal) return CLI::Formatter::make_help(app, name, mode);
    std::string text = make_description(app) + make_usage(app, name) + make_positionals(app);
    const std::vector<std::string> groups = groups_of(*app);
    for (const std::string& group : groups) {
      const std::vector<const CLI::Option*> options = options_of(*app, group);
      if (options.empty()) continue;
      text += make_group(group, false, options);
    }
    return text + make_subcommands(app, mode) + '\n' + make_footer(app);
  }

  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string type = type_of(*option);
    return (type.empty() ? "" : " " + type) + (option->get_required() ? " REQUIRED" : "");
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    return wrapped(option->get_description(), kTextColumns);
  }
};

// A cell of a table: its bars are text.
std::string cell(std::string_view text) {
  std::string escaped;
  for (const char c : text) escaped += c == '|' ? std::string("\\|") : std::string(1, c);
  return escaped;
}

std::string row(const CLI::Option& option) {
  std::string names;
  for (const std::string& name : option.get_snames()) names += fmt::format(", `-{}`", name);
  for (const std::string& name : option.get_lnames()) names += fmt::format(", `--{}`", name);
  if (names.empty()) names = fmt::format(", `{}`", option.get_name());
  const std::string type = type_of(option);
  return fmt::format("| {} | {}{} | {} |\n", cell(names.substr(2)), cell(type),
                     option.get_required() ? ", required" : "", cell(option.get_description()));
}

void add_section(std::string& page, const CLI::App& verb, const std::string& name) {
  page += fmt::format("\n## {}\n\n{}.\n", name, verb.get_description());
  constexpr const char* kHead = "| option | value | what |\n|---|---|---|\n";
  std::string positional;
  for (const CLI::Option* option : verb.get_options()) {
    if (option->get_positional()) positional += row(*option);
  }
  if (!positional.empty()) page += "\n" + std::string(kHead) + positional;
  for (const std::string& group : groups_of(verb)) {
    std::string rows;
    for (const CLI::Option* option : options_of(verb, group)) {
      if (option != verb.get_help_ptr()) rows += row(*option);
    }
    if (rows.empty()) continue;
    page += group == "Options" ? "\n" : fmt::format("\n{}:\n\n", group);
    page += kHead + rows;
  }
}

void add_sections(std::string& page, const CLI::App& app, const std::string& name) {
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    const std::string full = name + " " + verb->get_name();
    const bool is_group = verb->get_require_subcommand_min() > 0;
    if (!is_group) add_section(page, *verb, full);
    add_sections(page, *verb, full);
  }
}

}  // namespace

void put_into(CLI::App& verb, const char* group, std::initializer_list<const char*> names) {
  for (const char* name : names) verb.get_option(name)->group(group);
}

void begin_help(CLI::App& verb, std::initializer_list<const char*> most_needed, const char* example,
                const char* page) {
  verb.get_help_ptr()->group(kMostNeeded);
  put_into(verb, kMostNeeded, most_needed);
  verb.footer(fmt::format("For example: {}\nPage: {}", example, page));
}

std::shared_ptr<CLI::FormatterBase> help_formatter() { return std::make_shared<HelpFormatter>(); }

std::string options_tables(const CLI::App& app) {
  std::string page;
  add_sections(page, app, "zinc");
  return page;
}

}  // namespace zinc::apps
