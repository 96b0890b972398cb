// Automatic path migration (IB specification 17.2.8): queue pairs of mp_rc that change to another route, and go home.
//
// Each has another route loaded. The adapter goes there by itself, or is told to when a port is down or nothing comes
// through. Nothing is sent again then. Without UCX_MP_APM none of this happens.
//
// Callers: the handshake for the first route; RailEvents and Watchdog, before they give a path up; Jobs for commands.
// Threads: the interface's; load_first_alternate() also the handshake's, with the lock held.
#pragma once

#include "uct_mp/recover/used.h"

namespace ucx_mp::recover {

struct Members;

class Migration {
public:
    Migration(Core& core, Members& all) : core_(core), all_(all) {}

    // -- Loading a route. Not fatal: Path::loaded says whether the adapter has taken it
    void load_first_alternate(connect::Connection& connection, PathIndex path, Path& sub);
    void load_alternate(const connect::Connection& connection, PathIndex path, Path& sub);
    // An empty write tells the other side: packets say what has changed.
    void exchange_migration(Channel& channel, PathIndex path);

    // -- Migrating
    // Instead of failing? Once, until something has come through again.
    [[nodiscard]] bool may_migrate(const Channel& channel, PathIndex path) const;
    void tell_to_migrate(Channel& channel, PathIndex path, const char* cause); // adds a job
    void migrate(Channel& channel, PathIndex path);                            // the job
    // Takes up what device events tell of queue pairs that have migrated.
    void take_migrations();
    // The path fails: made anew, it has its own route again.
    void forget_migration(Channel& channel, PathIndex path);

    // -- Going home
    void go_back(Channel& channel, PathIndex path, unsigned rail); // our port `rail` is up again
    void home_answers(Channel& channel, PathIndex path);           // a probe over its own route has come through

    // -- What others read
    std::uint32_t seen_migrations[verbs::kMaxDevices] = {}; // events taken up, by device

private:
    void has_migrated(Channel& channel, PathIndex path);
    void turn_route(Channel& channel, PathIndex path);
    void probe_home(Channel& channel, PathIndex path);

    Core& core_;
    Members& all_;
};

} // namespace ucx_mp::recover
