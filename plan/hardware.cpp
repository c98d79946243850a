#include "plan/hardware.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/edit_distance.h"
#include "core/error.h"
#include "files/json/parser.h"
#include "files/json/writer.h"

namespace zinc::plan {
namespace {

constexpr std::string_view kFormat = "zinc hardware 1";
constexpr std::string_view kCure = "; `zinc bench ceilings --json FILE` writes a complete file";

// One object of the file. finish() refuses keys that were not asked for.
class Section {
 public:
  explicit Section(const files::json::Value& value) : value_(value) { value.as_object(); }

  const files::json::Value* optional(std::string_view key) {
    asked_.push_back(key);
    return value_.find(key);
  }
  const files::json::Value& required(std::string_view key) {
    const files::json::Value* found = optional(key);
    if (found == nullptr) value_.fail(str("key \"", key, "\" is missing", kCure));
    return *found;
  }
  double rate(std::string_view key, std::string_view unit) { return positive(required(key), unit); }
  double optional_rate(std::string_view key, std::string_view unit) {
    const files::json::Value* found = optional(key);
    return found == nullptr ? 0.0 : positive(*found, unit);
  }
  double seconds(std::string_view key) {
    const files::json::Value& value = required(key);
    const double seconds = value.as_double();
    if (seconds < 0.0 || seconds > 1.0) value.fail("must be seconds between 0 and 1");
    return seconds;
  }
  // No key but those that were asked for.
  void finish() const {
    for (const files::json::Member& member : value_.as_object()) {
      if (std::ranges::find(asked_, member.key) != asked_.end()) continue;
      std::string known;
      for (const std::string_view key : asked_) known += str(known.empty() ? "" : ", ", key);
      member.value.fail(str("unknown key \"", member.key, "\"; known here: ", known));
    }
  }

 private:
  static double positive(const files::json::Value& value, std::string_view unit) {
    const double rate = value.as_double();
    if (!(rate > 0.0)) value.fail(str("must be more than 0 ", unit));
    return rate;
  }

  const files::json::Value& value_;
  std::vector<std::string_view> asked_;
};

Link link_of(const files::json::Value& value) {
  Section section(value);
  const Link link{.alpha_seconds = section.seconds("alpha_seconds"),
                  .bytes_per_second = section.rate("bytes_per_second", "bytes per second")};
  section.finish();
  return link;
}

CollectiveLinks links_of(const files::json::Value& value) {
  Section section(value);
  const CollectiveLinks links{.all_gather = link_of(section.required("all_gather")),
                              .reduce_scatter = link_of(section.required("reduce_scatter"))};
  section.finish();
  return links;
}

HostRates host_rates_of(const files::json::Value& value, DeviceKind device) {
  Section section(value);
  HostRates host;
  host.to_device_bytes_per_second = section.rate("to_device_bytes_per_second", "bytes per second");
  host.to_host_bytes_per_second = section.rate("to_host_bytes_per_second", "bytes per second");
  if (device == DeviceKind::cuda) {
    host.threads = static_cast<int>(section.required("threads").as_int64(1, 1 << 20));
    host.update_bytes_per_second = section.rate("update_bytes_per_second", "bytes per second");
  }
  section.finish();
  return host;
}

void write_host_rates(files::json::Writer& json, const HostRates& host, DeviceKind device) {
  json.key("host").begin_object();
  json.member("to_device_bytes_per_second", host.to_device_bytes_per_second);
  json.member("to_host_bytes_per_second", host.to_host_bytes_per_second);
  if (device == DeviceKind::cuda) {
    json.member("threads", host.threads);
    json.member("update_bytes_per_second", host.update_bytes_per_second);
  }
  json.end_object();
}

DTypeRates rates_of(const files::json::Value& value) {
  Section section(value);
  DTypeRates rates;
  rates.f32 = section.optional_rate("f32", "FLOP per second");
  rates.bf16 = section.optional_rate("bf16", "FLOP per second");
  rates.f16 = section.optional_rate("f16", "FLOP per second");
  section.finish();
  return rates;
}

void write_rates(files::json::Writer& json, std::string_view key, const DTypeRates& rates) {
  json.key(key).begin_object();
  if (rates.f32 > 0.0) json.member("f32", rates.f32);
  if (rates.bf16 > 0.0) json.member("bf16", rates.bf16);
  if (rates.f16 > 0.0) json.member("f16", rates.f16);
  json.end_object();
}

void write_links(files::json::Writer& json, std::string_view key, const CollectiveLinks& links) {
  json.key(key).begin_object();
  for (const auto& [name, link] : {std::pair{"all_gather", links.all_gather},
                                   std::pair{"reduce_scatter", links.reduce_scatter}}) {
    json.key(name).begin_object();
    json.member("alpha_seconds", link.alpha_seconds);
    json.member("bytes_per_second", link.bytes_per_second);
    json.end_object();
  }
  json.end_object();
}

}  // namespace

Hardware parse_hardware(const files::json::Value& root) {
  Section section(root);
  const files::json::Value& format = section.required("format");
  if (!format.is_string(kFormat)) {
    format.fail(str("must be \"", kFormat, "\": this is no hardware file, or one of another ",
                    "version of zinc"));
  }
  Hardware hardware;
  hardware.name = section.required("name").as_string();
  const files::json::Value& source = section.required("source");
  hardware.source = source.as_string();
  if (hardware.source != "measured" && hardware.source != "specification") {
    source.fail("must be \"measured\" or \"specification\"");
  }
  const files::json::Value& device = section.required("device");
  if (!device.is_string("cpu") && !device.is_string("cuda")) {
    device.fail("must be \"cpu\" or \"cuda\"");
  }
  hardware.device = device.is_string("cpu") ? DeviceKind::cpu : DeviceKind::cuda;
  if (hardware.device == DeviceKind::cpu) {
    hardware.threads = static_cast<int>(section.required("threads").as_int64(1, 1 << 20));
  }
  hardware.read_bytes_per_second = section.rate("read_bytes_per_second", "bytes per second");
  hardware.write_bytes_per_second = section.rate("write_bytes_per_second", "bytes per second");
  hardware.launch_seconds = section.seconds("launch_seconds");

  const files::json::Value& flops = section.required("flops_per_second");
  Section rates(flops);
  hardware.gemm = rates_of(rates.required("gemm"));
  hardware.attention = rates_of(rates.required("attention"));
  hardware.other_flops = rates.rate("other", "FLOP per second");
  rates.finish();

  Section links(section.required("collectives"));
  hardware.same_host = links_of(links.required("same_host"));
  if (const files::json::Value* between = links.optional("between_hosts")) {
    hardware.between_hosts = links_of(*between);
  }
  links.finish();
  if (const files::json::Value* disk = section.optional("disk")) {
    Section figures(*disk);
    hardware.disk =
        Disk{.read_bytes_per_second = figures.rate("read_bytes_per_second", "bytes per second"),
             .write_bytes_per_second = figures.rate("write_bytes_per_second", "bytes per second")};
    figures.finish();
  }
  if (const files::json::Value* host = section.optional("host")) {
    hardware.host = host_rates_of(*host, hardware.device);
  }
  section.finish();
  return hardware;
}

Hardware read_hardware(const std::string& path) {
  return parse_hardware(files::json::parse_file(path, files::json::ParseOptions::config()));
}

std::string json_of(const Hardware& hardware) {
  files::json::Writer json(2);
  json.begin_object();
  json.member("format", kFormat);
  json.member("name", hardware.name);
  json.member("source", hardware.source);
  json.member("device", hardware.device == DeviceKind::cpu ? "cpu" : "cuda");
  if (hardware.device == DeviceKind::cpu) json.member("threads", hardware.threads);
  json.member("read_bytes_per_second", hardware.read_bytes_per_second);
  json.member("write_bytes_per_second", hardware.write_bytes_per_second);
  json.member("launch_seconds", hardware.launch_seconds);
  json.key("flops_per_second").begin_object();
  write_rates(json, "gemm", hardware.gemm);
  write_rates(json, "attention", hardware.attention);
  json.member("other", hardware.other_flops);
  json.end_object();
  json.key("collectives").begin_object();
  write_links(json, "same_host", hardware.same_host);
  if (hardware.between_hosts) write_links(json, "between_hosts", *hardware.between_hosts);
  json.end_object();
  if (hardware.disk) {
    json.key("disk").begin_object();
    json.member("read_bytes_per_second", hardware.disk->read_bytes_per_second);
    json.member("write_bytes_per_second", hardware.disk->write_bytes_per_second);
    json.end_object();
  }
  if (hardware.host) write_host_rates(json, *hardware.host, hardware.device);
  json.end_object();
  return json.take() + "\n";
}

RankSpeed::RankSpeed(const Hardware& hardware, int threads, int ranks_per_host)
    : hardware_(hardware), threads_(threads), ranks_per_host_(ranks_per_host) {
  require(threads > 0 && ranks_per_host > 0, "hardware: threads and ranks per host must be > 0");
  if (hardware.device != DeviceKind::cpu) return;
  bandwidth_share_ = 1.0 / ranks_per_host;
  cores_ = std::max<double>(static_cast<double>(hardware.threads) / ranks_per_host, 1.0);
}

double RankSpeed::collective_seconds(const Link CollectiveLinks::*link, double bytes,
                                     const WorkCost& cost) const {
  const int ranks = cost.ranks;
  if (ranks <= 1) return 0.0;
  const int on_host = cost.near_ranks > 0 ? cost.near_ranks : ranks_per_host_;
  const int near = std::min(ranks, on_host) - 1;
  const int far = ranks - 1 - near;
  const auto part = [&](const CollectiveLinks& links, int peers) {
    const Link& used = links.*link;
    return peers * used.alpha_seconds + bytes * peers / (ranks - 1) / used.bytes_per_second;
  };
  double seconds = near == 0 ? 0.0 : part(hardware_.same_host, near);
  if (far == 0) return seconds;
  if (!hardware_.between_hosts) {
    throw ConfigError(str("the hardware file of '", hardware_.name,
                          "' has no \"collectives.between_hosts\", but ", ranks, " ranks at ",
                          ranks_per_host_, " per host need a network: add it to the file, or ",
                          "give --ranks-per-host"));
  }
  return seconds + part(*hardware_.between_hosts, far);
}

bool RankSpeed::is_offload(const WorkCost& cost) const {
  if (cost.kind == WorkKind::collective || cost.place == WorkPlace::device) return false;
  return cost.place != WorkPlace::host || !host_computes();
}

double RankSpeed::offload_seconds(const WorkCost& cost) const {
  if (!hardware_.host) {
    throw ConfigError(str("the hardware file of '", hardware_.name, "' has no \"host\", which ",
                          "offload on a GPU needs for its time", kCure));
  }
  const HostRates& host = *hardware_.host;
  if (cost.place == WorkPlace::host) {
    return static_cast<double>(cost.bytes_read + cost.bytes_written) * ranks_per_host_ /
           host.update_bytes_per_second;
  }
  const bool comes = cost.place == WorkPlace::to_device;
  return hardware_.launch_seconds +
         static_cast<double>(cost.bytes_written) /
             (comes ? host.to_device_bytes_per_second : host.to_host_bytes_per_second);
}

double RankSpeed::seconds(std::string_view label, const WorkCost& cost, int threads) const {
  if (cost.kind == WorkKind::collective) {
    const auto bytes = static_cast<double>(std::max(cost.bytes_read, cost.bytes_written));
    const auto gather = &CollectiveLinks::all_gather;
    const auto reduce = &CollectiveLinks::reduce_scatter;
    if (label == "reduce_scatter") return collective_seconds(reduce, bytes, cost);
    if (label == "all_reduce") {  // one of each, with half of the bytes
      return collective_seconds(reduce, bytes / 2, cost) +
             collective_seconds(gather, bytes / 2, cost);
    }
    return collective_seconds(gather, bytes, cost);
  }
  // A CPU's file may lack the link: then a copy is a kernel of the device.
  if (is_offload(cost) && (hardware_.host || !host_computes())) return offload_seconds(cost);
  double rate = hardware_.other_flops;
  if (cost.kind != WorkKind::other) {
    const bool gemm = cost.kind == WorkKind::gemm;
    rate = (gemm ? hardware_.gemm : hardware_.attention).at(cost.dtype);
    if (rate == 0.0) {
      throw ConfigError(str("the hardware file of '", hardware_.name,
                            "' has no \"flops_per_second.", gemm ? "gemm" : "attention", ".",
                            zinc::name_of(cost.dtype), "\", which this model computes in", kCure));
    }
  }
  if (hardware_.threads > 0)
    rate *= std::min(1.0, static_cast<double>(threads) / hardware_.threads);
  const double memory =
      (static_cast<double>(cost.bytes_read) / hardware_.read_bytes_per_second +
       static_cast<double>(cost.bytes_written) / hardware_.write_bytes_per_second) /
      bandwidth_share_;
  const double arithmetic = static_cast<double>(cost.flops) / rate;
  // A GPU's blocks fetch while others compute; a core packs the panels of a product first.
  return hardware_.launch_seconds +
         (host_computes() ? memory + arithmetic : std::max(memory, arithmetic));
}

}  // namespace zinc::plan
