#include "files/nearest_path.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/files/scratch_folder.h"

namespace zinc::files {
namespace nearest_path_test {

TEST(NearestPath, ReplacesTheFirstNameThatDoesNotExist) {
  const ScratchFolder folder;
  folder.write("models/config.json", "{}");
  folder.write("text.txt", "x");
  EXPECT_EQ(nearest_path(folder / "modles/config.json"), folder / "models/config.json");
  EXPECT_EQ(nearest_path(folder / "models/confg.json"), folder / "models/config.json");
  EXPECT_EQ(nearest_path(folder / "modles/confg.json"), folder / "models/confg.json");
  EXPECT_EQ(nearest_path(folder / "text.txt"), "") << "it exists";
  EXPECT_EQ(nearest_path(folder / "something else"), "") << "nothing is near";
  EXPECT_EQ(nearest_path(""), "");
}

TEST(NearestPath, StandsInTheMessage) {
  const ScratchFolder folder;
  folder.write("text.txt", "x");
  EXPECT_EQ(no_such_path("file", folder / "txet.txt"),
            "there is no file '" + (folder / "txet.txt") + "'; did you mean '" +
                (folder / "text.txt") + "'?");
  EXPECT_EQ(no_such_path("folder", folder / "runs"),
            "there is no folder '" + (folder / "runs") + "'");
}

}  // namespace nearest_path_test
}  // namespace zinc::files
