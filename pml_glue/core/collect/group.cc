#include "pml_glue/core/collect/group.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <utility>

namespace ucx_mp::glue {

namespace {

// Bytes that all members together may send to one for exchanges it has not called, of one communicator.
constexpr std::size_t kMostAhead = std::size_t{8} << 20;

// One operation of a persistent request is under way here, but others may be ahead of us.
constexpr unsigned kRequestInFlight = 8;

constexpr std::size_t kMostKeys = std::size_t{64} << 10; // bytes that name hosts

std::vector<std::uint64_t> processes_of(const mp_group_config_t& config) {
    std::vector<std::uint64_t> processes(config.ranks);
    for (std::uint32_t i = 0; i < config.ranks; ++i) processes[i] = config.process(config.members, i);
    return processes;
}

struct Digest { // FNV-1a
    std::uint64_t value = 0xcbf29ce484222325;
    void add(std::uint64_t one) {
        for (unsigned i = 0; i < 8; ++i) value = (value ^ (one >> 8 * i & 0xff)) * 0x100000001b3;
    }
    void add_members(const mp_group_config_t& config) {
        for (std::uint32_t i = 0; i < config.ranks; ++i) add(config.process(config.members, i));
    }
};

bool makes_sense(const mp_group_config_t& config) {
    return config.ranks >= 2 && config.ranks <= wire::kContextMask && config.rank < config.ranks &&
           config.in_flight >= 2 && config.in_flight <= SlotRules::kMostInFlight && config.peers > 0;
}

} // namespace

std::uint32_t check_of(const mp_group_config_t& config) {
    Digest digest;
    digest.add_members(config);
    digest.add(config.in_flight);
    digest.add(config.small);
    digest.add(config.halving);
    digest.add(config.eager);
    digest.add(config.latency);
    digest.add(config.latency ? config.overhead : 0);
    digest.add(config.within_latency);
    digest.add(config.within_latency ? config.within_overhead : 0);
    digest.add(config.within_latency ? config.hosts_after : 0);
    digest.add(config.digest);
    return (static_cast<std::uint32_t>(digest.value ^ digest.value >> 32) + config.life) & wire::kCheckMask;
}

Group::Group(Groups& all, const mp_group_config_t& config, Group* communicator)
    : all_(all), config_(config), processes_(processes_of(config)), check_(check_of(config)),
      small_each_(config.small / config.ranks), rounds_(choose_rounds(config.ranks, config.latency, config.overhead)),
      rules_(config.in_flight), triggered_(config.engine != MP_ENGINE_HOST && config.latency == 0 && all.tasks_ &&
                                                   config.small <= Triggered::kMostSmall
                                               ? std::make_unique<Triggered>(*this, *all.tasks_, all.triggered_counts_)
                                               : nullptr),
      stripes_(communicator && config.engine != MP_ENGINE_HOST && all.tasks_
                   ? std::make_unique<Stripes>(*this, *all.tasks_, all.stripe_counts_)
                   : nullptr),
      eager_(std::min(config.eager, kMostAhead / (std::size_t{rules_.slots()} * config.ranks))), slots_(rules_.slots()),
      communicator_(communicator), kept_(communicator ? config.ranks : 0), exchanges_(rules_.slots()) {
    const bool asks = config.within_latency && config.latency && config.ranks > 2;
    const bool fits = sizeof own_key_ * config.ranks <= std::max(config.small, kMostKeys);
    if (asks && fits && !communicator) ask_at_ = config.hosts_after;
}

Group::~Group() {
    for (Slot& slot : slots_) {
        all_.forget(slot.early);
        if (slot.work) all_.give_back(slot.work, slot.work_bytes);
    }
    for (std::size_t rank = 0; rank < kept_.size(); ++rank) {
        const KeptBlock& kept = kept_[rank];
        if (!kept.in && !kept.out && !kept.key) continue;
        Endpoint& endpoint = *members_[rank]->endpoint;
        for (Memory* const memory : {kept.in, kept.out})
            if (memory) endpoint.deregister(memory);
        if (kept.key) endpoint.release_key(kept.key);
    }
    all_.unlist(*this);
}

void Group::free() { all_.free(*this); }

Group* Group::create_request() {
    if (requests_.size() == wire::kRequestMask) return nullptr;
    mp_group_config_t config = config_;
    config.context += static_cast<std::uint32_t>(requests_.size()) + 1;
    config.members = this;
    config.process = process_of;
    config.in_flight = std::min(config_.in_flight, kRequestInFlight);
    requests_.push_back(std::make_unique<Group>(all_, config, this));
    ++all_.counts_.requests;
    Group& request = *requests_.back();
    if (broken_) request.lose(gone_); // nobody tells of that member again
    all_.admit(request);
    return &request;
}

bool Group::is_bruck(std::size_t bytes) const {
    constexpr std::size_t kMost = 128; // larger blocks are not worth the copies
    return bytes <= std::min(kMost, small_each_) && config_.ranks <= kMostAlltoall;
}

Exchange& Group::new_exchange(std::uint64_t number) {
    std::unique_ptr<Exchange>& its = exchanges_[rules_.slot(number)];
    its = std::move(free_exchanges_);
    if (its)
        free_exchanges_ = std::move(its->next_free);
    else
        its = std::make_unique<Exchange>(*this);
    return *its;
}

void Group::give_back_exchange(std::uint64_t number) {
    std::unique_ptr<Exchange>& its = exchanges_[rules_.slot(number)];
    its->next_free = std::move(free_exchanges_);
    free_exchanges_ = std::move(its);
}

bool Group::takes(Collective collective, std::size_t bytes) const {
    switch (collective) {
    case Collective::barrier:
        return true;
    case Collective::bcast:
        return bytes <= config_.small;
    case Collective::allreduce:
    case Collective::halving:
        return bytes <= config_.halving || bytes <= small_each_;
    case Collective::allgather:
    case Collective::gather:
    case Collective::reduce:
    case Collective::scatter:
        return bytes <= small_each_;
    case Collective::alltoall:
    case Collective::exchange:
        return bytes > 0 && bytes < SIZE_MAX;
    case Collective::exchangev:
        return bytes < SIZE_MAX;
    }
    return false;
}

[[gnu::always_inline]] inline void Group::prepare(GroupOperation& operation, bool inserted) {
    operation.collective = static_cast<Collective>(operation.shown.kind);
    if (operation.collective == Collective::allreduce && operation.shown.bytes > small_each_)
        operation.collective = Collective::halving;
    if (operation.shown.kind == MP_ALLTOALL && !is_bruck(operation.shown.bytes))
        operation.collective = Collective::exchange;
    if (operation.shown.kind == MP_ALLTOALLV) operation.collective = Collective::exchangev;
    operation.group = this;
    operation.plan = nullptr;
    operation.exchange = nullptr;
    operation.stage = Stage::queued;
    operation.inserted = inserted;
    operation.listed = false;
    operation.awaited = 0;
    operation.error = MP_OK;
    operation.shown.complete = false;
    ++open_;
    if (communicator_) ++communicator_->open_;
}

GroupOperation& Group::new_inserted(mp_collective_kind_t kind) {
    GroupOperation* its = free_inserted_;
    if (its) {
        free_inserted_ = its->next;
    } else {
        inserted_.push_back(std::make_unique<mp_collective_storage_t>());
        its = &GroupOperation::of(*inserted_.back());
    }
    its->shown = {};
    its->shown.kind = kind;
    prepare(*its, true);
    return *its;
}

// Members ask in the same place of the order of calls. A group that is seldom used does not ask, nor does a persistent
// request's: it would for each request.
void Group::ask_hosts() {
    ask_at_ = UINT64_MAX;
    host_keys_.assign(config_.ranks, 0);
    own_key_ = all_.port_.host() ? all_.port_.host() : processes_[config_.rank];
    GroupOperation& asks = new_inserted(MP_ALLGATHER);
    asks.shown.bytes = sizeof own_key_;
    asks.shown.in = {.buffer = &own_key_, .bytes = sizeof own_key_, .convertor = nullptr};
    asks.shown.out = {.buffer = host_keys_.data(), .bytes = host_keys_.size() * sizeof own_key_, .convertor = nullptr};
    issue(asks);
}

// `number`: of that operation. By rule 1 of slot_rules.h it is finished here before `number` + W starts. So all members
// change their plans at that number, without being told.
void Group::learn_hosts(std::uint64_t number) {
    try {
        auto hosts = std::make_unique<Hosts>(host_keys_, MessageCosts{.latency = config_.latency,
                                                                      .overhead = config_.overhead,
                                                                      .within_latency = config_.within_latency,
                                                                      .within_overhead = config_.within_overhead});
        flat_ = hosts->flat;
        if (hosts->worth) hosts_ = std::move(hosts);
    } catch (const std::bad_alloc&) {
        return lose(wire::kNoMemory); // others go on by hosts
    }
    host_keys_ = {};
    hosts_from_ = number + config_.in_flight;
    all_.counts_.by_hosts += hosts_ != nullptr;
}

Shape Group::shape_of(Collective collective, std::uint32_t root) const {
    return {.collective = collective,
            .ranks = config_.ranks,
            .rank = config_.rank,
            .root = root,
            .rounds = knows_hosts_ ? &flat_ : &rounds_,
            .hosts = knows_hosts_ && uses_hosts(collective) ? hosts_.get() : nullptr};
}

void Group::start(GroupOperation& operation) {
    prepare(operation, false);
    if (broken_) [[unlikely]] {
        tell_broken();
        operation.error = error();
        return finish(operation);
    }
    ++all_.counts_.operations[operation.shown.done != nullptr][static_cast<unsigned>(operation.collective)];
    if (rules_.given() >= ask_at_) [[unlikely]]
        ask_hosts();
    if (!synchronises(operation.collective) && rules_.barrier_due()) {
        ++all_.counts_.inserted;
        issue(new_inserted(MP_BARRIER));
    }
    issue(operation);
}

void Group::issue(GroupOperation& operation) {
    operation.number = rules_.next(synchronises(operation.collective));
    if (!first_ && rules_.may_start(operation.number)) [[likely]]
        return begin(operation);
    ++all_.counts_.queued;
    operation.next = nullptr;
    (first_ ? last_->next : first_) = &operation;
    last_ = &operation;
}

void Group::begin_queued() {
    if (std::exchange(beginning_, true)) return;
    while (first_ && rules_.may_start(first_->number)) {
        GroupOperation& operation = *first_;
        first_ = operation.next;
        begin(operation);
    }
    beginning_ = false;
}

// As many are kept as may be under way, and as many more: one that nobody uses is always there.
KeptPlan& Group::find_plan(const Shape& shape) {
    KeptPlan*& recent = recent_[static_cast<unsigned>(shape.collective)];
    KeptPlan* oldest = nullptr;
    for (const auto& kept : plans_) {
        if (kept->shape == shape) return *(recent = kept.get());
        if (kept->users == 0 && (!oldest || kept->used < oldest->used)) oldest = kept.get();
    }
    if (plans_.size() < rules_.slots()) {
        plans_.push_back(std::make_unique<KeptPlan>());
        oldest = plans_.back().get();
    }
    for (KeptPlan*& other : recent_)
        if (other == oldest) other = nullptr;
    oldest->shape = shape;
    make_plan(shape, oldest->plan);
    oldest->partners.assign(oldest->plan.actions.size(), nullptr);
    if (shape.triggered) find_triggered(shape, oldest->plan, oldest->puts);
    return *(recent = oldest);
}

// From the first operation of its kind with work in the arena on, none has it elsewhere.
KeptPlan& Group::triggered_plan_of(Collective collective, std::uint32_t root) {
    KeptPlan* const recent = recent_[static_cast<unsigned>(collective)];
    const Shape shape{
        .collective = collective, .ranks = config_.ranks, .rank = config_.rank, .root = root, .triggered = true};
    return recent && recent->shape == shape ? *recent : find_plan(shape);
}

Groups::Groups(Engine& engine, Port& port, const mp_hooks_t& hooks)
    : engine_(engine), port_(port), tasks_(port.tasks()), hooks_(hooks) {
    port.handle(wire::kPart, on_part, this);
    port.handle(wire::kBlock, on<wire::kBlock>, this);
    port.handle(wire::kPair, on<wire::kPair>, this);
    port.handle(wire::kReady, on<wire::kReady>, this);
    port.handle(wire::kArrived, on<wire::kArrived>, this);
    port.handle(wire::kCancel, on<wire::kCancel>, this);
    port.handle(wire::kBroken, on<wire::kBroken>, this);
    port.handle(wire::kQueue, on<wire::kQueue>, this);
    port.handle(wire::kLane, on<wire::kLane>, this);
    port.handle(wire::kStripe, on<wire::kStripe>, this);
    engine.observe(*this);
}

Groups::~Groups() {
    first_ = nullptr; // callers may be gone
    groups_.clear();
    forget(strangers_);
    for (auto& free : free_work_)
        for (std::byte* work : free) ::operator delete (work, std::align_val_t{64});
}

// An entry stays for good: who forgets one counts otherwise than other members.
std::uint32_t Groups::next_life(const mp_group_config_t& config) {
    Digest digest;
    digest.add_members(config);
    digest.add(config.context);
    return lives_[digest.value]++;
}

Group* Groups::create(const mp_group_config_t& config) {
    if (!makes_sense(config) || config.context > wire::kContextMask) return nullptr;
    if (std::ranges::find(declined_, config.context) != declined_.end()) return nullptr;
    mp_group_config_t its = config;
    its.context <<= wire::kRequestBits;
    try {
        if (groups_.size() <= config.context) groups_.resize(config.context + std::size_t{1});
        groups_[config.context] = std::make_unique<Group>(*this, its, nullptr);
    } catch (const std::bad_alloc&) {
        decline(its);
        return nullptr;
    }
    Group& group = *groups_[config.context];
    most_early_ = config.memory;
    admit(group);
    return &group;
}

// Messages that have come before it was made.
void Groups::admit(Group& group) {
    const std::uint64_t name = wire::name_of(group.config_.context, group.check_);
    if (std::erase(refused_, name)) group.lose(wire::kNoRoom);
    if (strangers_.first) again(strangers_of(name, wire::kContextBits));
}

// Others wait for our part in a barrier that a request's group has put in.
void Groups::free(Group& group) {
    bury();
    if (!group.communicator_) {
        groups_[group.config_.context >> wire::kRequestBits].reset();
    } else if (group.idle()) {
        dead_.push_back(&group);
        bury();
    } else {
        group.freed_ = true;
    }
}

void Groups::bury() {
    while (!dead_.empty()) {
        Group& group = *dead_.back();
        dead_.pop_back();
        group.communicator_->requests_[(group.config_.context & wire::kRequestMask) - 1].reset();
    }
}

std::byte* Groups::work(std::size_t bytes) {
    const auto power = static_cast<unsigned>(std::bit_width(bytes - 1));
    auto& free = free_work_[power];
    if (free.empty()) {
        free.reserve(free.size() + 1);
        return static_cast<std::byte*>(::operator new (std::size_t{1} << power, std::align_val_t{64}));
    }
    std::byte* const out = free.back();
    free.pop_back();
    return out;
}

void Groups::give_back(std::byte* work, std::size_t bytes) { free_work_[std::bit_width(bytes - 1)].push_back(work); }

// Takes the present ones, once each; one that finds no room goes to the end again.
unsigned Groups::look() {
    if (std::exchange(looking_, true)) return 0;
    if (!dead_.empty()) [[unlikely]]
        bury();
    if (!tells_.empty()) [[unlikely]]
        tell();
    if (!triggers_.empty() || !stripes_.empty()) [[unlikely]] {
        tasks_->progress();
        for (Triggered* one : triggers_) one->serve();
        for (Stripes* one : stripes_) one->serve();
    }
    unsigned count = 0;
    for (unsigned left = listed_; left > 0 && first_; --left) {
        GroupOperation& operation = *first_;
        first_ = operation.next;
        operation.listed = false;
        --listed_;
        if (operation.stage == Stage::over)
            end(operation);
        else
            operation.group->advance(operation);
        ++count;
    }
    looking_ = false;
    // Those that wait for room are no reason to look at once. Those that are over are: nobody wakes us for them.
    return std::max(count > listed_ ? count - listed_ : 0, std::exchange(over_, 0));
}

// The program may look at an operation while the progress thread has its turn: it is told later.
void Groups::end(GroupOperation& operation) {
    engine_.kept().tell(
        [](void* one, mp_error_t) {
            GroupOperation& its = *static_cast<GroupOperation*>(one);
            its.group->end(its);
        },
        &operation, operation.error);
}

void Groups::unlist(const Group& group) {
    GroupOperation* operation = std::exchange(first_, nullptr);
    listed_ = 0;
    while (operation) {
        GroupOperation* const next = operation->next;
        if (operation->group != &group) list(*operation);
        operation = next;
    }
}

bool Groups::holds(const Peer& peer) const {
    bool found = false;
    each([&](const Group& group) {
        found |= std::find(group.partners_.begin(), group.partners_.end(), &peer) != group.partners_.end();
    });
    return found;
}

void Groups::dropped(const char* why) {
    if (counts_.dropped++ == 0) engine_.report(why);
}

std::string Groups::statistics() const {
    static constexpr const char* kNames[kCollectives] = {nullptr,     "barrier",  "bcast",    "allgather",
                                                         "allreduce", "halving",  "gather",   "reduce",
                                                         "scatter",   "alltoall", "exchange", "exchangev"};
    std::string text = "; collectives:";
    const auto add = [&](const std::string& name, std::uint64_t count) {
        text += ' ';
        text += name;
        text += ' ' + std::to_string(count) + ',';
    };
    for (const bool later : {false, true})
        for (unsigned i = 1; i < kCollectives; ++i)
            if (const std::uint64_t count = counts_.operations[later][i])
                add((later ? "i" : "") + std::string(kNames[i]), count);
    add("parts", counts_.parts);
    add("blocks", counts_.blocks);
    add("pairs", counts_.pairs);
    add("bytes", counts_.bytes);
    if (counts_.requests) add("persistent", counts_.requests);
    add("asked", counts_.asked);
    if (counts_.known) add("known", counts_.known);
    add("puts", counts_.puts);
    add("put bytes", counts_.put_bytes);
    add("barriers put in", counts_.inserted);
    if (counts_.by_hosts) add("communicators by hosts", counts_.by_hosts);
    add("early", counts_.early);
    add("queued", counts_.queued);
    add("broken", counts_.broken);
    if (counts_.late) add("late", counts_.late);
    if (const Triggered::Counts& its = triggered_counts_; its.queues) {
        if (its.operations) add("triggered", its.operations);
        add("tasks", its.tasks);
        add("waits", its.waits);
        add("queues", its.queues);
        add("queues ended", its.ended);
        add("resent", its.resent);
    }
    if (const Stripes::Counts& its = stripe_counts_; its.pairs) {
        add("striped", its.blocks);
        add("stripes", its.tasks);
        add("pairs with queues", its.pairs);
        add("their queues", its.queues);
        add("pairs ended", its.ended);
        add("stripes resent", its.resent);
    }
    return text + " dropped " + std::to_string(counts_.dropped);
}

} // namespace ucx_mp::glue
