// The parts of recovery. Each is a class with a header of its own, and finds the others here.
//
// Recoverer makes one for each interface. Threads: the interface's.
#pragma once

#include "uct_mp/recover/asking.h"
#include "uct_mp/recover/demand.h"
#include "uct_mp/recover/exchange.h"
#include "uct_mp/recover/failure.h"
#include "uct_mp/recover/jobs.h"
#include "uct_mp/recover/joining.h"
#include "uct_mp/recover/liveness.h"
#include "uct_mp/recover/migration.h"
#include "uct_mp/recover/packet_numbers.h"
#include "uct_mp/recover/phases.h"
#include "uct_mp/recover/ports.h"
#include "uct_mp/recover/rail_events.h"
#include "uct_mp/recover/renewal.h"
#include "uct_mp/recover/reopening.h"
#include "uct_mp/recover/replay.h"
#include "uct_mp/recover/reports.h"
#include "uct_mp/recover/watchdog.h"

namespace ucx_mp::recover {

struct Members {
    explicit Members(Core& core)
        : reports(core), phases(core, reports), asking(core, phases), failure(core, *this), rail_events(core, *this),
          jobs(core), exchange(core, *this), numbers(core), joining(core, *this), demand(core, *this),
          reopening(core, *this), renewal(core, *this), migration(core, *this), watchdog(core, *this),
          replay(core, *this), liveness(core, *this) {}
    Members(const Members&) = delete;

    Ports ports;
    Reports reports;
    Phases phases;
    Asking asking;
    Failure failure;
    RailEvents rail_events;
    Jobs jobs;
    Exchange exchange;
    PacketNumbers numbers;
    Joining joining;
    Demand demand;
    Reopening reopening;
    Renewal renewal;
    Migration migration;
    Watchdog watchdog;
    Replay replay;
    Liveness liveness;
};

} // namespace ucx_mp::recover
