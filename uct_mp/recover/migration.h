// Automatic path migration (APM; IB specification 17.2.8): a queue pair of mp_rc changes to an alternate route, and
// later back to its own.
//
// Each queue pair has an alternate route loaded. The adapter changes to it by itself when its retries are used up, or
// we tell it to when a port is down or nothing comes through. Recovery sends nothing again then. Without UCX_MP_APM
// none of this happens.
//
// Callers: the handshake for the first route; RailEvents and Watchdog, before they give a path up; JobRunner.
// Threads: the interface's; load_first_alternate() also the handshake's, with the lock held.
#pragma once

#include "uct_mp/recover/used.h"

namespace ucx_mp::recover {

struct Members;

// The path fails. When it is made anew, it has its own route again.
void forget_migration(Core& core, Channel& channel, PathIndex path);

class Migration {
public:
    Migration(Core& core, Members& all) : core_(core), all_(all) {}

    // -- Loading a route. Failing to is not fatal: Path::loaded says whether the adapter has taken it
    void load_first_alternate(connect::Connection& connection, PathIndex path, Path& sub);
    void load_alternate(const connect::Connection& connection, PathIndex path, Path& sub);
    // Posts an empty write: the adapters exchange their migration states in the headers of packets.
    void exchange_migration(Channel& channel, PathIndex path);

    // -- Migrating
    // True: the path may migrate instead of failing. False after it has been told to, until something has completed.
    [[nodiscard]] bool may_migrate(const Channel& channel, PathIndex path) const;
    void tell_to_migrate(Channel& channel, PathIndex path, const char* cause); // adds a job
    // Handles device events about queue pairs that have migrated.
    void take_migrations();

    // -- Going back to its own route
    void go_back(Channel& channel, PathIndex path, unsigned rail); // our port `rail` is up again
    void home_answers(Channel& channel, PathIndex path);           // a probe over its own route was answered

    // -- What others read
    std::uint32_t seen_migrations[verbs::kMaxDevices] = {}; // events handled so far, by device

private:
    void has_migrated(Channel& channel, PathIndex path);
    void probe_home(Channel& channel, PathIndex path);

    Core& core_;
    Members& all_;
};

} // namespace ucx_mp::recover
