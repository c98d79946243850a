#include "train/trace/trace_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/context.h"
#include "core/error.h"
#include "core/host_stream.h"
#include "files/json/writer.h"
#include "offload/swap_space.h"

namespace zinc::train {
namespace {

namespace fs = std::filesystem;

constexpr size_t kFlushBytes = size_t{1} << 18;
constexpr size_t kRemembered = size_t{1} << 15;

constexpr std::string_view kHead =
    "[\n{\"name\":\"zinc\",\"ph\":\"M\",\"pid\":0,\"tid\":0,\"args\":{\"version\":1}}";

// A regular file with content is replaced only where that is a trace: the name may be one of
// another file by mistake.
void require_own_file(const files::FileDescriptor& file, const std::string& path) {
  struct stat info = {};
  if (::fstat(file.get(), &info) != 0) throw IoError("stat", path, -1, errno);
  if (!S_ISREG(info.st_mode) || info.st_size == 0) return;
  std::string head(kHead.size(), '\0');
  const files::FileDescriptor old(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!old) throw IoError("read what the trace would replace,", path, -1, errno);
  const ssize_t n = ::pread(old.get(), head.data(), head.size(), 0);
  if (n < 0) throw IoError("read what the trace would replace,", path, 0, errno);
  if (std::string_view(head).substr(0, static_cast<size_t>(n)) == kHead) return;
  throw IoError("create the trace", path, -1, EEXIST,
                "it holds something that is not a trace of zinc; choose another file");
}

files::FileDescriptor open_trace(const std::string& path, bool begins) {
  const int flags = O_WRONLY | O_APPEND | O_CLOEXEC | (begins ? O_CREAT : 0);
  files::FileDescriptor file(::open(path.c_str(), flags, 0644));
  if (!file) throw IoError(begins ? "create the trace" : "append to the trace", path, -1, errno);
  if (!begins) return file;
  require_own_file(file, path);
  // A file without a length, such as a pipe, cannot be cut.
  if (::ftruncate(file.get(), 0) != 0 && errno != EINVAL) {
    throw IoError("create the trace", path, -1, errno);
  }
  return file;
}

void append_integer(std::string& out, int64_t value) {
  std::array<char, 24> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  out.append(digits.data(), end);
}

// Nanoseconds as microseconds with three decimals.
void append_time(std::string& out, int64_t ns) {
  append_integer(out, ns / 1000);
  const auto rest = static_cast<int>(ns % 1000);
  const std::array<char, 4> decimals{'.', static_cast<char>('0' + rest / 100),
                                     static_cast<char>('0' + rest / 10 % 10),
                                     static_cast<char>('0' + rest % 10)};
  out.append(decimals.data(), decimals.size());
}

void append_member(std::string& out, std::string_view key, int64_t value) {
  out += ",\"";
  out += key;
  out += "\":";
  append_integer(out, value);
}

std::string with_mark(const std::string& path, const std::string& mark) {
  const fs::path of(path);
  return (of.parent_path() / (of.stem().string() + mark + of.extension().string())).string();
}

bool has_content(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && fs::file_size(path, error) > 0;
}

bool is_of_a_group(TraceKind kind) {
  switch (kind) {
    case TraceKind::gather:
    case TraceKind::release:
    case TraceKind::prefetch:
    case TraceKind::reduce:
    case TraceKind::publish:
    case TraceKind::swap_in:
    case TraceKind::swap_out:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::string trace_name(const std::string& path, std::string_view mark) {
  return with_mark(path, str('.', mark));
}

std::string free_trace_name(const std::string& path) {
  std::string name = path;
  for (int i = 2; has_content(name) || has_content(name + ".rank0"); ++i) {
    name = with_mark(path, str('-', i));
  }
  return name;
}

TraceWriter::TraceWriter(std::string path, const TraceWriterOptions& options)
    : path_(std::move(path)), rank_(options.rank), file_(open_trace(path_, options.begins)) {
  if (options.begins) buffer_ = kHead;
  add_lanes();
  flush();
}

void TraceWriter::drain(TraceRecorder& recorder) {
  for (const TraceEvent& event : recorder.take()) {
    add(event);
    if (buffer_.size() >= kFlushBytes) flush();
  }
  if (recorder.dropped() > dropped_) {
    dropped_ = recorder.dropped();
    begin_event('C', "memory", TraceRecorder::now_ns(), 0);
    buffer_ += ",\"name\":\"dropped events\",\"args\":{\"events\":";
    append_integer(buffer_, dropped_);
    buffer_ += "}}";
  }
  flush();
}

void TraceWriter::finish() {
  buffer_ += "\n]\n";
  flush();
}

void TraceWriter::add_lanes() {
  const auto describe = [this](std::string_view what, int lane, std::string_view key,
                               const std::string& value) {
    buffer_ += ",\n{\"name\":\"";
    buffer_ += what;
    buffer_ += str("\",\"ph\":\"M\",\"pid\":", rank_, ",\"tid\":", lane, ",\"args\":{\"", key,
                   "\":", value, "}}");
  };
  describe("process_name", 0, "name", str("\"rank ", rank_, "\""));
  describe("process_sort_index", 0, "sort_index", str(rank_));
  for (int lane = 0; lane <= kNumStreamRoles; ++lane) {
    const std::string_view name =
        lane == 0 ? std::string_view("host") : name_of(static_cast<StreamRole>(lane - 1));
    describe("thread_name", lane, "name", str("\"", name, "\""));
    describe("thread_sort_index", lane, "sort_index", str(lane));
  }
  for (const auto& [lane, name] : {std::pair{offload::kReadLane, "\"swap reads\""},
                                   std::pair{offload::kWriteLane, "\"swap writes\""},
                                   std::pair{kHostStreamLane, "\"host_work\""}}) {
    describe("thread_name", lane, "name", name);
    describe("thread_sort_index", lane, "sort_index", str(lane));
  }
}

void TraceWriter::begin_event(char phase, std::string_view category, int64_t at_ns, int lane) {
  buffer_ += ",\n{\"ph\":\"";
  buffer_ += phase;
  buffer_ += "\",\"cat\":\"";
  buffer_ += category;
  buffer_ += "\",\"ts\":";
  append_time(buffer_, at_ns);
  append_member(buffer_, "pid", rank_);
  append_member(buffer_, "tid", lane);
}

void TraceWriter::add(const TraceEvent& event) {
  if (event.kind == TraceKind::memory) {
    begin_event('C', "memory", event.begin_ns, 0);
    buffer_ += ",\"name\":";
    files::json::append_quoted(buffer_, str("live ", event.name));
    buffer_ += ",\"args\":{\"bytes\":";
    append_integer(buffer_, event.bytes);
    buffer_ += "}}";
    return;
  }
  add_slice(event);
  if (event.waited_for != 0) add_arrow(event);
  remember(event);
}

void TraceWriter::add_slice(const TraceEvent& event) {
  begin_event('X', name_of(event.kind), event.begin_ns, event.lane);
  buffer_ += ",\"dur\":";
  append_time(buffer_, event.end_ns - event.begin_ns);
  buffer_ += ",\"name\":";
  const bool of_a_group = is_of_a_group(event.kind);
  const bool moves_bytes = of_a_group || event.kind == TraceKind::exchange;
  if (moves_bytes) {
    files::json::append_quoted(buffer_, str(name_of(event.kind), " ", event.name));
  } else {
    files::json::append_quoted(buffer_, event.name);
  }
  buffer_ += ",\"args\":{\"id\":";
  append_integer(buffer_, static_cast<int64_t>(event.id));
  if (of_a_group) {
    buffer_ += ",\"group\":";
    files::json::append_quoted(buffer_, event.name);
  }
  if (moves_bytes) append_member(buffer_, "bytes", event.bytes);
  if (event.waited_for != 0) {
    append_member(buffer_, "waited_for", static_cast<int64_t>(event.waited_for));
  }
  if (event.span != 0) append_member(buffer_, "span", static_cast<int64_t>(event.span));
  if (event.step != 0) append_member(buffer_, "step", event.step);
  buffer_ += "}}";
}

// An arrow starts inside the slice that was waited for and ends at the slice that waited.
void TraceWriter::add_arrow(const TraceEvent& event) {
  auto found = recent_.find(event.waited_for);
  if (found == recent_.end()) {
    found = older_.find(event.waited_for);
    if (found == older_.end()) return;
  }
  const Place& from = found->second;
  const auto end = [this, &event] {
    buffer_ += ",\"name\":\"wait\"";
    append_member(buffer_, "id",
                  static_cast<int64_t>(event.id) * 1024 + static_cast<int64_t>(rank_));
  };
  begin_event('s', "wait", std::max(from.begin_ns, from.end_ns - 1), from.lane);
  end();
  buffer_ += '}';
  // A stall ends when it is let go; what ran behind it begins then.
  begin_event('f', "wait", event.kind == TraceKind::stall ? event.end_ns : event.begin_ns,
              event.lane);
  end();
  buffer_ += ",\"bp\":\"e\"}";
}

void TraceWriter::remember(const TraceEvent& event) {
  if (event.id == 0) return;
  if (recent_.size() >= kRemembered) {
    older_ = std::move(recent_);
    recent_ = {};
  }
  recent_.insert_or_assign(
      event.id, Place{.lane = event.lane, .begin_ns = event.begin_ns, .end_ns = event.end_ns});
}

void TraceWriter::flush() {
  std::string_view rest = buffer_;
  while (!rest.empty()) {
    const ssize_t written = ::write(file_.get(), rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw IoError("write", path_, -1, written < 0 ? errno : 0);
    rest.remove_prefix(static_cast<size_t>(written));
  }
  buffer_.clear();
}

}  // namespace zinc::train
