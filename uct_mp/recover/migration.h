// APM: queue pairs that change to another route by themselves, and go home.
//
// Threads: the interface's.
#pragma once

#include "uct_mp/recover/used.h"

namespace ucx_mp::recover {

class Recoverer;

class Migration {
public:
    Migration(Core& core, Recoverer& all) : core_(core), all_(all) {}
    void load_first_alternate(connect::Connection& connection, PathIndex path, Path& sub);
    void load_alternate(const connect::Connection& connection, PathIndex path, Path& sub);
    [[nodiscard]] bool may_migrate(const Channel& channel, PathIndex path) const;
    void tell_to_migrate(Channel& channel, PathIndex path, const char* cause);
    void migrate(Channel& channel, PathIndex path);
    void exchange_migration(Channel& channel, PathIndex path);
    void take_migrations();
    void forget_migration(Channel& channel, PathIndex path);
    void go_back(Channel& channel, PathIndex path, unsigned rail);
    void home_answers(Channel& channel, PathIndex path);
    std::uint32_t seen_migrations[verbs::kMaxDevices] = {};

private:
    void has_migrated(Channel& channel, PathIndex path);
    void turn_route(Channel& channel, PathIndex path);
    void probe_home(Channel& channel, PathIndex path);
    Core& core_;
    Recoverer& all_;
};

} // namespace ucx_mp::recover
