// The command line's side of a session: finding sessions, sending commands, looking at the counters.
#pragma once
#include <stdexcept>
#include <string>
#include <vector>

#include "core/segment.h"

namespace softhca {

// Names of this user's running sessions.
std::vector<std::string> running_sessions();
// `given`, else $SOFTHCA_SESSION, else the only one that runs. Throws std::runtime_error that lists what runs.
std::string choose_session(const std::string& given);
// Sends one command line to the keeper and returns its answer. Throws std::runtime_error with its error text.
std::string send_command(const std::string& session, const std::string& command);

// Read-only view of a session's memory. Does not keep the session alive. Throws std::runtime_error.
class Observer {
public:
    explicit Observer(const std::string& session);
    ~Observer();
    Observer(const Observer&) = delete;
    // The segment is not written through this; the accessors of Segment are not const.
    Segment& seg() { return *segment_; }
    [[nodiscard]] bool session_over();

private:
    int connection_ = -1;
    Segment* segment_ = nullptr;
};

} // namespace softhca
