#include "offload/storage.h"

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "core/allocator.h"
#include "core/error.h"
#include "offload/operation.h"
#include "offload/storage_worker.h"

namespace zinc::offload {

struct Storage::Shared {
  StorageOptions options;
  std::shared_ptr<Progress> progress = std::make_shared<Progress>();
  std::vector<std::unique_ptr<Worker>> workers;
  std::atomic<size_t> next_worker{0};
};

Storage::Storage(const StorageOptions& options, const QueueFactory& make_queue)
    : shared_(std::make_unique<Shared>()) {
  require(options.block_size > 0 && options.block_size % kIoAlignment == 0,
          "storage: block_size must be a positive multiple of ", kIoAlignment, ", not ",
          options.block_size);
  require(options.queue_depth >= 1 && options.threads >= 1,
          "storage: queue_depth and the number of threads must be positive");
  shared_->options = options;
  for (int i = 0; i < options.threads; ++i) {
    shared_->workers.push_back(
        std::make_unique<Worker>(options, make_queue(options), shared_->progress));
  }
}

Storage::~Storage() {
  for (std::unique_ptr<Worker>& worker : shared_->workers) Worker::end(std::move(worker));
}

IoHandle Storage::read(const File& file, int64_t offset, std::span<std::byte> data,
                       Checksum checksum) {
  return start(IoKind::read, file, offset, data.data(), static_cast<int64_t>(data.size()),
               checksum);
}

IoHandle Storage::write(const File& file, int64_t offset, std::span<const std::byte> data,
                        Checksum checksum) {
  // The system's calls take the memory of both kinds through one pointer; a write only reads it.
  return start(IoKind::write, file, offset, const_cast<std::byte*>(data.data()),
               static_cast<int64_t>(data.size()), checksum);
}

IoHandle Storage::start(IoKind kind, const File& file, int64_t offset, std::byte* data,
                        int64_t bytes, Checksum checksum) {
  const auto alignment = static_cast<uint64_t>(file.alignment());
  require(offset >= 0, "storage: offset ", offset, " of '", file.path(), "'");
  require((reinterpret_cast<uintptr_t>(data) | static_cast<uint64_t>(offset) |
           static_cast<uint64_t>(bytes)) %
                  alignment ==
              0,
          "storage: address, offset ", offset, " and size ", bytes, " for '", file.path(),
          "' must be multiples of ", file.alignment());
  if (bytes == 0) return {};
  const int64_t block = shared_->options.block_size;
  auto operation = std::make_shared<IoHandle::Operation>(
      kind, file, offset, bytes, shared_->options.deadline, shared_->progress);
  if (checksum == Checksum::crc32c) operation->expect_checksums(block);
  const auto workers = static_cast<int64_t>(shared_->workers.size());
  const int64_t blocks = (bytes + block - 1) / block;
  const int64_t share = (blocks + workers - 1) / workers * block;
  // Small transfers take turns.
  size_t worker = shared_->next_worker++;
  for (int64_t begin = 0; begin < bytes; begin += share, ++worker) {
    shared_->workers[worker % shared_->workers.size()]->give(
        {.operation = operation,
         .data = data + begin,
         .bytes = std::min(share, bytes - begin),
         .offset = offset + begin});
  }
  return IoHandle(std::move(operation));
}

std::unique_ptr<Storage> make_aio_storage(const StorageOptions& options) {
  auto storage = std::make_unique<Storage>(
      options, [](const StorageOptions& o) { return make_aio_queue(o.queue_depth); });
  storage->way_ = "libaio";
  return storage;
}

std::unique_ptr<Storage> make_posix_storage(const StorageOptions& options) {
  StorageOptions pool = options;
  pool.threads = static_cast<int>(std::min<int64_t>(int64_t{options.threads} * options.queue_depth,
                                                    std::max(kMostPosixThreads, 1)));
  pool.queue_depth = 1;
  return std::make_unique<Storage>(pool, [](const StorageOptions&) { return make_posix_queue(); });
}

std::unique_ptr<Storage> make_storage(const StorageOptions& options) {
  std::string reason = "this build is without libaio";
  if (has_aio()) {
    try {
      return make_aio_storage(options);
    } catch (const IoError& error) {
      reason = error.what();
    }
  }
  auto storage = make_posix_storage(options);
  storage->way_ += ", because " + reason;
  return storage;
}

}  // namespace zinc::offload
