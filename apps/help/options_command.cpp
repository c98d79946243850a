// zinc options: docs/options.md, every option of every verb.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "apps/command.h"
#include "apps/help/help_text.h"
#include "core/exit_codes.h"

namespace zinc::apps {
namespace {

constexpr const char* kPageBegin = R"(# Every option of every verb

`zinc options` prints this page; `zinc VERB --help` prints one verb's part of it.

```sh
zinc train --help                    # the options of a run, those that most runs need first
zinc options | grep -- --eval        # where a word stands
```

| you want | see |
|---|---|
| whole commands with whole configurations | [recipes.md](recipes.md) |
| the keys of the file that `--config` names | [config.md](config.md), or `zinc config keys` |
| what the options of a run mean together | [training.md](training.md), [data.md](data.md), [tuning.md](tuning.md) |

An option with two names may be given by either: the second is that of transformers or DeepSpeed. `...` behind a
value: several may follow. Options of `zinc train` win over the file of `--config`; a flag that contradicts a fixed
value of the file is an error, and `"auto"` in the file takes the flag.
)";

constexpr const char* kPageEnd = R"(
## Questions that this page answers

- Which options does `zinc train` need? `--config`, `--data`, `--out`, one of `--steps` and `--epochs`, one of
  `--model` and `--init`.
- What is an option's default? It stands behind the text, where there is one; options of the configuration have
  that of [config.md](config.md).
- I misspelt an option. The message names the nearest one.
- Where are the names of models? `zinc train --model list` fails with all of them; [families.md](families.md) has
  what each is.
- Is this page current? A test compares it with what `zinc options` prints.
)";

}  // namespace

void add_options_command(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("options", "Every option of every verb: docs/options.md");
  verb->callback([&app, &action] {
    action = [&app] {
      fmt::print("{}{}{}", kPageBegin, options_tables(app), kPageEnd);
      return static_cast<int>(kDone);
    };
  });
}

}  // namespace zinc::apps
