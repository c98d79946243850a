#include "offload/input_places.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

namespace zinc::offload {
namespace input_places_test {

constexpr int64_t kBytes = 1000;  // places begin at multiples of 256

int64_t live(Context& context) { return context.allocator().report().at(Tier::device).live; }

TEST(InputPlaces, LieSideBySideInOneBlock) {
  Context context(ContextOptions{});
  InputPlaces places(context, Tier::device, 3);
  std::vector<InputPlaces::Memory> taken;
  for (int i = 0; i < 3; ++i) taken.push_back(places.take(kBytes));
  for (int i = 1; i < 3; ++i) {
    EXPECT_EQ(static_cast<std::byte*>(taken[static_cast<size_t>(i)].data) -
                  static_cast<std::byte*>(taken[0].data),
              1024 * i);
  }
  EXPECT_EQ(live(context), 3 * 1024);
}

TEST(InputPlaces, AreKeptAndHandedOutAgain) {
  Context context(ContextOptions{});
  InputPlaces places(context, Tier::device, 2);
  InputPlaces::Memory first = places.take(kBytes);
  const void* const data = first.data;
  const InputPlaces::Memory second = places.take(kBytes);
  first.owner.reset();
  EXPECT_EQ(live(context), 2 * 1024);
  EXPECT_EQ(places.take(kBytes).data, data);
}

TEST(InputPlaces, OfALargerSize_TakeTheRoomOfThoseThatNobodyHas) {
  Context context(ContextOptions{});
  InputPlaces places(context, Tier::device, 2);
  InputPlaces::Memory small = places.take(kBytes);
  InputPlaces::Memory larger = places.take(4 * kBytes);  // the small one is still there
  EXPECT_EQ(live(context), 2 * 4096 + 2 * 1024);
  small.owner.reset();
  const InputPlaces::Memory other = places.take(4 * kBytes);
  EXPECT_EQ(live(context), 2 * 4096);
  EXPECT_NE(other.data, larger.data);
}

TEST(InputPlaces, AreTakenByInputsOfAnySize) {
  Context context(ContextOptions{});
  InputPlaces places(context, Tier::device, 3, 4 * kBytes);
  std::vector<InputPlaces::Memory> taken;
  for (const int64_t bytes : {kBytes, 4 * kBytes, 2 * kBytes}) {
    taken.push_back(places.take(bytes));
    EXPECT_EQ(live(context), 3 * 4096);
  }
  taken.push_back(places.take(kBytes));  // beyond their number: a row like the first
  EXPECT_EQ(live(context), 6 * 4096);
}

TEST(InputPlaces, BeyondTheirNumber_ComeInASecondBlock) {
  Context context(ContextOptions{});
  InputPlaces places(context, Tier::device, 1);
  const InputPlaces::Memory first = places.take(kBytes);
  const InputPlaces::Memory second = places.take(kBytes);
  EXPECT_NE(first.data, second.data);
  EXPECT_EQ(live(context), 2 * 1024);
}

TEST(InputPlaces, MayOutliveWhatHandedThemOut) {
  Context context(ContextOptions{});
  InputPlaces::Memory place;
  {
    InputPlaces places(context, Tier::device, 2);
    place = places.take(kBytes);
  }
  EXPECT_EQ(live(context), 2 * 1024);
  place.owner.reset();
  EXPECT_EQ(live(context), 0);
}

TEST(InputPlaces, WithoutANumber_AreBlocksOfTheirOwn) {
  Context context(ContextOptions{});
  InputPlaces places(context, Tier::pinned_host, 0);
  EXPECT_FALSE(places.contiguous());
  InputPlaces::Memory place = places.take(kBytes);
  EXPECT_EQ(context.allocator().report().at(Tier::pinned_host).live, 1024);
  place.owner.reset();
  EXPECT_EQ(context.allocator().report().at(Tier::pinned_host).live, 0);
}

}  // namespace input_places_test
}  // namespace zinc::offload
