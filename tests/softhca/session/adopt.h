// Sessions whose keeper and launchers have all been killed: their programs live on, and what the dead ones among them
// had stays in the session until somebody cleans up.
#pragma once
#include <string>
#include <vector>

namespace softhca {

// Starts a new keeper for each such session of this user; it cleans up after the dead and stays until the last program
// ends. One line for each, for people. Looks through /proc: some milliseconds. Any thread of a process without session.
//
// Not found: programs that have closed the descriptor of the session's memory, and sessions whose name another one has
// taken since.
std::vector<std::string> adopt_lost_sessions();

} // namespace softhca
