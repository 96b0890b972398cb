// A persistent all-to-all among the nodes of a cluster in virtual time, of pml_glue's core, without MPI.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>

#include "pml/group_config.h"
#include "pml/sim_job.h"
#include "pml_glue/core/collect/group.h"

namespace ucx_mp::sim {

struct PersistentWorld {
    Cluster cluster;
    MpiJob job;
    const std::size_t bytes; // of a block
    std::vector<std::unique_ptr<glue::Groups>> groups;
    std::vector<glue::Group*> communicators, requests;
    struct Call {
        mp_collective_storage_t storage{};
        std::vector<std::byte> in, out;
    };
    std::vector<std::unique_ptr<Call>> calls;
    unsigned wrong = 0, started = 0;
    std::uint64_t looks = 0; // of progress threads

    PersistentWorld(unsigned ranks, std::size_t bytes, mp_engine_t engine, unsigned rails)
        : cluster("two-rail", ranks, small_queues(), {}, only(rails)), job(cluster, module_defaults()), bytes(bytes) {
        for (unsigned rank = 0; rank < ranks; ++rank) {
            mp_hooks_t hooks{};
            hooks.argument = this;
            groups.push_back(std::make_unique<glue::Groups>(job[rank].engine, job[rank].port, hooks));
            mp_group_config_t config = glue::test::group_config(rank, ranks);
            config.engine = engine;
            communicators.push_back(groups[rank]->create(config));
            requests.push_back(communicators[rank]->create_request());
            calls.push_back(std::make_unique<Call>());
            describe(rank);
            job[rank].turn = [this, rank] { return progress(rank); };
            cluster.node(rank).on_turn = [this, rank, own = cluster.node(rank).on_turn]() -> bool {
                const bool any = own();
                if (!job[rank].engine.kept().in_thread) return any;
                ++looks;
                return progress(rank) || any;
            };
        }
    }
    ~PersistentWorld() {
        for (glue::Group* request : requests) request->free();
        for (glue::Group* communicator : communicators) communicator->free();
        for (unsigned rank = 0; rank < ranks(); ++rank) job[rank].turn = {};
        groups.clear();
    }
    [[nodiscard]] unsigned ranks() const { return static_cast<unsigned>(calls.size()); }
    [[nodiscard]] std::uint64_t count(const std::string& name) const {
        std::uint64_t sum = 0;
        for (const auto& one : groups) {
            const std::string text = one->statistics();
            const std::size_t found = text.find(' ' + name + ' ');
            if (found != std::string::npos) sum += std::strtoull(text.c_str() + found + name.size() + 2, nullptr, 10);
        }
        return sum;
    }
    // A start by all, whose programs then compute, and ask for it. With `thread` a progress thread has the turn
    // meanwhile. How long until all have it.
    Nanos one(Nanos compute, bool thread = false) {
        const Nanos begin = cluster.world.now();
        ++started;
        std::vector<bool> is_started(ranks());
        for (unsigned rank = 0; rank < ranks(); ++rank)
            cluster.node(rank).compute(0, [this, rank, compute, thread, &is_started] {
                give(rank);
                requests[rank]->start(glue::GroupOperation::of(calls[rank]->storage));
                is_started[rank] = true;
                if (compute == 0) return;
                if (!thread) return cluster.node(rank).compute(compute, [] {});
                job[rank].compute(true);
                (void)cluster.world.at(cluster.world.now() + compute, [this, rank] { job[rank].compute(false); });
            });
        const bool all = cluster.until(
            [&] {
                for (unsigned rank = 0; rank < ranks(); ++rank)
                    if (!is_started[rank] || !calls[rank]->storage.collective.complete) return false;
                return true;
            },
            60'000'000'000);
        if (!all) throw std::runtime_error("a persistent all-to-all does not end");
        const Nanos took = cluster.world.now() - begin;
        for (unsigned rank = 0; rank < ranks(); ++rank) check(rank);
        return took;
    }
    // Until adapters have all blocks, if they wait.
    void warm_up() {
        for (int i = 0; i < 60; ++i) {
            const std::uint64_t before = count("striped");
            (void)one(0);
            if (count("striped") - before == std::uint64_t{ranks()} * (ranks() - 1)) return;
            (void)cluster.world.at(cluster.world.now() + 500'000, [] {}); // the self-test takes its time
            cluster.run_for(500'000);
        }
    }

private:
    static channel::Config small_queues() {
        channel::Config config;
        config.receive_depth = 256;
        config.send_depth = 64;
        config.background = false;
        return config;
    }
    static verbs::DeviceConfig only(unsigned rails) {
        verbs::DeviceConfig config;
        if (rails == 1) config.rails = {"softhca_0:1"};
        return config;
    }
    static std::byte content(unsigned from, unsigned to, unsigned start, std::size_t at) {
        return static_cast<std::byte>(from * 67 + to * 29 + start * 131 + (at >> 6) * 7);
    }
    // In virtual time an adapter sees what a processor has stored when it is polled.
    bool progress(unsigned rank) {
        const bool any = groups[rank]->progress() != 0;
        job[rank].port.tasks()->progress();
        return any;
    }
    void describe(unsigned rank) {
        Call& call = *calls[rank];
        mp_collective_t& its = call.storage.collective;
        call.in.resize(bytes * cluster.size());
        call.out.resize(call.in.size());
        its.kind = MP_ALLTOALL;
        its.bytes = bytes;
        its.user = this;
        its.size = [](mp_collective_t* one, std::uint32_t, bool) { return one->bytes; };
        its.open = [](mp_collective_t* one, std::uint32_t other, bool sends) {
            Call& of = reinterpret_cast<Call&>(*one);
            return mp_data_t{.buffer = (sends ? of.in : of.out).data() + other * one->bytes,
                             .bytes = one->bytes,
                             .convertor = nullptr};
        };
        its.close = [](mp_collective_t*, std::uint32_t, void*, bool) {};
        its.done = [](mp_collective_t*) {};
    }
    void give(unsigned rank) {
        Call& call = *calls[rank];
        for (unsigned to = 0; to < ranks(); ++to)
            for (std::size_t i = 0; i < bytes; i += 64) call.in[to * bytes + i] = content(rank, to, started, i);
        call.storage.collective.complete = false;
    }
    void check(unsigned rank) {
        const Call& call = *calls[rank];
        wrong += call.storage.collective.error != MP_OK;
        for (unsigned from = 0; from < ranks(); ++from)
            for (std::size_t i = 0; i < bytes && from != rank; i += 64)
                wrong += call.out[from * bytes + i] != content(from, rank, started, i);
    }
};

enum class PersistentWay { host, thread, adapter };
struct PersistentRow {
    const char* name;
    unsigned rails;
    Nanos alone;
    double hidden;
    std::uint64_t looks;
};
// Programs compute for as long as the exchange takes alone.
inline PersistentRow persistent_row(unsigned ranks, std::size_t bytes, PersistentWay way, unsigned rails) {
    static constexpr const char* kNames[] = {"host", "thread", "adapter"};
    PersistentWorld world(ranks, bytes, way == PersistentWay::adapter ? MP_ENGINE_AUTO : MP_ENGINE_HOST, rails);
    if (way == PersistentWay::adapter)
        world.warm_up();
    else
        for (int i = 0; i < 3; ++i) (void)world.one(0);
    const Nanos alone = world.one(0);
    world.looks = 0;
    const Nanos both = world.one(alone, way == PersistentWay::thread);
    if (world.wrong) throw std::runtime_error("a persistent all-to-all has brought wrong bytes");
    return {.name = kNames[static_cast<unsigned>(way)],
            .rails = rails,
            .alone = alone,
            .hidden = 1 - static_cast<double>(both - alone) / static_cast<double>(alone),
            .looks = world.looks};
}

} // namespace ucx_mp::sim
