/* The subcommands.  A new one is one file and one line here. */
#include "cli/cli.h"

const struct command *const command_list[] = {&train_command,   &eval_command,   &generate_command,
                                              &inspect_command, &verify_command, &convert_command,
                                              &check_command,   &plan_command,   NULL};
