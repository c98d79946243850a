// apps/command.h: the verbs of the zinc command.
//
// Each verb has a file that adds a subcommand with its options to the parser. When the subcommand
// is chosen, parsing stores the work to do in `action`; main runs it and turns exceptions into a
// message and an exit code. Several of these files are compiled as one, so the names in them, such
// as those of their arguments, must differ.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace zinc::apps {

using Action = std::function<int()>;

inline constexpr int64_t kDefaultSequence = 256;  // tokens, or as many as the model has positions

void add_train_command(CLI::App& app, Action& action);
void add_generate_command(CLI::App& app, Action& action);
void add_chat_command(CLI::App& app, Action& action);
void add_report_command(CLI::App& app, Action& action);
void add_config_command(CLI::App& app, Action& action);
void add_plan_command(CLI::App& app, Action& action);
void add_trace_command(CLI::App& app, Action& action);
void add_evaluate_command(CLI::App& app, Action& action);
void add_launch_command(CLI::App& app, Action& action);
void add_bench_command(CLI::App& app, Action& action);
void add_tokenize_command(CLI::App& app, Action& action);
void add_data_command(CLI::App& app, Action& action);
void add_checkpoint_command(CLI::App& app, Action& action);
void add_adapter_command(CLI::App& app, Action& action);
void add_plot_command(CLI::App& app, Action& action);
void add_options_command(CLI::App& app, Action& action);

}  // namespace zinc::apps
