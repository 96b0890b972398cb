#include "collectives.h"

#include <algorithm>
#include <set>

namespace ucx_mp::sim {

namespace {
constexpr std::size_t kSmall = 2000, kHalving = 5000, kAhead = 5;
constexpr unsigned kPolls = 1024;

mp_config_t watched() {
    mp_config_t config = module_defaults();
    config.watch_interval = 500'000;
    return config;
}
} // namespace

Collectives::Collectives(Cluster& cluster, const CollectivesOptions& options)
    : cluster_(cluster), options_(options), random_(options.seed * 31'337 + 5), job_(cluster, watched()),
      dead_(cluster.size()) {
    for (unsigned node = 0; node < cluster.size(); ++node) {
        mp_hooks_t hooks{};
        hooks.argument = this;
        hooks.pack = Under::pack;
        hooks.unpack = Under::unpack;
        groups_.push_back(std::make_unique<glue::Groups>(job_[node].engine, job_[node].port, hooks));
        job_[node].port.pretend_host(1 + node % (1 + options.seed % 3)); // its messages go over adapters all the same
        job_[node].turn = [this, node] { return look(node); };
        cluster.node(node).on_turn = [this, node, own = cluster.node(node).on_turn]() -> bool {
            const bool any = own(); // which calls look(), but not in a turn of the thread
            return (job_[node].engine.kept().in_thread && progress(node)) || any;
        };
    }
    for (unsigned i = 0; i < 3; ++i) make_communicator();
    for (unsigned node = 0; node < cluster.size(); ++node) step_later(node);
}

Collectives::~Collectives() {
    for (unsigned node = 0; node < cluster_.size(); ++node) job_[node].turn = {};
    for (Communicator& communicator : communicators_)
        for (Member& member : communicator.members) {
            if (member.request) member.request->free();
            if (member.group) member.group->free();
        }
    groups_.clear();
}

// The first one has all nodes, in order.
void Collectives::make_communicator() {
    Communicator& its = communicators_.emplace_back();
    its.context = 3 + static_cast<std::uint32_t>(communicators_.size());
    std::vector<unsigned> who;
    for (unsigned node = 0; node < cluster_.size(); ++node) who.push_back(node);
    if (communicators_.size() > 1) {
        std::shuffle(who.begin(), who.end(), random_);
        who.resize(2 + dice(cluster_.size() - 1));
    }
    const auto ranks = static_cast<unsigned>(who.size());
    const auto draw = [&] {
        return glue::test::draw_call(++number_, ranks, kSmall, kHalving, [this](unsigned n) { return dice(n); });
    };
    Called persistent = draw();
    if (dice(2)) persistent = {.kind = MP_ALLTOALL, .root = 0, .bytes = 5000 + dice(10000), .number = number_};
    for (unsigned i = 0; i < options_.operations; ++i)
        its.items.push_back(dice(5) ? Item{draw(), false} : Item{persistent, true});
    for (const unsigned node : who) its.members.emplace_back().node = node;
}

void Collectives::make_group(Communicator& communicator, unsigned rank) {
    Member& member = communicator.members[rank];
    const bool host = options_.engine == MP_ENGINE_HOST;
    mp_group_config_t config = glue::test::group_config(rank, static_cast<std::uint32_t>(communicator.members.size()));
    config.context = communicator.context;
    config.process = [](const void* of, std::uint32_t one) -> std::uint64_t {
        return static_cast<const Communicator*>(of)->members[one].node;
    };
    config.members = &communicator;
    config.in_flight = 8;
    config.small = kSmall;
    config.halving = kHalving;
    config.eager = 1000;
    config.latency = host ? 1000 : 0;
    config.overhead = 200;
    config.within_latency = config.within_overhead = 10; // hosts are used where some are shared
    config.hosts_after = 4;
    config.peers = 2;
    config.engine = options_.engine;
    config.after = 2;
    member.group = groups_[member.node]->create(config);
    member.request = member.group->create_request();
}

// One call of the node's program, if it may; and the next one later.
void Collectives::step(unsigned node) {
    if (dead_[node]) return;
    if (!job_[node].engine.kept().in_thread) {
        const std::size_t first = dice(static_cast<unsigned>(communicators_.size()));
        bool called = false;
        for (std::size_t i = 0; i < communicators_.size() && !called; ++i) {
            Communicator& communicator = communicators_[(first + i) % communicators_.size()];
            for (unsigned rank = 0; rank < communicator.members.size() && !called; ++rank)
                called = communicator.members[rank].node == node && call(communicator, rank);
        }
        // A program that waits polls all the time: now and then it asks whether those live that it waits for.
        for (unsigned i = 0; i < kPolls && any_dead_; ++i) (void)job_[node].engine.progress();
        if (options_.threads && dice(8) == 0) compute(node);
    }
    step_later(node);
}

void Collectives::step_later(unsigned node) {
    SimServices& services = cluster_.node(node).services();
    services.at(services.now() + 1 + static_cast<Nanos>(random_() % (2 * options_.gap)), [this, node] { step(node); });
}

// False: all is called, or too much is under way.
bool Collectives::call(Communicator& communicator, unsigned rank) {
    Member& member = communicator.members[rank];
    if (member.called == communicator.items.size() || member.open.size() >= 1 + dice(kAhead)) return false;
    const Item& item = communicator.items[member.called];
    if (item.persistent && member.active) return false;
    if (!member.group) make_group(communicator, rank);
    const auto random = [this](unsigned n) { return dice(n); };
    const auto ranks = static_cast<unsigned>(communicator.members.size());
    ++member.called;
    if (!item.persistent) {
        Under& under = member.open.emplace_back();
        glue::test::describe(under, item.call, ranks, rank, dice(4) != 0, random);
        member.group->start(glue::GroupOperation::of(under.storage));
        return true;
    }
    if (!member.persistent) {
        member.persistent = std::make_unique<Under>();
        glue::test::describe(*member.persistent, item.call, ranks, rank, true, random);
    }
    glue::test::describe_again(*member.persistent, ++member.starts);
    member.active = true;
    member.request->start(glue::GroupOperation::of(member.persistent->storage));
    return true;
}

// Its turns are a progress thread's for a while.
void Collectives::compute(unsigned node) {
    job_[node].compute(true);
    SimServices& services = cluster_.node(node).services();
    services.at(services.now() + 1 + static_cast<Nanos>(random_() % (8 * options_.gap)),
                [this, node] { job_[node].compute(false); });
}

// In virtual time an adapter sees what a processor has stored when it is polled.
bool Collectives::progress(unsigned node) {
    const bool any = groups_[node]->progress() != 0;
    if (options_.engine != MP_ENGINE_HOST) job_[node].port.tasks()->progress();
    return any;
}

bool Collectives::look(unsigned node) {
    bool any = progress(node);
    for (Communicator& communicator : communicators_)
        for (Member& member : communicator.members)
            if (member.node == node) any |= look(communicator, member);
    return any;
}

bool Collectives::look(const Communicator& communicator, Member& member) {
    bool any = false;
    const auto ranks = static_cast<unsigned>(communicator.members.size());
    while (!member.open.empty() && member.open.front().complete()) {
        Under& under = member.open.front();
        any = true;
        if (fine(communicator, member, under, under.call.gets(ranks, under.rank))) {
            member.open.pop_front();
            continue;
        }
        Left& left = left_.emplace_back();
        left.bytes = under.result();
        left.under.splice(left.under.begin(), member.open, member.open.begin());
    }
    if (!member.active || !member.persistent->complete()) return any;
    Under& under = *member.persistent;
    member.active = false;
    (void)fine(communicator, member, under, under.call.turned(under.call.gets(ranks, under.rank), member.starts));
    return true;
}

// False: it has failed, since a member is dead.
bool Collectives::fine(const Communicator& communicator, const Member& member, Under& under,
                       const std::vector<std::byte>& wanted) {
    const Called& call = under.call;
    const mp_error_t error = under.storage.collective.error;
    const bool may_fail = has_dead(communicator);
    const auto mistake = [&](const char* what) {
        if (mistakes_.size() > 2000) return;
        mistakes_ += "node " + std::to_string(member.node) + ", communicator " + std::to_string(communicator.context) +
                     ", operation " + std::to_string(call.number) + " of kind " + std::to_string(call.kind) + ", " +
                     std::to_string(call.bytes) + " bytes: " + what + " (" + std::to_string(error) + ")\n";
    };
    if (under.open || under.asked_wrong) mistake("memory is open, or was asked for behind the end");
    if (std::ranges::any_of(under.guard, [](std::uint8_t byte) { return byte != 0; })) mistake("written behind it");
    if (error != MP_OK && !(may_fail && error == MP_FAILED)) mistake("has failed");
    ++(error == MP_OK ? complete : failed);
    if (error != MP_OK) return false;
    bytes += wanted.size();
    const bool is_root = call.kind == MP_BCAST && under.rank == call.root;
    if (!is_root && under.result() != wanted) mistake("wrong bytes");
    return true;
}

bool Collectives::has_dead(const Communicator& communicator) const {
    return std::ranges::any_of(communicator.members, [this](const Member& member) { return dead_[member.node]; });
}

bool Collectives::over(const Communicator& communicator, const Member& member) const {
    return dead_[member.node] || (member.called == communicator.items.size() && member.open.empty() && !member.active &&
                                  (!member.group || member.group->idle()));
}

bool Collectives::run(Nanos limit) {
    return cluster_.until(
        [this] {
            for (const Communicator& communicator : communicators_)
                for (const Member& member : communicator.members)
                    if (!over(communicator, member)) return false;
            return true;
        },
        limit);
}

void Collectives::kill(unsigned node) {
    any_dead_ = dead_[node] = true;
    cluster_.sleep(node, true);
    for (const verbs::Device& device : cluster_.node(node).devices().devices())
        cluster_.world.fault("adapter-death " + std::to_string(node) + ":" + device.name);
}

std::string Collectives::verdict() {
    for (Left& left : left_)
        if (left.under.front().result() != left.bytes) mistakes_ += "a failed operation's memory was written later\n";
    left_.clear();
    std::string text = mistakes_;
    for (const Communicator& communicator : communicators_)
        for (const Member& member : communicator.members) {
            if (over(communicator, member)) continue;
            text += "node " + std::to_string(member.node) + ", communicator " + std::to_string(communicator.context) +
                    ": " + std::to_string(member.called) + " of " + std::to_string(communicator.items.size()) +
                    " called, open:";
            for (const Under& under : member.open)
                text += " " + std::to_string(under.call.number) + " (kind " + std::to_string(under.call.kind) + ")";
            text += member.active ? ", the persistent one\n" : "\n";
        }
    if (const std::uint64_t dropped = count("dropped")) {
        text += std::to_string(dropped) + " messages were dropped\n";
        for (const std::string& line : std::set(job_.reports.begin(), job_.reports.end())) text += line + "\n";
    }
    return text;
}

std::uint64_t Collectives::count(const std::string& name) const {
    std::uint64_t sum = 0;
    for (const auto& groups : groups_) {
        const std::string text = groups->statistics();
        const std::size_t found = text.find(' ' + name + ' ');
        if (found != std::string::npos) sum += std::strtoull(text.c_str() + found + name.size() + 2, nullptr, 10);
    }
    return sum;
}

} // namespace ucx_mp::sim
