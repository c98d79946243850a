#include "core/processors.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace zinc {
namespace processors_test {

namespace fs = std::filesystem;

// A machine's /proc and /sys.
class ControlGroups : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "zinc-groups-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  const fs::path& root() const { return root_; }

 private:
  fs::path root_;
};

TEST_F(ControlGroups, None_LimitNothing) {
  EXPECT_FALSE(cpu_quota(root()).has_value());
  EXPECT_FALSE(memory_quota(root()).has_value());
}

TEST_F(ControlGroups, Unified_TheLeastOfTheGroupAndThoseAbove) {
  write("proc/self/cgroup", "0::/jobs/one\n");
  write("sys/fs/cgroup/jobs/cpu.max", "150000 100000\n");
  write("sys/fs/cgroup/jobs/one/cpu.max", "max 100000\n");
  write("sys/fs/cgroup/jobs/memory.max", "max\n");
  write("sys/fs/cgroup/jobs/one/memory.max", "1000000\n");
  EXPECT_EQ(cpu_quota(root()), 1.5);
  EXPECT_EQ(memory_quota(root()), 1000000);
  write("sys/fs/cgroup/jobs/one/cpu.max", "20000 40000\n");
  EXPECT_EQ(cpu_quota(root()), 0.5);
}

// A container is told the path of its group on the host, and sees the group as the root.
TEST_F(ControlGroups, Unified_InAContainerThatSeesItsGroupAsTheRoot) {
  write("proc/self/cgroup", "0::/docker/0123\n");
  write("sys/fs/cgroup/cpu.max", "200000 100000\n");
  EXPECT_EQ(cpu_quota(root()), 2);
}

TEST_F(ControlGroups, Legacy_HasAHierarchyForEachController) {
  write("proc/self/cgroup", "5:memory:/pod\n4:cpu,cpuacct:/pod/one\n0::/\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  write("sys/fs/cgroup/cpu,cpuacct/pod/cpu.cfs_quota_us", "300000\n");
  write("sys/fs/cgroup/cpu,cpuacct/pod/cpu.cfs_period_us", "100000\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/pod/memory.limit_in_bytes", "4096\n");
  EXPECT_EQ(cpu_quota(root()), 3);
  EXPECT_EQ(memory_quota(root()), 4096);
}

TEST_F(ControlGroups, NonsenseInFiles_LimitsNothing) {
  write("proc/self/cgroup", "0::/a\nnonsense\n::\n");
  write("sys/fs/cgroup/a/cpu.max", "0 100000\n");
  write("sys/fs/cgroup/cpu.max", "x\n");
  write("sys/fs/cgroup/a/memory.max", "\n");
  EXPECT_FALSE(cpu_quota(root()).has_value());
  EXPECT_FALSE(memory_quota(root()).has_value());
}

TEST(UsableProcessors, FollowTheAffinityOfTheThread) {
  cpu_set_t before, one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  EXPECT_GE(usable_processors(), 1);
  EXPECT_LE(usable_processors(), CPU_COUNT(&before));
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(usable_processors(), 1);
  ASSERT_EQ(::sched_setaffinity(0, sizeof before, &before), 0);
}

}  // namespace processors_test
}  // namespace zinc
