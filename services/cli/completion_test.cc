#include "services/cli/completion.h"

#include <CLI/CLI.hpp>
#include <gmock/gmock.h>

namespace troupe::services {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::StartsWith;

CompletionWords Words() {
  CLI::App app{"", "prog"};
  static int64_t number = 0;
  CLI::App* policy = app.add_subcommand("policy", "");
  policy->add_subcommand("add", "")->add_option("--copy-of,-c", number, "");
  app.add_subcommand("train", "")->add_option("config", number, "");
  return CompletionWordsOf(app);
}

TEST(CompletionTest, WordsOfEachCommand) {
  EXPECT_THAT(
      Words(),
      ElementsAre(Pair("", ElementsAre("policy", "train", "--help")), Pair("policy", ElementsAre("add", "--help")),
                  Pair("policy add", ElementsAre("--help", "--copy-of")), Pair("train", ElementsAre("--help"))));
}

TEST(CompletionTest, AScriptForEachShell) {
  const std::string bash = *CompletionScript("bash", "prog", Words());
  EXPECT_THAT(bash, StartsWith("_prog() {\n"));
  EXPECT_THAT(bash, HasSubstr("\n    'policy add') echo '--help --copy-of' ;;\n"));
  EXPECT_THAT(bash, HasSubstr("\ncomplete -o filenames -F _prog prog\n"));
  EXPECT_THAT(*CompletionScript("zsh", "prog", Words()), HasSubstr("bashcompinit\n" + bash));
  const std::string fish = *CompletionScript("fish", "prog", Words());
  EXPECT_THAT(fish, HasSubstr("complete -c prog -n '__fish_use_subcommand' -f -a train\n"));
  EXPECT_THAT(fish, HasSubstr("complete -c prog -n '__fish_seen_subcommand_from policy; and "
                              "__fish_seen_subcommand_from add' -l copy-of\n"));
  EXPECT_EQ(CompletionScript("sh", "prog", Words()).status().message(), "got the shell sh, expected bash, zsh or fish");
}

}  // namespace
}  // namespace troupe::services
