// Collective operations over a port, by plans (core/plan) whose actions the host does in its progress: a client of the
// engine's peers, as windows are. See mp_collect.h.
//
// An incoming part goes to the place of its take at once, if its operation has been started here. Else it is kept, with
// the slot of its operation, or for a group that is not made yet. How much comes early is bounded by the rules of slots
// (plan/slot_rules.h); what others pretend beyond that is dropped. Operators are applied, and others answered, by
// progress(), not while messages arrive.
//
// A member that is gone breaks the group: who needs to know is told by `broken` (broken.cc). Messages of
// a broken group may come when the communicator has been freed, and its number is another one's (messages.h).
//
// A persistent request is a group of its own, with the members of its communicator's. Members may start requests in any
// order (MPI-4.0 3.9), but the operations of a group in one. All operations of a request have the same buffers, so
// others are told of these once.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "pml_glue/core/collect/exchange.h"
#include "pml_glue/core/collect/stripes.h"
#include "pml_glue/core/collect/triggered.h"
#include "pml_glue/core/plan/hosts.h"
#include "pml_glue/core/plan/slot_rules.h"

namespace ucx_mp::glue {

class Group;
class Groups;

// A plan that is kept for the next operation of its shape.
struct KeptPlan {
    Shape shape{};
    Plan plan;
    std::vector<Peer*> partners; // of each action; null: not looked for yet
    std::vector<TriggeredPut> puts;
    unsigned users = 0;
    std::uint64_t used = 0; // when last, in operations
};

// Most blocks are of one or two words.
inline void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
    constexpr std::size_t kWord = sizeof(std::uint64_t);
    if (bytes < kWord || bytes > 2 * kWord) {
        if (bytes) std::memcpy(to, from, bytes);
        return;
    }
    std::uint64_t first, last;
    std::memcpy(&first, from, kWord);
    std::memcpy(&last, from + bytes - kWord, kWord);
    std::memcpy(to, &first, kWord);
    std::memcpy(to + bytes - kWord, &last, kWord);
}

// A header with data behind it, for Endpoint::send_packed().
template <class Header> struct Packed {
    Header header;
    const std::byte* data;
    std::size_t bytes;
    static std::size_t pack(void* out, void* argument) {
        const auto& self = *static_cast<const Packed*>(argument);
        std::memcpy(out, &self.header, sizeof self.header);
        if (self.bytes) std::memcpy(static_cast<std::byte*>(out) + sizeof self.header, self.data, self.bytes);
        return sizeof self.header + self.bytes;
    }
};

// How an operation stands.
enum class Stage : std::uint8_t {
    queued, // behind others that are under way
    begun,  // its actions are being done
    over,   // its caller is to be told, by progress(): it may free the group then
};

// A persistent all-to-all keeps this for each member from one operation to the next.
struct KeptBlock {
    Memory *in = nullptr, *out = nullptr; // theirs here, ours for them
    RemoteKey* key = nullptr;             // of the place for ours
    std::uint64_t address = 0;
    bool told = false; // they know our key
};

// The first member is what the program sees of it (mp_collect.h).
struct GroupOperation {
    static constexpr std::size_t kOwn = 192; // bytes of work that need no memory of the pool
    static constexpr unsigned kMostTakes = kHostEdges + 2;

    mp_collective_t shown;
    Group* group;
    KeptPlan* plan;
    Exchange* exchange;   // of one that has begun; null: all of it is in the plan
    GroupOperation* next; // in the group's queue, or among those that progress() looks at
    std::uint64_t number;
    std::uint64_t name;      // wire::pack() of its parts, without their edge
    std::uint64_t arrived;   // edges whose part is here
    std::uint64_t awaited;   // those whose part its next actions take, and is not here; none: it does not wait
    std::uint64_t in_blocks; // edges of which a part has come
    std::byte* work;
    std::uint32_t at;   // the next action
    std::uint32_t left; // bytes of that action's put that have left in blocks
    Collective collective;
    Stage stage;
    bool inserted; // the group's own: its memory is the group's
    bool listed;   // progress() looks at it
    mp_error_t error;
    std::uint32_t got[kMostTakes]; // bytes of each part that comes in blocks: got_of()
    alignas(16) std::byte own[kOwn];

    static GroupOperation& of(mp_collective_storage_t& storage) { return reinterpret_cast<GroupOperation&>(storage); }
    // Edges of rounds and trees, of hosts (plan/hosts.cc), and the last two of all.
    [[nodiscard]] std::uint32_t& got_of(unsigned edge) {
        return got[edge < kMostTakes - 2 ? edge : edge - (kEdges - kMostTakes)];
    }
};
static_assert(sizeof(GroupOperation) <= MP_COLLECTIVE_BYTES);

// A digest of what all members have to agree about: consecutive lives have consecutive ones.
[[nodiscard]] std::uint32_t check_of(const mp_group_config_t& config);

class Group {
public:
    Group(Groups& all, const mp_group_config_t& config, Group* communicator);
    Group(const Group&) = delete;
    ~Group();

    [[nodiscard]] bool takes(Collective collective, std::size_t bytes) const;
    [[nodiscard]] bool is_bruck(std::size_t bytes) const; // an alltoall of such blocks
    [[nodiscard]] bool broken() const { return broken_; }
    [[nodiscard]] mp_error_t error() const {
        if (!broken_) return MP_OK;
        return gone_ >= wire::kDeclined ? MP_BROKEN : MP_FAILED;
    }
    [[nodiscard]] bool idle() const { return open_ == 0; }
    void start(GroupOperation& operation);
    void free();
    // This member cannot take part: all operations fail, at all members.
    void give_up();
    // For the next persistent request. Null: there were too many, which all members see alike.
    [[nodiscard]] Group* create_request();

private:
    friend class Groups;
    friend class Exchange;
    friend class Stripes;
    friend class Triggered;
    struct Slot {
        GroupOperation* operation = nullptr; // that has begun
        std::byte* work = nullptr;           // of the pool, that it has
        std::size_t work_bytes = 0;
        std::uint64_t number = 0; // of what has come early
        EarlyList early;
    };
    // A part of `total` bytes, or a block of it from `offset` on.
    struct Arrival {
        wire::PartName name;
        std::size_t total, offset;
        const std::byte* data;
        std::size_t length;
    };
    void issue(GroupOperation& operation);
    void begin(GroupOperation& operation);
    void begin_queued();
    [[nodiscard]] KeptPlan& plan_of(Collective collective, std::uint32_t root) {
        KeptPlan* const recent = recent_[static_cast<unsigned>(collective)];
        if (recent && recent->shape.root == root) [[likely]]
            return *recent;
        return find_plan(shape_of(collective, root));
    }
    [[nodiscard]] KeptPlan& triggered_plan_of(Collective collective, std::uint32_t root);
    [[nodiscard]] KeptPlan& find_plan(const Shape& shape);
    [[nodiscard]] Shape shape_of(Collective collective, std::uint32_t root) const;
    [[nodiscard]] GroupOperation& new_inserted(mp_collective_kind_t kind);
    void prepare(GroupOperation& operation, bool inserted);
    // Members ask each other for their hosts by one all-gather of the group's own. Hosts count from an operation on
    // whose number all members know.
    void ask_hosts();
    void learn_hosts(std::uint64_t number);
    [[nodiscard]] Exchange& new_exchange(std::uint64_t number);
    void give_back_exchange(std::uint64_t number);
    // arrive.cc
    void has_come(GroupOperation& operation, unsigned edge);
    [[nodiscard]] bool take(std::uint64_t bits, const std::byte* data, std::size_t length);
    void arrive(const Arrival& arrival, MessageKind kind, const std::byte* message, std::size_t length);
    void place(GroupOperation& operation, const Arrival& arrival);
    [[nodiscard]] bool had_earlier(std::uint32_t check) const; // an earlier life of this communicator
    void arrive_exchange(const wire::PartName& name, MessageKind kind, const std::byte* data, std::size_t length);
    void cancel(const wire::CancelHeader& header);
    void renew_memory(GroupOperation& operation); // exchange.cc
    // operation.cc
    void advance(GroupOperation& operation);
    [[nodiscard]] bool put(GroupOperation& operation, const Action& action);
    [[nodiscard]] Posted put_short(GroupOperation& operation, const Action& action, Peer& peer);
    void not_put(GroupOperation& operation, Peer& peer, Posted outcome);
    [[nodiscard]] Posted post(GroupOperation& operation, const Action& action, Peer& peer);
    void finish(GroupOperation& operation);
    void end(GroupOperation& operation);
    [[nodiscard]] Peer* partner(GroupOperation& operation);
    [[nodiscard]] Peer* member(std::uint32_t rank);
    [[nodiscard]] Peer* connect(std::uint32_t rank);
    static std::uint64_t process_of(const void* group, std::uint32_t rank) {
        return static_cast<const Group*>(group)->processes_[rank];
    }
    // broken.cc
    void lose(std::uint64_t why);
    void lose_requests();
    void tell_broken();
    void tell_others();
    void waits_for(std::vector<Peer*>& peers);

    Groups& all_;
    const mp_group_config_t config_;
    std::vector<std::uint64_t> processes_;
    const std::uint32_t check_;
    const std::size_t small_each_;
    const Rounds rounds_;
    std::uint64_t ask_at_ = UINT64_MAX;     // number from which on members ask each other for their hosts
    std::uint64_t hosts_from_ = UINT64_MAX; // from this operation on hosts are known to all members
    bool knows_hosts_ = false;              // such an operation has begun
    std::unique_ptr<Hosts> hosts_;          // null: it is not worth while to tell them apart
    Rounds flat_;                           // of operations that do not
    std::uint64_t own_key_ = 0;             // hosts, while members ask
    std::vector<std::uint64_t> host_keys_;
    SlotRules rules_;
    std::unique_ptr<Triggered> triggered_; // null: the host does all
    std::unique_ptr<Stripes> stripes_;     // of a request; likewise
    const std::size_t eager_;              // of a block of an exchange: what all may send unasked has room
    std::vector<Slot> slots_;
    std::vector<std::unique_ptr<KeptPlan>> plans_;
    KeptPlan* recent_[kCollectives] = {};
    std::vector<Peer*> partners_;                  // that we have talked to
    std::vector<Peer*> members_;                   // of exchanges, by rank; null: not looked for yet
    Group* const communicator_;                    // of a persistent request; null: of a communicator
    std::vector<std::unique_ptr<Group>> requests_; // null: freed
    std::vector<KeptBlock> kept_;                  // of a request, by rank
    std::uint64_t unmapped_ = 0;                   // as mp_hooks_t says, when they were looked at
    std::unique_ptr<Exchange> free_exchanges_;
    std::vector<std::unique_ptr<Exchange>> exchanges_;  // of slots, whose operation has one
    GroupOperation *first_ = nullptr, *last_ = nullptr; // queued
    unsigned open_ = 0;                                 // operations that are not complete, also of requests
    bool broken_ = false, told_broken_ = false, beginning_ = false;
    bool freed_ = false;     // a request's, but a barrier of its own is under way
    std::uint64_t gone_ = 0; // the process
    GroupOperation* free_inserted_ = nullptr;
    std::vector<std::unique_ptr<mp_collective_storage_t>> inserted_; // that have been made
};

class Groups final : private PeerObserver {
public:
    Groups(Engine& engine, Port& port, const mp_hooks_t& hooks);
    Groups(const Groups&) = delete;
    ~Groups();

    // Null: the configuration makes no sense. Or there is no memory for it, which the other members are told.
    [[nodiscard]] Group* create(const mp_group_config_t& config);
    // A communicator comes; of the configuration number and members count. See mp_group_next_life().
    [[nodiscard]] std::uint32_t next_life(const mp_group_config_t& config);
    void drop(std::uint32_t context); // the communicator is gone
    unsigned progress() { return first_ || !tells_.empty() ? look() : 0; }
    [[nodiscard]] std::string statistics() const;

private:
    friend class Group;
    friend class Exchange;
    friend class Stripes;
    friend class Triggered;
    // A message that waits for room, or for the program.
    struct Tell {
        static constexpr std::size_t kMost = sizeof(wire::QueueHeader) + wire::kMostKeys;
        std::uint64_t process; // to whom
        MessageKind kind;      // 0: wake()
        std::size_t length;
        std::byte message[kMost];
    };
    void free(Group& group);
    void bury();
    void admit(Group& group);
    void decline(const mp_group_config_t& config);
    [[nodiscard]] Group* find(std::uint32_t context) const {
        const std::uint32_t communicator = context >> wire::kRequestBits, request = context & wire::kRequestMask;
        Group* const group = communicator < groups_.size() ? groups_[communicator].get() : nullptr;
        if (request == 0 || !group) [[likely]]
            return group;
        return request <= group->requests_.size() ? group->requests_[request - 1].get() : nullptr;
    }
    // A request's, which has been made and given back: its members have all they need.
    [[nodiscard]] bool was_freed(std::uint32_t context) const {
        const std::uint32_t communicator = context >> wire::kRequestBits, request = context & wire::kRequestMask;
        const Group* const group = communicator < groups_.size() ? groups_[communicator].get() : nullptr;
        return request != 0 && group && request <= group->requests_.size() && !group->requests_[request - 1];
    }
    [[nodiscard]] bool was_declined(std::uint32_t context) const {
        return !declined_.empty() && std::ranges::find(declined_, context >> wire::kRequestBits) != declined_.end();
    }
    template <class Does> void each(const Does& does) const {
        for (const auto& group : groups_) {
            if (!group) continue;
            does(*group);
            for (const auto& request : group->requests_)
                if (request) does(*request);
        }
    }
    static void on_part(void* self, const std::byte* data, std::size_t length);
    template <MessageKind kind> static void on(void* self, const std::byte* data, std::size_t length) {
        static_cast<Groups*>(self)->handle(kind, data, length);
    }
    // arrive.cc
    void handle(MessageKind kind, const std::byte* data, std::size_t length);
    void cancel(const wire::CancelHeader& header);
    void on_queue(Group* group, const wire::PartName& name, const std::byte* data, std::size_t length);
    void on_lane(Group* group, const wire::PartName& name, const std::byte* data, std::size_t length);
    void on_stripe(Group* group, const wire::PartName& name, const std::byte* data, std::size_t length);
    // False: there is no room.
    [[nodiscard]] bool keep(EarlyList& list, MessageKind kind, const std::byte* data, std::size_t length);
    void keep_stranger(std::uint64_t name, MessageKind kind, const std::byte* data, std::size_t length);
    [[nodiscard]] Early& store(MessageKind kind, const std::byte* data, std::size_t length);
    void again(EarlyList list);   // what was kept, as if it came now
    void forget(EarlyList& list); // but answers questions
    void refuse(const std::byte* question);
    [[nodiscard]] bool cancel(EarlyList& list, const wire::CancelHeader& header);
    void give_back(Early& one);
    [[nodiscard]] EarlyList strangers_of(std::uint64_t name, std::uint64_t mask); // that have these bits of their name
    void list(GroupOperation& operation) {
        operation.listed = true;
        operation.next = nullptr;
        (first_ ? last_->next : first_) = &operation;
        last_ = &operation;
        ++listed_;
    }
    void unlist(const Group& group);
    [[gnu::noinline]] unsigned look();
    void end(GroupOperation& operation);
    [[nodiscard]] bool in_thread() { return engine_.kept().in_thread; }
    void wake(); // progress() looks, though nothing is listed
    void tell_broken(const mp_group_config_t& config, std::uint32_t check, std::uint64_t why); // broken.cc
    void tell();
    void tell(std::uint64_t process, MessageKind kind, const void* message, std::size_t length);
    [[nodiscard]] Posted post(Peer& peer, MessageKind kind, const void* message, std::size_t length);
    [[nodiscard]] std::byte* work(std::size_t bytes);
    void give_back(std::byte* work, std::size_t bytes);
    void dropped(const char* why);

    void lose(Group& group, const Peer& peer);
    void peer_failed(Peer& peer) override;
    void waits_for(std::vector<Peer*>& peers) override;
    [[nodiscard]] bool holds(const Peer& peer) const override;

    Engine& engine_;
    const Port& port_;
    TaskPort* const tasks_; // null: there are no queues that wait
    const mp_hooks_t hooks_;
    std::vector<std::unique_ptr<Group>> groups_;                       // by context
    std::vector<Group*> dead_;                                         // of requests that are freed, and idle now
    EarlyList strangers_;                                              // of groups that are not made yet
    std::vector<std::uint64_t> refused_;                               // names of which not all could be kept
    std::vector<std::uint32_t> declined_;                              // communicators that had no memory here
    std::size_t early_bytes_ = 0, most_early_ = std::size_t{64} << 20; // that come before their operation or group
    Early* free_early_ = nullptr;
    std::vector<std::unique_ptr<Early>> made_early_;
    std::vector<std::byte*> free_work_[32];             // of 2^i bytes
    GroupOperation *first_ = nullptr, *last_ = nullptr; // that progress() looks at
    unsigned listed_ = 0;
    unsigned over_ = 0; // of those that are listed to be told, since the last look
    bool looking_ = false;
    std::vector<Tell> tells_;
    std::vector<Triggered*> triggers_;                       // of groups that have an arena
    std::vector<Stripes*> stripes_;                          // of requests
    std::size_t arena_bytes_ = 0;                            // of all groups
    std::unordered_map<std::uint64_t, std::uint32_t> lives_; // by a digest of number and members
    Triggered::Counts triggered_counts_;
    Stripes::Counts stripe_counts_;
    struct Counts {
        std::uint64_t operations[2][kCollectives] = {}; // blocking, and not
        std::uint64_t inserted = 0, by_hosts = 0, parts = 0, blocks = 0, pairs = 0, bytes = 0, asked = 0, known = 0,
                      puts = 0, put_bytes = 0, requests = 0, early = 0, queued = 0, broken = 0, late = 0, dropped = 0;
    } counts_;
};

} // namespace ucx_mp::glue
