// A job in virtual time: an engine and windows of pml_glue's core on each node of a cluster, over the real transport.
#pragma once

#include <cstdlib>
#include <memory>
#include <vector>

#include "pml/sim_port.h"
#include "pml_glue/core/engine/engine.h"
#include "pml_glue/core/window/window.h"

namespace ucx_mp::sim {

class MpiJob;

// As the modules have them by default, but nobody is watched.
inline mp_config_t module_defaults(bool rendezvous_by_put = false) {
    return {.process = 0,
            .transports = nullptr,
            .local = nullptr,
            .eager_limit = MP_AUTO,
            .zero_copy = MP_AUTO,
            .hint_limit = 16384,
            .rendezvous_by_put = rendezvous_by_put,
            .burst = 0,
            .watch_interval = MP_NEVER,
            .watch_strangers = false};
}

// Programs are turns: each is called whenever its process may have something to do.
struct Process {
    Process(MpiJob& job, Cluster& cluster, unsigned rank, const mp_config_t& config, const mp_hooks_t& hooks)
        : job(job), rank(rank), node(cluster.node(rank)), port(cluster, rank), engine(port, config, hooks),
          windows(engine, port, hooks) {
        node.on_turn = [this] {
            const bool come = port.progress() != 0;
            if (engine.kept().in_thread) {
                const unsigned found = engine.progress_in_thread();
                (void)windows.progress();
                return come || found != 0;
            }
            const bool any = come | (engine.progress() != 0);
            (void)windows.progress(); // counts who waits, also in vain
            return turn && turn() ? true : any;
        };
    }
    Process(const Process&) = delete;
    glue::Peer& peer(unsigned rank) { return *engine.peer(rank); }
    // From now on it makes no call, and its turns are the progress thread's; or it calls again, and is told.
    void compute(bool computes) {
        engine.kept().in_thread = computes;
        if (!computes) engine.tell_kept();
    }

    MpiJob& job;
    const unsigned rank;
    Node& node;
    SimPort port;
    glue::Engine engine;
    glue::Windows windows;
    std::function<bool()> turn; // false: had nothing to do
};

class MpiJob {
public:
    // `config.process` is set here: the rank. `local`: how processes of one host talk.
    MpiJob(Cluster& cluster, mp_config_t config, const LocalCosts& local = {}) : cluster(cluster) {
        for (unsigned rank = 0; rank < cluster.size() && local.latency; ++rank)
            inboxes.push_back(std::make_unique<LocalInbox>(cluster, rank, local));
        for (unsigned rank = 0; rank < cluster.size(); ++rank) {
            config.process = rank;
            const mp_hooks_t hooks{.argument = this,
                                   .pack = nullptr,
                                   .unpack = nullptr,
                                   .completed = completed,
                                   .address = address,
                                   .is_source = is_source,
                                   .process = process_at,
                                   .forgotten = nullptr,
                                   .report = report,
                                   .unmapped = nullptr};
            cluster.node(rank).services().quiet = std::getenv("TESTS_LOG") == nullptr;
            processes.push_back(std::make_unique<Process>(*this, cluster, rank, config, hooks));
            if (local.latency) processes.back()->port.share_hosts(inboxes);
        }
    }
    ~MpiJob() {
        for (unsigned rank = 0; rank < cluster.size(); ++rank) cluster.node(rank).on_turn = {};
    }
    MpiJob(const MpiJob&) = delete;
    Process& operator[](unsigned rank) { return *processes[rank]; }

    Cluster& cluster;
    std::vector<std::unique_ptr<LocalInbox>> inboxes; // by rank; none: nobody shares a host
    std::vector<std::unique_ptr<Process>> processes;
    std::function<void(mp_request_t&)> on_completed;
    std::vector<std::string> reports;

private:
    static void completed(void* self, mp_request_t* request) { static_cast<MpiJob*>(self)->on_completed(*request); }
    static bool address(void*, std::uint64_t process, void** out, std::size_t* length) {
        const auto bytes = SimPort::address_of(static_cast<unsigned>(process));
        *out = std::malloc(bytes.size());
        std::memcpy(*out, bytes.data(), bytes.size());
        *length = bytes.size();
        return true;
    }
    static bool is_source(void*, std::uint32_t, std::int32_t source, std::uint64_t process) {
        return source == MP_ANY_SOURCE || process == static_cast<std::uint64_t>(source);
    }
    static bool process_at(void*, std::uint32_t, std::int32_t source, std::uint64_t* process) {
        *process = static_cast<std::uint64_t>(source);
        return true;
    }
    static void report(void* self, const char* line) { static_cast<MpiJob*>(self)->reports.emplace_back(line); }
};

} // namespace ucx_mp::sim
