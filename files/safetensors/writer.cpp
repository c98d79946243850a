#include "files/safetensors/writer.h"

#include <algorithm>
#include <utility>

#include "core/convert.h"
#include "core/error.h"

namespace zinc::files {
namespace {

constexpr int64_t kWriteChunkBytes = int64_t{1} << 20;

std::span<const std::byte> bytes_of(ConstView view) {
  return {static_cast<const std::byte*>(view.data()), static_cast<size_t>(view.bytes())};
}

AtomicFile open_file(std::string path, int64_t bytes, WriterRole role) {
  switch (role) {
    case WriterRole::alone:
      break;
    case WriterRole::creator:
      return AtomicFile::create_shared(std::move(path), bytes);
    case WriterRole::joiner:
      return AtomicFile::open_shared(std::move(path));
  }
  return AtomicFile(std::move(path), bytes);
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(std::string path, std::span<const TensorSpec> tensors,
                                     const SafetensorsMetadata& metadata, WriterRole role)
    : role_(role),
      layout_(safetensors_layout(tensors, metadata)),
      file_(open_file(std::move(path), layout_.file_bytes, role)) {
  for (const TensorEntry& entry : layout_.tensors) {
    index_.emplace(entry.name, Progress{.entry = &entry, .written = {}});
  }
  if (role_ != WriterRole::joiner) file_.write(0, std::as_bytes(std::span(layout_.prefix)));
}

void SafetensorsWriter::mark(Progress& progress, int64_t begin, int64_t end) {
  auto& written = progress.written;
  auto next = written.lower_bound(begin);
  const auto previous = next == written.begin() ? written.end() : std::prev(next);
  const bool overlaps = (next != written.end() && next->first < end) ||
                        (previous != written.end() && previous->second > begin);
  require(!overlaps, "safetensors: elements [", begin, ", ", end, ") of ", progress.entry->name,
          " were written before");
  if (next != written.end() && next->first == end) {
    end = next->second;
    next = written.erase(next);
  }
  if (previous != written.end() && previous->second == begin) {
    previous->second = end;
  } else {
    written.emplace_hint(next, begin, end);
  }
}

void SafetensorsWriter::write(std::string_view name, int64_t begin, ConstView values) {
  const auto found = index_.find(name);
  require(found != index_.end(), "safetensors: ", path(), " has no tensor \"", name, "\"");
  const TensorEntry& entry = *found->second.entry;
  const int64_t count = values.numel();
  require(values.device() == kCpu && values.is_contiguous(),
          "safetensors: write from contiguous host memory, not ", values);
  require(begin >= 0 && count <= entry.shape.numel() - begin, "safetensors: elements [", begin,
          ", ", begin + count, ") of ", entry.name, " ", entry.shape);
  require(values.dtype() == *entry.dtype || (is_float(values.dtype()) && is_float(*entry.dtype)),
          "safetensors: ", entry.name, " is ", *entry.dtype, ", not ", values.dtype());
  if (count == 0) return;
  mark(found->second, begin, begin + count);
  num_written_ += count;

  const int64_t size = size_of(*entry.dtype);
  if (values.dtype() == *entry.dtype) {
    file_.write(entry.begin + begin * size, bytes_of(values));
    return;
  }
  const int64_t chunk = std::min(count, kWriteChunkBytes / size);
  std::vector<std::byte> buffer(static_cast<size_t>(chunk * size));
  const auto* source = static_cast<const std::byte*>(values.data());
  for (int64_t done = 0; done < count; done += chunk) {
    const int64_t n = std::min(chunk, count - done);
    const View converted(buffer.data(), *entry.dtype, Shape{n});
    convert_elements(ConstView(source + done * size_of(values.dtype()), values.dtype(), Shape{n}),
                     converted);
    file_.write(entry.begin + (begin + done) * size, bytes_of(converted));
  }
}

void SafetensorsWriter::commit() {
  if (role_ == WriterRole::alone) require_everything();
  file_.commit();
}

void SafetensorsWriter::require_everything() const {
  for (const auto& [name, progress] : index_) {
    const int64_t all = progress.entry->shape.numel();
    int64_t covered = 0;
    if (!progress.written.empty() && progress.written.begin()->first == 0) {
      covered = progress.written.begin()->second;
    }
    require(covered == all, "safetensors: ", path(), ": ", name, " was not written from element ",
            covered, " of ", all, " on");
  }
}

}  // namespace zinc::files
