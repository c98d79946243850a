#include "apps/launch/launch_grammar.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <numeric>
#include <optional>
#include <set>

#include "core/edit_distance.h"
#include "core/error.h"

namespace zinc::apps {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
constexpr std::string_view kMaxSlotsWord = "max_slots=";
constexpr std::string_view kSpace = " \t\r\v\f";

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::vector<std::string_view> pieces(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(separator, at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

std::optional<int> number_in(std::string_view text, int min, int max) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (value < min || value > max) return std::nullopt;
  return value;
}

// A name goes into an argument of mpirun, where these mean something.
bool is_host_name(std::string_view name) {
  return !name.empty() && name.front() != '-' &&
         name.find_first_of(",:@=\"'") == std::string_view::npos;
}

std::vector<int> first_slots(int count) {
  std::vector<int> slots(static_cast<size_t>(count));
  std::iota(slots.begin(), slots.end(), 0);
  return slots;
}

HostSlots parse_host(std::string_view line, const std::string& place) {
  const auto wrong = [&]() -> ConfigError {
    return ConfigError(str(place, ": '", line, "' is not of the form NAME slots=K"));
  };
  const size_t gap = line.find_first_of(kSpace);
  if (gap == std::string_view::npos) throw wrong();
  const std::string_view count = trimmed(line.substr(gap));
  if (!count.starts_with("slots=") || !is_host_name(line.substr(0, gap))) throw wrong();
  const size_t second = std::min(count.find_first_of(kSpace), count.size());
  const auto slots = number_in(count.substr(6, second - 6), 1, kMaxSlots);
  std::string_view most = trimmed(count.substr(second));
  if (slots && most.starts_with(kMaxSlotsWord)) {
    most.remove_prefix(kMaxSlotsWord.size());
    if (!number_in(most, *slots, std::numeric_limits<int>::max())) {
      throw ConfigError(str(place, ": '", line, "': max_slots must be a number from ", *slots,
                            ", the slots, on"));
    }
  } else if (!most.empty()) {
    throw wrong();
  }
  if (!slots) {
    throw ConfigError(
        str(place, ": '", line, "': the number of slots must be in [1, ", kMaxSlots, "]"));
  }
  return {std::string(line.substr(0, gap)), first_slots(*slots)};
}

// Parses --include or --exclude; no slots: all of the host.
std::vector<HostSlots> parse_filter(std::string_view text, const std::string& option) {
  std::vector<HostSlots> filter;
  for (const std::string_view part : pieces(text, '@')) {
    const size_t colon = part.find(':');
    HostSlots entry{std::string(part.substr(0, colon)), {}};
    if (!is_host_name(entry.host)) {
      throw ConfigError(
          str(option, " ", text, ": '", part, "' is not of the form NAME or NAME:SLOT,SLOT"));
    }
    const auto same = [&entry](const HostSlots& other) { return other.host == entry.host; };
    if (std::any_of(filter.begin(), filter.end(), same)) {
      throw ConfigError(str(option, " ", text, ": host '", entry.host, "' is named twice"));
    }
    if (colon != std::string_view::npos) {
      for (const std::string_view word : pieces(part.substr(colon + 1), ',')) {
        const auto slot = number_in(word, 0, kMaxSlots - 1);
        if (!slot) {
          throw ConfigError(str(option, " ", text, ": '", word, "' is no slot number"));
        }
        if (std::find(entry.slots.begin(), entry.slots.end(), *slot) != entry.slots.end()) {
          throw ConfigError(
              str(option, " ", text, ": slot ", *slot, " of '", entry.host, "' is named twice"));
        }
        entry.slots.push_back(*slot);
      }
      std::sort(entry.slots.begin(), entry.slots.end());
    }
    filter.push_back(std::move(entry));
  }
  return filter;
}

void require_known(const std::vector<HostSlots>& filter, const std::vector<HostSlots>& hosts,
                   const std::string& option) {
  std::vector<std::string> names;
  for (const HostSlots& host : hosts) names.push_back(host.host);
  for (const HostSlots& entry : filter) {
    const auto found = std::find(names.begin(), names.end(), entry.host);
    if (found == names.end()) {
      const std::string nearest = nearest_name(entry.host, names);
      throw ConfigError(str(option, ": there is no host '", entry.host, "'",
                            nearest.empty() ? "" : str("; did you mean '", nearest, "'?")));
    }
    const HostSlots& host = hosts[static_cast<size_t>(found - names.begin())];
    for (const int slot : entry.slots) {
      if (!std::binary_search(host.slots.begin(), host.slots.end(), slot)) {
        throw ConfigError(str(option, ": host '", host.host, "' has slots 0 to ", host.slots.back(),
                              ", not ", slot));
      }
    }
  }
}

void require_one_way(const HostSelection& selection) {
  if (!selection.include.empty() && !selection.exclude.empty()) {
    throw ConfigError("--include and --exclude cannot be used together");
  }
  if (selection.num_nodes < 0 && selection.num_gpus < 0) return;
  if (!selection.include.empty() || !selection.exclude.empty()) {
    throw ConfigError(
        "--num_nodes and --num_gpus cannot be used together with --include or --exclude");
  }
}

void keep_first(std::vector<HostSlots>& hosts, const HostSelection& selection) {
  if (selection.num_nodes >= 0) {
    if (selection.num_nodes < 1 || selection.num_nodes > static_cast<int>(hosts.size())) {
      throw ConfigError(
          str("--num_nodes ", selection.num_nodes, ": there are ", hosts.size(), " hosts"));
    }
    hosts.resize(static_cast<size_t>(selection.num_nodes));
  }
  if (selection.num_gpus < 0) return;
  for (HostSlots& host : hosts) {
    if (selection.num_gpus < 1 || selection.num_gpus > static_cast<int>(host.slots.size())) {
      throw ConfigError(str("--num_gpus ", selection.num_gpus, ": host '", host.host, "' has ",
                            host.slots.size(), " slots"));
    }
    host.slots.resize(static_cast<size_t>(selection.num_gpus));
  }
}

const HostSlots* find_host(const std::vector<HostSlots>& filter, const std::string& host) {
  const auto found = std::find_if(filter.begin(), filter.end(),
                                  [&host](const HostSlots& entry) { return entry.host == host; });
  return found == filter.end() ? nullptr : &*found;
}

}  // namespace

std::vector<HostSlots> parse_hostfile(std::string_view text, const std::string& name) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::vector<HostSlots> hosts;
  int number = 0;
  for (std::string_view line : pieces(text, '\n')) {
    ++number;
    line = trimmed(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    const std::string place = str(name, ":", number);
    HostSlots host = parse_host(line, place);
    if (find_host(hosts, host.host) != nullptr) {
      throw ConfigError(str(place, ": host '", host.host, "' is there already"));
    }
    hosts.push_back(std::move(host));
  }
  if (hosts.empty()) throw ConfigError(str(name, ": no host is named"));
  return hosts;
}

std::vector<HostSlots> select_slots(const std::vector<HostSlots>& hosts,
                                    const HostSelection& selection) {
  require_one_way(selection);
  std::vector<HostSlots> selected = hosts;
  if (!selection.include.empty()) {
    const std::vector<HostSlots> filter = parse_filter(selection.include, "--include");
    require_known(filter, hosts, "--include");
    selected.clear();
    for (const HostSlots& host : hosts) {
      const HostSlots* entry = find_host(filter, host.host);
      if (entry != nullptr) selected.push_back(entry->slots.empty() ? host : *entry);
    }
  }
  if (!selection.exclude.empty()) {
    const std::vector<HostSlots> filter = parse_filter(selection.exclude, "--exclude");
    require_known(filter, hosts, "--exclude");
    for (HostSlots& host : selected) {
      const HostSlots* entry = find_host(filter, host.host);
      if (entry == nullptr) continue;
      const std::set<int> out(entry->slots.begin(), entry->slots.end());
      std::erase_if(host.slots, [&](int slot) { return out.empty() || out.contains(slot); });
    }
    std::erase_if(selected, [](const HostSlots& host) { return host.slots.empty(); });
  }
  keep_first(selected, selection);
  if (selected.empty()) throw ConfigError("no slot is left to start a rank on");
  return selected;
}

std::vector<HostSlots> local_slots(const HostSelection& selection, int default_slots) {
  require_one_way(selection);
  if (selection.num_nodes > 1) {
    throw ConfigError(str("--num_nodes ", selection.num_nodes,
                          " needs a hostfile: without one there is this machine only"));
  }
  int slots = selection.num_gpus > 0 ? selection.num_gpus : default_slots;
  // A rank on a CPU needs no device, so a slot exists because it is named.
  const std::string& named = selection.include.empty() ? selection.exclude : selection.include;
  if (!named.empty()) {
    for (const HostSlots& entry : parse_filter(named, "--include")) {
      for (const int slot : entry.slots) slots = std::max(slots, slot + 1);
    }
  }
  if (slots > kMaxSlots) {
    throw ConfigError(str("--num_gpus ", slots, ": a host has at most ", kMaxSlots, " slots"));
  }
  return select_slots({{"localhost", first_slots(slots)}}, selection);
}

std::vector<std::string> mpirun_words(const std::vector<HostSlots>& hosts,
                                      const MpirunOptions& options) {
  require(!options.program.empty(), "launch: there is no program to start");
  require(!hosts.empty(), "launch: there is no host to start it on");
  const std::string& first = hosts.front().host;
  const std::string address = hosts.size() == 1 && first == "localhost" ? "127.0.0.1" : first;
  // Ranks bind themselves to the processors of their host (comm/cpu_share).
  std::vector<std::string> words{options.mpirun, "--bind-to", "none"};
  if (options.as_root) words.emplace_back("--allow-run-as-root");
  for (const HostSlots& host : hosts) {
    if (&host != &hosts.front()) words.emplace_back(":");
    std::string devices;
    for (const int slot : host.slots) devices += str(devices.empty() ? "" : ",", slot);
    const std::string ranks = str(host.slots.size());
    words.insert(words.end(), {"-np", ranks, "--host", str(host.host, ":", ranks)});
    words.insert(words.end(), {"-x", str("CUDA_VISIBLE_DEVICES=", devices)});
    words.insert(words.end(), {"-x", str("MASTER_ADDR=", address)});
    words.insert(words.end(), {"-x", str("MASTER_PORT=", options.master_port)});
    if (!options.heartbeat_directory.empty()) {
      words.insert(words.end(), {"-x", str("ZINC_HEARTBEATS=", options.heartbeat_directory)});
    }
    words.insert(words.end(), options.program.begin(), options.program.end());
  }
  return words;
}

std::string shell_text(const std::vector<std::string>& words) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += ' ';
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
      text += word;
      continue;
    }
    text += '\'';
    for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    text += '\'';
  }
  return text;
}

}  // namespace zinc::apps
