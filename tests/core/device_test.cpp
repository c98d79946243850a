#include "core/device.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "core/error.h"

namespace zinc {
namespace device_test {

TEST(Device, Text_RoundTrips) {
  for (const char* text : {"cpu", "cuda:0", "cuda:7", "cuda:32767"}) {
    EXPECT_EQ(to_string(parse_device(text)), text);
  }
  EXPECT_EQ(to_string(parse_device("cuda")), "cuda:0");
  EXPECT_EQ(to_string(Device{.kind = DeviceKind::cuda, .index = 1, .meta = true}), "meta(cuda:1)");
  EXPECT_EQ(to_string(Device{.meta = true}), "meta(cpu)");
}

TEST(Device, BadText_IsRefusedByName) {
  for (const char* text : {"", "gpu", "cuda:", "cuda:-1", "cuda:1x", "cuda: 1", "cuda:32768", "CPU",
                           "cpu:0", "meta"}) {
    EXPECT_THROW(parse_device(text), InvalidArgument) << text;
  }
  try {
    parse_device("gpu");
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(std::string(error.what()), "device must be cpu, cuda or cuda:<index>, not 'gpu'");
  }
}

TEST(Device, TiersAndLabels_HaveDistinctNames) {
  std::set<std::string> names;
  for (int i = 0; i < kNumTiers; ++i) names.insert(to_string(static_cast<Tier>(i)));
  for (int i = 0; i < kNumLabels; ++i) names.insert(to_string(static_cast<Label>(i)));
  EXPECT_EQ(names.size(), static_cast<size_t>(kNumTiers + kNumLabels));
  EXPECT_EQ(names.count("?"), 0u);
}

}  // namespace device_test
}  // namespace zinc
