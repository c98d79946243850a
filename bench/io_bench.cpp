#include "bench/io_bench.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>

#include "bench/samples.h"
#include "core/error.h"
#include "offload/file.h"

namespace zinc::bench {
namespace {

using offload::Checksum;
using offload::File;
using offload::IoHandle;
using offload::Storage;

constexpr size_t kFioReadField = 6;    // KiB/s, in fio's terse output of version 3
constexpr size_t kFioWriteField = 47;  // KiB/s

class Memory {
 public:
  explicit Memory(int64_t bytes)
      : bytes_(static_cast<size_t>(bytes)),
        data_(static_cast<std::byte*>(std::aligned_alloc(4096, bytes_)), std::free) {
    std::fill_n(data_.get(), bytes_, std::byte{0x5a});
  }
  std::span<std::byte> part(int64_t begin, int64_t bytes) const {
    return {data_.get() + begin, static_cast<size_t>(bytes)};
  }

 private:
  size_t bytes_;
  std::unique_ptr<std::byte, void (*)(void*)> data_;
};

// A file with a name, for a program that opens it again.
class NamedFile {
 public:
  NamedFile(const std::string& directory, int64_t bytes)
      : path_(fmt::format("{}/.zinc-bench-io-{}", directory, ::getpid())),
        file_(offload::open_named(path_)) {
    offload::reserve(file_, bytes);
  }
  ~NamedFile() { ::unlink(path_.c_str()); }
  NamedFile(const NamedFile&) = delete;
  NamedFile& operator=(const NamedFile&) = delete;
  const std::string& path() const { return path_; }
  const File& file() const { return file_; }

 private:
  std::string path_;
  File file_;
};

enum class Mode : uint8_t { read, write, mixed };

double run_zinc(Storage& storage, const File& file, const Memory& memory, int64_t bytes, Mode mode,
                Checksum checksum = Checksum::none) {
  const double seconds = seconds_of([&] {
    if (mode == Mode::read) {
      storage.read(file, 0, memory.part(0, bytes), checksum).wait();
    } else if (mode == Mode::write) {
      storage.write(file, 0, memory.part(0, bytes), checksum).wait();
    } else {
      IoHandle in = storage.read(file, 0, memory.part(0, bytes / 2));
      IoHandle out = storage.write(file, bytes / 2, memory.part(bytes / 2, bytes / 2));
      in.wait();
      out.wait();
    }
  });
  return static_cast<double>(bytes) / seconds;
}

std::optional<double> run_fio(const std::string& path, const offload::StorageOptions& options,
                              int64_t bytes, bool write) {
  const int64_t share = bytes / options.threads;
  const std::string command = fmt::format(
      "fio --name=zinc --filename='{}' --rw={} --bs={} --iodepth={} --numjobs={} --thread "
      "--size={} --offset_increment={} --direct=1 --ioengine=libaio --group_reporting "
      "--output-format=terse --terse-version=3 2>/dev/null",
      path, write ? "write" : "read", options.block_size, options.queue_depth, options.threads,
      share, share);
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
  if (pipe == nullptr) return std::nullopt;
  std::string text;
  char buffer[512];
  while (std::fgets(buffer, sizeof buffer, pipe.get()) != nullptr) text += buffer;
  const size_t field = write ? kFioWriteField : kFioReadField;
  size_t at = 0;
  for (size_t i = 0; i < field; ++i) {
    at = text.find(';', at);
    if (at == std::string::npos) return std::nullopt;
    ++at;
  }
  return std::strtod(text.c_str() + at, nullptr) * 1024.0;
}

IoBenchResult measure(const IoBenchOptions& options, const offload::StorageOptions& shape,
                      const NamedFile& file, const Memory& memory, bool fio) {
  const auto storage = offload::make_storage(shape);
  Samples read, write, mixed, checked_read, checked_write, fio_read, fio_write;
  const int64_t bytes = options.file_bytes;
  const auto beside = [&](Samples& samples, bool writes) {
    if (!fio) return;
    if (const auto rate = run_fio(file.path(), shape, bytes, writes)) samples.add(*rate);
  };
  for (int i = 0; i < options.repetitions; ++i) {
    const auto run = [&](Mode mode, Checksum checksum = Checksum::none) {
      return run_zinc(*storage, file.file(), memory, bytes, mode, checksum);
    };
    write.add(run(Mode::write));
    checked_write.add(run(Mode::write, Checksum::crc32c));
    beside(fio_write, true);
    read.add(run(Mode::read));
    checked_read.add(run(Mode::read, Checksum::crc32c));
    beside(fio_read, false);
    mixed.add(run(Mode::mixed));
  }
  IoBenchResult result{
      .options = shape,
      .zinc = {.read = read.median(), .write = write.median(), .mixed = mixed.median()},
      .checked = {.read = checked_read.median(), .write = checked_write.median()},
      .fio = {}};
  if (fio_read.count() > 0 && fio_write.count() > 0) {
    result.fio = IoRates{.read = fio_read.median(), .write = fio_write.median()};
  }
  return result;
}

double gigabytes(double rate) { return rate / 1e9; }

}  // namespace

double IoRates::worst() const { return std::min({read, write, mixed}); }

const IoBenchResult& IoBenchReport::best() const {
  require(!results.empty(), "io bench: nothing was measured");
  return *std::max_element(
      results.begin(), results.end(),
      [](const IoBenchResult& a, const IoBenchResult& b) { return a.zinc.mixed < b.zinc.mixed; });
}

IoBenchReport run_io_bench(const IoBenchOptions& options,
                           const std::function<void(const IoBenchResult&)>& done) {
  require(options.file_bytes > 0 && options.file_bytes % (1 << 20) == 0,
          "io bench: the file must have whole MiB");
  const NamedFile file(options.directory, options.file_bytes);
  const Memory memory(options.file_bytes);
  const bool fio = options.fio && std::system("command -v fio >/dev/null 2>&1") == 0;
  // The first write into reserved space also changes the file system's own records.
  run_zinc(*offload::make_storage({}), file.file(), memory, options.file_bytes, Mode::write);
  IoBenchReport report{.aio = offload::has_aio(), .direct = file.file().is_direct(), .results = {}};
  for (const int64_t block_size : options.block_sizes) {
    for (const int queue_depth : options.queue_depths) {
      for (const int threads : options.threads) {
        const offload::StorageOptions shape{
            .block_size = block_size, .queue_depth = queue_depth, .threads = threads};
        report.results.push_back(measure(options, shape, file, memory, fio));
        if (done) done(report.results.back());
      }
    }
  }
  return report;
}

std::string io_table_header() {
  return fmt::format(
      "{:>10} {:>6} {:>8} | {:>8} {:>8} {:>8} GB/s | {:>6} {:>6} | {:>8} {:>8} GB/s | {:>6} "
      "{:>6}\n",
      "block KiB", "depth", "threads", "read", "write", "mixed", "r crc", "w crc", "fio read",
      "write", "r/fio", "w/fio");
}

std::string io_table_row(const IoBenchResult& result) {
  std::string row = fmt::format(
      "{:>10} {:>6} {:>8} | {:>8.2f} {:>8.2f} {:>8.2f}      | {:>6.3f} {:>6.3f} |",
      result.options.block_size >> 10, result.options.queue_depth, result.options.threads,
      gigabytes(result.zinc.read), gigabytes(result.zinc.write), gigabytes(result.zinc.mixed),
      result.checked.read / result.zinc.read, result.checked.write / result.zinc.write);
  if (!result.fio) return row + "\n";
  return row + fmt::format(" {:>8.2f} {:>8.2f}      | {:>6.3f} {:>6.3f}\n",
                           gigabytes(result.fio->read), gigabytes(result.fio->write),
                           result.zinc.read / result.fio->read,
                           result.zinc.write / result.fio->write);
}

std::string aio_section(const IoBenchReport& report) {
  const offload::StorageOptions& options = report.best().options;
  std::string text;
  if (!report.direct) text += "# this file system has no O_DIRECT: figures are of the page cache\n";
  if (!report.aio) text += "# this build has no libaio: a pool of threads was measured\n";
  return text + fmt::format(
                    "\"aio\": {{\"block_size\": {}, \"queue_depth\": {}, "
                    "\"intra_op_parallelism\": {}, \"single_submit\": {}, "
                    "\"overlap_events\": {}}}\n",
                    options.block_size, options.queue_depth, options.threads, options.single_submit,
                    options.overlap_events);
}

}  // namespace zinc::bench
