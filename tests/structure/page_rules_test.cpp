// The rules of pages on planted pages that break them.
#include "tests/structure/page_rules.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace zinc::structure {
namespace page_rules_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kLong(121, 'x');
const std::string kFive =
    "## Questions that this page answers\n\n- A? 1.\n- B? 2.\n- C? 3.\n  More.\n- D? 4.\n- E? 5.\n";

std::vector<std::string> problems_of(std::string path, std::string_view text) {
  std::vector<std::string> found;
  for (const Problem& problem : check_pages({parse_page(std::move(path), text)})) {
    found.push_back(to_string(problem));
  }
  return found;
}

TEST(PageColumns, LongLineOfText_IsNamedWithFileAndLine) {
  EXPECT_THAT(problems_of("core/README.md", "# core\n\n" + kLong + "\n"),
              ElementsAre("core/README.md:3: page_columns: 121 columns; 120 are the limit"));
  EXPECT_THAT(problems_of("core/README.md", std::string(120, 'x') + "\n"), IsEmpty());
  EXPECT_THAT(problems_of("core/README.md", "- " + kLong + "\n"), ElementsAre(HasSubstr(":1:")));
}

TEST(PageColumns, CharactersCountAndNotBytes) {
  std::string text;
  for (int i = 0; i < 120; ++i) text += "\u00e9";
  EXPECT_THAT(problems_of("core/README.md", text), IsEmpty());
  EXPECT_THAT(problems_of("core/README.md", text + "\u00e9"), ElementsAre(HasSubstr("121")));
}

TEST(PageColumns, TablesCodeCommentsAndLinksMayBeLong) {
  for (const std::string& text :
       {"| " + kLong + " |\n", "   | " + kLong + " |\n", "```sh\n" + kLong + "\n```\n",
        "   ```\n" + kLong + "\n   ```\n", "<!-- before the snippet:\n" + kLong + "\n-->\n",
        "[a](" + kLong + ")\n", "<https://a.b/" + kLong + ">\n"}) {
    EXPECT_THAT(problems_of("core/README.md", text), IsEmpty()) << text;
  }
}

TEST(PageColumns, TextBehindABlockIsTextAgain) {
  EXPECT_THAT(problems_of("core/README.md", "```\nx\n```\n" + kLong + "\n"),
              ElementsAre(HasSubstr("core/README.md:4:")));
  EXPECT_THAT(problems_of("core/README.md", "<!-- x -->\n" + kLong + "\n"),
              ElementsAre(HasSubstr("core/README.md:2:")));
}

TEST(PageIndex, APageWithoutALink_IsNamed) {
  const auto problems = [](const std::string& front, const std::string& index) {
    std::vector<std::string> found;
    for (const Problem& problem :
         check_pages({parse_page("README.md", front), parse_page("docs/README.md", index + kFive),
                      parse_page("docs/a.md", kFive)})) {
      found.push_back(to_string(problem));
    }
    return found;
  };
  EXPECT_THAT(problems("[all](docs/README.md)\n", "[a](a.md#part)\n"), IsEmpty());
  EXPECT_THAT(
      problems("[all](docs/README.md)\n", "[b](b.md)\n"),
      ElementsAre("docs/README.md:1: page_index: has no link to docs/a.md: every page is two "
                  "links from README.md"));
  EXPECT_THAT(problems("none\n", "[a](a.md)\n"),
              ElementsAre(HasSubstr("README.md:1: page_index: has no link to docs/README.md")));
}

TEST(PageQuestions, PageThatEndsWithFivePasses) {
  EXPECT_THAT(problems_of("docs/a.md", "# A\n\n" + kFive), IsEmpty());
}

TEST(PageQuestions, MissingTooFewOrNotAtTheEnd_IsCaught) {
  EXPECT_THAT(problems_of("docs/a.md", "# A\n"),
              ElementsAre(HasSubstr("docs/a.md:1: page_questions: ends without its section")));
  EXPECT_THAT(problems_of("docs/a.md", "# A\n\n" + kFive + "\n## More\n"),
              ElementsAre(HasSubstr("ends without its section")));
  EXPECT_THAT(problems_of("docs/a.md", kFive.substr(0, kFive.rfind("- "))),
              ElementsAre(HasSubstr("4 questions with answers; 5 are the least")));
}

TEST(PageQuestions, GeneratedPageAndReadmesNeedNone) {
  EXPECT_THAT(problems_of("docs/config.md", "# Configuration\n"), IsEmpty());
  EXPECT_THAT(problems_of("core/README.md", "# core\n"), IsEmpty());
}

TEST(Pages, AreThoseOfDocsAndEveryReadme) {
  const std::filesystem::path root =
      std::filesystem::temp_directory_path() / ("pages-" + std::to_string(::getpid()));
  for (const char* path : {"README.md", "docs/a.md", "docs/a.txt", "core/README.md", "core/a.md",
                           "data/examples/README.md", "build/README.md"}) {
    std::filesystem::create_directories((root / path).parent_path());
    std::ofstream(root / path) << "# A\n";
  }
  std::vector<std::string> found;
  for (const Page& page : load_pages(root)) found.push_back(page.path);
  std::filesystem::remove_all(root);
  EXPECT_THAT(found,
              ElementsAre("README.md", "core/README.md", "data/examples/README.md", "docs/a.md"));
}

}  // namespace page_rules_test
}  // namespace zinc::structure
