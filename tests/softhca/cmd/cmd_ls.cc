// softhca ls
#include <CLI/CLI.hpp>

#include <cstdio>
#include <memory>

#include "cmd/commands.h"
#include "session/client.h"

namespace softhca {

void add_ls_command(CLI::App& app) {
    auto session = std::make_shared<std::string>();
    CLI::App* ls = app.add_subcommand("ls", "List sessions, their processes and what is down");
    ls->add_option("--session", *session, "Only this one (default: all of this user)");
    ls->callback([session] {
        if (!session->empty()) {
            std::printf("%s\n", send_command(*session, "ls").c_str());
            return;
        }
        for (const auto& name : running_sessions()) {
            try {
                std::printf("%s\n", send_command(name, "ls").c_str());
            } catch (const std::exception&) { // it has just ended
            }
        }
    });
}

} // namespace softhca
