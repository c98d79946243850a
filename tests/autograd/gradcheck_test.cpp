#include "tests/autograd/gradcheck.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "tests/autograd/gradcheck_rows.h"

namespace zinc::testing {
namespace gradcheck_test {

class Gradcheck : public ::testing::TestWithParam<GradcheckRow> {};

TEST_P(Gradcheck, Backward_MatchesCentralDifferences) { check_gradients(GetParam()); }

std::string row_name(const ::testing::TestParamInfo<GradcheckRow>& row) {
  std::string name = row.param.header + "_" + row.param.name;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Ops, Gradcheck, ::testing::ValuesIn(gradcheck_rows()), row_name);

// Tests run in the root of the source tree.
TEST(GradcheckTable, HasARowForEveryOp) {
  std::set<std::string> checked;
  for (const GradcheckRow& row : gradcheck_rows()) checked.insert(row.header);
  std::set<std::string> headers;
  for (const char* folder : {"autograd/ops", "autograd/functions"}) {
    ASSERT_TRUE(std::filesystem::is_directory(folder)) << "run from the root of the source tree";
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() == ".h") headers.insert(entry.path().stem().string());
    }
  }
  headers.erase("compare");  // masks have no gradient
  EXPECT_GE(headers.size(), 20u);
  EXPECT_EQ(headers, checked)
      << "every header in autograd/ops and functions needs a row in gradcheck_rows_*.cpp";
}

}  // namespace gradcheck_test
}  // namespace zinc::testing
