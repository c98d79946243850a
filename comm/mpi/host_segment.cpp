#include "comm/mpi/host_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"

namespace zinc::comm {
namespace {

class File {
 public:
  explicit File(int descriptor = -1) : descriptor_(descriptor) {}
  File(File&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  File& operator=(File&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

// The place of a rank and, from a group's first member, the place of its memory.
struct Address {
  int64_t process = 0;
  // namespace of process numbers: two containers may use the same numbers
  int64_t process_space = 0;
  uint64_t token = 0;  // the memory's last bytes hold it too
  int32_t file = -1;
  int32_t padding = 0;
};

constexpr int64_t kTokenBytes = 64;

int64_t process_space() {
  struct stat facts {};
  if (::stat("/proc/self/ns/pid", &facts) != 0) return 0;
  return static_cast<int64_t>(facts.st_ino);
}

std::shared_ptr<void> map_file(const File& file, int64_t bytes) {
  const auto length = static_cast<size_t>(bytes);
  void* memory = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return nullptr;
  return {memory, [length](void* mapped) { ::munmap(mapped, length); }};
}

std::byte* token_in(const std::shared_ptr<void>& memory, int64_t bytes) {
  return static_cast<std::byte*>(memory.get()) + bytes;
}

// The first member's part: memory, its file and the token. Null where the system has none.
std::shared_ptr<Segment> create(const SegmentShape& shape, File& file, Address& address) {
  const int64_t bytes = Segment::bytes_of(shape);
  file = File(::memfd_create("zinc ranks", MFD_CLOEXEC));
  if (file.get() < 0 || ::ftruncate(file.get(), bytes + kTokenBytes) != 0) return nullptr;
  if (::getrandom(&address.token, sizeof address.token, 0) != sizeof address.token) return nullptr;
  auto memory = map_file(file, bytes + kTokenBytes);
  if (memory == nullptr) return nullptr;
  std::memcpy(token_in(memory, bytes), &address.token, sizeof address.token);
  auto* begin = static_cast<std::byte*>(memory.get());
  auto segment = std::make_shared<Segment>(std::move(memory), begin, shape);
  segment->construct();
  address.file = file.get();
  return segment;
}

std::shared_ptr<Segment> open(const SegmentShape& shape, const Address& address) {
  const int64_t bytes = Segment::bytes_of(shape);
  if (address.file < 0 || address.process_space != process_space()) return nullptr;
  const std::string path = str("/proc/", address.process, "/fd/", address.file);
  const File file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct stat facts {};
  if (file.get() < 0 || ::fstat(file.get(), &facts) != 0) return nullptr;
  if (!S_ISREG(facts.st_mode) || facts.st_size != bytes + kTokenBytes) return nullptr;
  auto memory = map_file(file, bytes + kTokenBytes);
  // On another host the same numbers can name another job's memory.
  if (memory == nullptr ||
      std::memcmp(token_in(memory, bytes), &address.token, sizeof address.token) != 0) {
    return nullptr;
  }
  auto* begin = static_cast<std::byte*>(memory.get());
  return std::make_shared<Segment>(std::move(memory), begin, shape);
}

template <class T>
std::vector<T> agree_on(const Transport::Agree& agree, const T& mine) {
  const std::vector<std::byte> bytes = agree(std::as_bytes(std::span(&mine, 1)));
  std::vector<T> all(bytes.size() / sizeof(T));
  std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}

}  // namespace

std::shared_ptr<Segment> make_host_segment(const SplitPlan& plan, const Transport::Agree& agree) {
  const SegmentShape shape{.size = static_cast<int>(plan.members.size()),
                           .buffer_bytes = kHostBufferBytes};
  Address mine{.process = ::getpid(), .process_space = process_space()};
  File file;
  std::shared_ptr<Segment> segment;
  if (plan.index == 0) segment = create(shape, file, mine);
  const std::vector<Address> addresses = agree_on(agree, mine);
  if (plan.index > 0) {
    segment = open(shape, addresses[static_cast<size_t>(plan.members.front())]);
  }
  const std::vector<uint8_t> opened = agree_on(agree, uint8_t{segment != nullptr});
  for (const int member : plan.members) {
    if (opened[static_cast<size_t>(member)] == 0) return nullptr;
  }
  if (segment != nullptr) {
    segment->rank(plan.index).process.store(static_cast<int32_t>(mine.process));
  }
  return segment;
}

}  // namespace zinc::comm
