#include "plan/planned_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/error.h"
#include "files/fill_marks.h"
#include "files/json/writer.h"
#include "plan/program_page.h"

namespace zinc::plan {

void ProgramWatch::visit(const zero::Phase& phase, size_t place) {
  const Key key{&phase, place};
  if (is_frozen_ && visits_.contains(key)) return;
  Visit& visit = visits_[key];
  visit.memory = context_.allocator().report();
  visit.mark.reset();
  if (!is_timed_) return;
  log_.mark(kMark);
  visit.mark = marks_.size();
  marks_.push_back(key);
}

void ProgramWatch::freeze() {
  is_timed_ = false;
  is_frozen_ = true;
}

namespace {

// "F2", of one of several parts "F2.1".
std::string turn_of(const parallel::PipelineOp& op, int parts) {
  const char letter = op.work == parallel::PipelineWork::forward    ? 'F'
                      : op.work == parallel::PipelineWork::backward ? 'B'
                                                                    : 'W';
  std::string turn = fmt::format("{}{}", letter, op.micro_batch + 1);
  if (parts > 1) turn += fmt::format(".{}", op.part + 1);
  return turn;
}

std::optional<PlannedPipeline> pipeline_of(const zero::StepProgram& program) {
  const zero::PipelinePlace& place = program.policy.pipeline;
  if (place.size == 1) return std::nullopt;
  PlannedPipeline planned{.rank = place.rank,
                          .size = place.size,
                          .parts = place.parts,
                          .schedule = std::string(name_of(place.schedule)),
                          .order = {},
                          .turns = {}};
  for (const parallel::PipelineOp& op : program.program.pipeline) {
    planned.order.push_back(describe(op));
  }
  for (const auto& rank : parallel::pipeline_turns(parallel::pipeline_orders(place.shape()))) {
    std::vector<std::string>& turns = planned.turns.emplace_back();
    for (const auto& op : rank) turns.push_back(op ? turn_of(*op, place.parts) : "");
  }
  return planned;
}

}  // namespace

PlannedProgram ProgramWatch::read(const zero::StepProgram& program, const TimedStep& timed) const {
  PlannedProgram read{.hash = program.hash, .pipeline = pipeline_of(program)};
  std::map<Key, size_t> numbers;  // by place
  const auto ops_of = [&](const std::vector<zero::Op>& ops) {
    std::vector<std::string> names;
    for (const zero::Op& op : ops) names.push_back(zero::describe(op, *program.groups));
    return names;
  };
  const auto add = [&](std::string_view body, std::string_view name, const zero::Phase& phase) {
    for (size_t i = 0; i < phase.size(); ++i) {
      const zero::StepEvent& event = phase[i].event;
      const bool is_end =
          event.kind == zero::EventKind::begin || event.kind == zero::EventKind::end;
      const auto group = static_cast<size_t>(event.parameter.group);
      numbers[{&phase, i}] = read.places.size();
      PlannedPlace& place = read.places.emplace_back();
      place.body = body;
      place.phase = name;
      place.event = zero::describe(event, *program.groups);
      if (!is_end) place.group = (*program.groups)[group].name();
      place.before = ops_of(phase[i].before);
      place.after = ops_of(phase[i].after);
      const auto found = visits_.find({&phase, i});
      if (found == visits_.end()) continue;
      const Visit& visit = found->second;
      place.device_bytes = visit.memory.at(Tier::device).live;
      for (int t = 0; t < kNumTiers; ++t) {
        for (int l = 0; l < kNumLabels; ++l) {
          const int64_t bytes = visit.memory.at(static_cast<Tier>(t), static_cast<Label>(l)).live;
          if (bytes != 0) {
            place.bytes.push_back({static_cast<Tier>(t), static_cast<Label>(l), bytes});
          }
        }
      }
      if (!timed.places.empty() && visit.mark) place.seconds = timed.places[*visit.mark];
    }
  };
  using Kind = zero::MicroBatchKind;
  for (Kind kind : {Kind{true, true}, {true, false}, {false, false}, {false, true}}) {
    for (kind.part = 0; kind.part < program.policy.pipeline.parts; ++kind.part) {
      const auto found = program.program.bodies.find(kind);
      // Kinds that no step of the configuration has were never visited.
      if (found == program.program.bodies.end() ||
          !visits_.contains({&found->second.backward, found->second.backward.size() - 1})) {
        continue;
      }
      const zero::Body& body = found->second;
      add(name_of(kind), "forward", body.forward);
      add(name_of(kind), "backward", body.backward);
      if (!body.weights.empty()) add(name_of(kind), "weight gradients", body.weights);
    }
  }
  add("step", "", program.program.step);
  add("evaluation", "forward", program.program.evaluation);
  const std::vector<const zero::Phase*> phases = program.program.phases();
  for (const zero::RewriteEffect& effect : program.effects) {
    PlannedRewrite& rewrite = read.rewrites.emplace_back();
    rewrite.name = effect.name;
    for (const zero::OpChange& change : effect.changes) {
      ++(change.added ? rewrite.added : rewrite.removed);
      const auto place = numbers.find({phases[change.phase], change.place});
      if (place == numbers.end()) continue;
      rewrite.changes.push_back({.place = place->second,
                                 .behind = change.behind,
                                 .added = change.added,
                                 .op = zero::describe(change.op, *program.groups)});
    }
  }
  for (const PlayedSpan& span : timed.spans) {
    PlannedSpan& planned = read.spans.emplace_back();
    planned.stream = name_of_stream(span.stream);
    planned.work = span.label;
    if (span.label.empty()) planned.waits_for = name_of_stream(span.source);
    planned.begin = span.begin;
    planned.end = span.end;
    if (span.marks > 0) planned.place = numbers.at(marks_[span.marks - 1]);
  }
  return read;
}

namespace {

// A column of the page: its title and its ops.
struct Lane {
  std::string_view title;
  std::vector<std::string_view> ops;
};
const std::array<Lane, 4> kLanes{
    Lane{"weights", {"gather", "release"}},
    Lane{"gradients", {"reduce"}},
    Lane{"update", {"norm", "decide", "direct", "transform", "update", "publish", "join"}},
    Lane{"disk", {"read"}},
};

std::string_view word_of(std::string_view op) { return op.substr(0, op.find(' ')); }
std::string_view group_of(std::string_view op) {
  return op.substr(std::min(op.size(), word_of(op).size() + 1));
}

// "gather h.1, release h.0"; `<` marks what goes out ahead of the event. Many ops of one kind are
// the first, the last and their number.
std::string cell(const PlannedPlace& place, const Lane& lane) {
  std::string text;
  const auto add = [&](const std::vector<std::string>& ops, std::string_view mark) {
    for (const std::string_view word : lane.ops) {
      std::vector<std::string_view> groups;
      for (const std::string& op : ops) {
        if (word_of(op) == word) groups.push_back(group_of(op));
      }
      if (groups.empty()) continue;
      text += fmt::format("{}{}{}{}{}", text.empty() ? "" : ", ", mark, word,
                          groups.front().empty() ? "" : " ", groups.front());
      if (groups.size() == 2) text += fmt::format(" and {}", groups.back());
      if (groups.size() > 2) text += fmt::format(" to {} ({})", groups.back(), groups.size());
    }
  };
  add(place.before, "<");
  add(place.after, "");
  return text;
}

bool has_ops(const PlannedPlace& place) { return !place.before.empty() || !place.after.empty(); }

std::string bytes_column(const PlannedPlace& place) {
  if (!place.device_bytes) return "";
  return fmt::format("{:.2f} MiB", static_cast<double>(*place.device_bytes) / 0x1p20);
}

std::string time_column(const PlannedPlace& place) {
  return place.seconds ? fmt::format("{:.3f}", 1e3 * *place.seconds) : "";
}

// Lines of one phase, with columns as wide as what stands in them.
std::string page_of(const std::vector<const PlannedPlace*>& places) {
  using Line = std::vector<std::string>;
  Line head{"ms", "event"};
  for (const Lane& lane : kLanes) head.emplace_back(lane.title);
  head.emplace_back("device");
  std::vector<Line> lines{head};
  for (size_t i = 0; i < places.size();) {
    size_t end = i + 1;
    while (!has_ops(*places[i]) && end < places.size() && !has_ops(*places[end]) &&
           places[end]->group == places[i]->group) {
      ++end;
    }
    const PlannedPlace& last = *places[end - 1];
    Line line{time_column(last), end - i == 1
                                     ? places[i]->event
                                     : fmt::format("{} events of {}", end - i, places[i]->group)};
    for (const Lane& lane : kLanes) line.push_back(cell(*places[i], lane));
    line.push_back(bytes_column(last));
    lines.push_back(std::move(line));
    i = end;
  }
  std::vector<size_t> widths(head.size(), 0);
  for (size_t column = 0; column < head.size(); ++column) {
    bool used = column == 1;
    for (size_t row = 1; row < lines.size(); ++row) used = used || !lines[row][column].empty();
    for (const Line& line : lines) {
      if (used) widths[column] = std::max(widths[column], line[column].size());
    }
  }
  std::string text;
  for (const Line& line : lines) {
    std::string row;
    for (size_t column = 0; column < line.size(); ++column) {
      if (widths[column] == 0) continue;
      const bool right = column == 0 || column + 1 == line.size();
      row += right ? fmt::format("{:>{}}  ", line[column], widths[column])
                   : fmt::format("{:<{}}  ", line[column], widths[column]);
    }
    text += row.substr(0, row.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string rewrites_table(const std::vector<PlannedRewrite>& rewrites) {
  std::string text = fmt::format("{:<22} {:>6} {:>8} {:>18} {:>12}\n", "rewrite", "added",
                                 "removed", "peak then", "step");
  for (const PlannedRewrite& rewrite : rewrites) {
    text += fmt::format(
        "{:<22} {:>6} {:>8} {:>14.2f} MiB {:>12}\n", rewrite.name, rewrite.added, rewrite.removed,
        static_cast<double>(rewrite.device_peak) / 0x1p20,
        rewrite.step_seconds ? fmt::format("{:.3f} ms", 1e3 * *rewrite.step_seconds) : "");
  }
  return text;
}

std::string title_of(const PlannedPlace& place) {
  if (place.body == "step") return "step";
  if (place.body == "evaluation") return "evaluation";
  return fmt::format("{} micro-batch, {}", place.body, place.phase);
}

// Ranks down the page, turns across; what this rank does.
std::string pipeline_page(const PlannedPipeline& pipeline) {
  size_t width = 0, idle = 0;
  for (const auto& turns : pipeline.turns) {
    for (const std::string& turn : turns) width = std::max(width, turn.size());
  }
  for (const std::string& turn : pipeline.turns.front()) idle += turn.empty() ? 1 : 0;
  std::string text =
      fmt::format("\npipeline, {}{}: passes over micro-batches, a turn each; {} of {} turns idle\n",
                  pipeline.schedule,
                  pipeline.parts > 1 ? fmt::format(", {} parts of each rank", pipeline.parts) : "",
                  idle, pipeline.turns.front().size());
  for (size_t rank = 0; rank < pipeline.turns.size(); ++rank) {
    text += fmt::format("pipe {:<3}", rank);
    for (const std::string& turn : pipeline.turns[rank]) {
      text += fmt::format(" {:<{}}", turn.empty() ? "." : turn, width);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += "\n";
  }
  text += fmt::format("\npipe {}, in this order\n", pipeline.rank);
  for (const std::string& op : pipeline.order) text += fmt::format("  {}\n", op);
  return text;
}

}  // namespace

std::string describe(const PlannedProgram& program) {
  std::string text =
      fmt::format("step program {:016x}\n\n{}", program.hash, rewrites_table(program.rewrites));
  if (program.pipeline) text += pipeline_page(*program.pipeline);
  for (size_t begin = 0; begin < program.places.size();) {
    const std::string title = title_of(program.places[begin]);
    std::vector<const PlannedPlace*> phase;
    size_t end = begin;
    for (; end < program.places.size() && title_of(program.places[end]) == title; ++end) {
      phase.push_back(&program.places[end]);
    }
    begin = end;
    // Nothing follows most updates.
    if (std::ranges::none_of(phase, [](const auto* place) { return has_ops(*place); })) continue;
    text += fmt::format("\n{}\n{}", title, page_of(phase));
  }
  return text + "\n<: ahead of the event, all else right behind it\n";
}

namespace {

void write_spans(files::json::Writer& json, const std::vector<PlannedSpan>& spans) {
  json.key("spans").begin_array();
  for (const PlannedSpan& span : spans) {
    json.begin_object();
    json.member("stream", span.stream);
    if (!span.work.empty()) json.member("work", span.work);
    if (!span.waits_for.empty()) json.member("waits_for", span.waits_for);
    json.member("begin", span.begin);
    json.member("end", span.end);
    if (span.place) json.member("place", static_cast<int64_t>(*span.place));
    json.end_object();
  }
  json.end_array();
}

void write_program(files::json::Writer& json, const PlannedProgram& program) {
  json.begin_object();
  json.member("hash", fmt::format("{:016x}", program.hash));
  json.key("rewrites").begin_array();
  for (const PlannedRewrite& rewrite : program.rewrites) {
    json.begin_object();
    json.member("name", rewrite.name);
    json.member("added", rewrite.added);
    json.member("removed", rewrite.removed);
    json.member("device_peak_bytes", rewrite.device_peak);
    if (rewrite.step_seconds) json.member("step_seconds", *rewrite.step_seconds);
    json.key("changes").begin_array();
    for (const PlannedChange& change : rewrite.changes) {
      json.begin_object();
      json.member("place", static_cast<int64_t>(change.place));
      json.member(change.added ? "added" : "removed", change.op);
      json.member("side", change.behind ? "after" : "before");
      json.end_object();
    }
    json.end_array();
    json.end_object();
  }
  json.end_array();
  if (program.pipeline) {
    json.key("pipeline").begin_object();
    json.member("rank", program.pipeline->rank);
    json.member("ranks", program.pipeline->size);
    json.member("schedule", program.pipeline->schedule);
    json.member("parts", program.pipeline->parts);
    json.key("order").begin_array();
    for (const std::string& op : program.pipeline->order) json.value(op);
    json.end_array();
    json.key("turns").begin_array();
    for (const auto& rank : program.pipeline->turns) {
      json.begin_array();
      for (const std::string& turn : rank) json.value(turn);
      json.end_array();
    }
    json.end_array();
    json.end_object();
  }
  json.key("places").begin_array();
  for (const PlannedPlace& place : program.places) {
    json.begin_object();
    json.member("body", place.body);
    json.member("phase", place.phase);
    json.member("event", place.event);
    if (!place.group.empty()) json.member("group", place.group);
    for (const auto& [key, ops] : {std::pair{"before", &place.before}, {"after", &place.after}}) {
      if (ops->empty()) continue;
      json.key(key).begin_array();
      for (const std::string& op : *ops) json.value(op);
      json.end_array();
    }
    if (place.device_bytes) json.member("device_bytes", *place.device_bytes);
    if (!place.bytes.empty()) {
      json.key("bytes").begin_object();
      for (const PlannedBytes& part : place.bytes) {
        json.member(fmt::format("{} {}", name_of(part.tier), name_of(part.label)), part.bytes);
      }
      json.end_object();
    }
    if (place.seconds) json.member("seconds", *place.seconds);
    json.end_object();
  }
  json.end_array();
  if (!program.spans.empty()) write_spans(json, program.spans);
  json.end_object();
}

}  // namespace

std::string json_of(const PlannedProgram& program) {
  files::json::Writer json(2);
  write_program(json, program);
  return json.take();
}

std::string html_of(const PlannedProgram& program, std::string_view name,
                    const OtherProgram& other) {
  files::json::Writer json;
  json.begin_object().key("programs").begin_array();
  json.begin_object().member("name", name).key("program");
  write_program(json, program);
  json.end_object();
  if (other.program != nullptr) {
    json.begin_object().member("name", other.name).member("program", *other.program).end_object();
  }
  json.end_array().end_object();
  return files::fill_marks(
      program_page_html(),
      {{"@data@", files::json::without_markup(json.take())}, {"@script@", program_page_script()}});
}

namespace {

std::vector<std::string> ops_in(const files::json::Value& place, std::string_view key) {
  std::vector<std::string> ops;
  const files::json::Value* const found = place.find(key);
  if (found == nullptr) return ops;
  for (const files::json::Value& op : found->as_array()) ops.push_back(op.as_string());
  return ops;
}

// Ops of `mine` that `other` has not.
std::string only_in(const std::vector<std::string>& mine, const std::vector<std::string>& other,
                    std::string_view sign, std::string_view side) {
  std::string text;
  std::vector<std::string> rest = other;
  for (const std::string& op : mine) {
    const auto found = std::ranges::find(rest, op);
    if (found != rest.end()) {
      rest.erase(found);
    } else {
      text += fmt::format("    {} {} ({})\n", sign, op, side);
    }
  }
  return text;
}

}  // namespace

std::string describe_difference(const PlannedProgram& program, const files::json::Value& other) {
  std::string text;
  const auto& places = other.at("places").as_array();
  std::string title;
  int64_t differing = 0;
  std::map<std::string, const files::json::Value*> by_name;
  std::map<std::string, int64_t> seen;  // an event may come again in its phase
  const auto key_of = [&](const std::string& body, const std::string& phase,
                          const std::string& event) {
    const std::string name = fmt::format("{}/{}/{}", body, phase, event);
    return fmt::format("{}#{}", name, seen[name]++);
  };
  for (const files::json::Value& place : places) {
    by_name[key_of(place.at("body").as_string(), place.at("phase").as_string(),
                   place.at("event").as_string())] = &place;
  }
  seen.clear();
  for (const PlannedPlace& place : program.places) {
    const auto found = by_name.find(key_of(place.body, place.phase, place.event));
    std::string lines;
    if (found == by_name.end()) {
      lines = "    the other program has no such place\n";
    } else {
      const std::vector<std::string> before = ops_in(*found->second, "before");
      const std::vector<std::string> after = ops_in(*found->second, "after");
      lines =
          only_in(place.before, before, "+", "ahead") + only_in(place.after, after, "+", "behind") +
          only_in(before, place.before, "-", "ahead") + only_in(after, place.after, "-", "behind");
    }
    if (lines.empty()) continue;
    ++differing;
    if (title != title_of(place)) text += fmt::format("{}\n", title = title_of(place));
    text += fmt::format("  {}\n{}", place.event, lines);
  }
  std::string rewrites;
  for (const PlannedRewrite& rewrite : program.rewrites) {
    for (const files::json::Value& theirs : other.at("rewrites").as_array()) {
      if (theirs.at("name").as_string() != rewrite.name) continue;
      const int64_t bytes = theirs.at("device_peak_bytes").as_int64();
      if (bytes == rewrite.device_peak) continue;
      rewrites += fmt::format("peak with {}: {} bytes, the other {}\n", rewrite.name,
                              rewrite.device_peak, bytes);
    }
  }
  if (differing == 0 && rewrites.empty()) return "the programs are the same\n";
  return fmt::format("{}{} places differ; +: only here, -: only there\n{}", text, differing,
                     rewrites);
}

}  // namespace zinc::plan
