// Windows over a port, beside the engine of point-to-point messages, whose peers
// they share. mp_window.h has the contract, messages.h the messages on the wire.
//
// There are three ways to a target, each in its own order: messages (executed there in the order of the
// calls), puts, and gets. Puts and gets take turns: each has a share of bytes under way, so that an epoch's
// reads fill one direction while its writes fill the other. The end of an epoch waits for all three.
#pragma once

#include <unordered_map>

#include "pml_glue/core/no_memory.h"
#include "pml_glue/core/window/operation.h"

namespace ucx_mp::glue {

class Windows;

class Window {
public:
    Window(Windows& all, const mp_window_config_t& config, const mp_window_hooks_t& hooks);
    Window(const Window&) = delete;
    ~Window();

    // See mp_window.h.
    [[nodiscard]] std::vector<std::byte> keys() const;
    void set_keys(const std::byte* keys, std::size_t stride);
    [[nodiscard]] mp_error_t start(const mp_rma_t& rma);
    [[nodiscard]] bool put_now(std::uint32_t rank, const void* from, std::size_t bytes, std::uint64_t address,
                               mp_epoch_t epoch);
    [[nodiscard]] bool get_now(std::uint32_t rank, void* to, std::size_t bytes, std::uint64_t address,
                               mp_epoch_t epoch);
    [[nodiscard]] bool flush(std::uint32_t rank, unsigned& polls, mp_error_t& error);
    [[nodiscard]] bool flushed(std::uint32_t rank, bool local); // everything so far
    [[nodiscard]] bool flushed(std::uint32_t rank, bool local, std::uint64_t& call);
    [[nodiscard]] bool settled();
    [[nodiscard]] mp_error_t error(std::uint32_t rank);
    [[nodiscard]] bool gone(std::uint32_t rank) { return target(rank).failed; }
    void want_lock(std::uint32_t rank, bool exclusive);
    [[nodiscard]] bool wants_lock(std::uint32_t rank) { return target(rank).lock != Lock::none; }
    [[nodiscard]] bool locked(std::uint32_t rank);
    [[nodiscard]] bool unlocked(std::uint32_t rank);
    void access(std::uint32_t rank, bool check);
    [[nodiscard]] bool completed(std::uint32_t rank);
    void expose(std::uint32_t rank, bool check);
    [[nodiscard]] bool closed(std::uint32_t rank);
    [[nodiscard]] bool barrier();
    [[nodiscard]] bool fence();
    [[nodiscard]] bool wants_direct_fences() const;
    void set_direct_fences(bool direct) { direct_ = direct && wants_direct_fences(); }
    void attach(void* base, std::size_t size);
    [[nodiscard]] bool detach(const void* base);
    void free(); // ends the window, and this object

private:
    friend class Windows;
    struct Region {
        std::uint64_t base;
        std::size_t size;
        std::unique_ptr<Exposed> exposed; // made when keys are first asked for
    };
    struct Waiter {
        Target* target;
        Lock kind;
    };
    [[nodiscard]] Target& target(std::uint32_t rank) {
        Target* const known = targets_[rank].get();
        return known ? *known : make_target(rank);
    }
    [[nodiscard]] Target& make_target(std::uint32_t rank);
    void take_key(Target& target);

    // operation.cc: outgoing operations
    [[nodiscard]] bool can_move(const Target& target, const mp_rma_t& rma) const;
    [[nodiscard]] static bool register_memory(Operation& operation);
    void set_out(Operation& operation);
    [[nodiscard]] bool hold_put(Target& to, const void* from, std::size_t bytes, std::uint64_t address) const;
    void let_go(Target& to);
    static std::size_t pack_end(void* out, void* operation);
    [[nodiscard]] Posted advance(Operation& operation);
    [[nodiscard]] Posted advance_message(Operation& operation);
    [[nodiscard]] Posted advance_moves(Operation& operation);
    [[nodiscard]] Posted post_move(Operation& operation, Cursor::Piece piece, unsigned way);
    static std::size_t pack_runs(Operation& operation, std::size_t room, std::size_t most, bool shares, std::byte* out,
                                 std::uint16_t& runs);
    static std::size_t pack_operation(void* out, void* operation);
    static std::size_t pack_put(void* out, void* put);
    std::size_t pack_data(const mp_data_t& data, std::size_t position, void* out, std::size_t bytes) const;
    static void moved(Completion& completion, bool ok);
    static void got(Completion& completion, bool ok);
    void finish_if_over(Operation& operation);
    void finish(Operation& operation);
    void tell_in_order(Target& target, wire::Sync what, std::uint64_t number = 0);
    void tell(Target& target, wire::Sync what, std::uint64_t number = 0, mp_error_t error = MP_OK);
    void answer(Target& target, MessageKind kind, const void* header, std::size_t header_bytes, const void* data,
                std::size_t bytes);
    void serve(Target& target);
    [[nodiscard]] bool serve_line(Line& line);
    void fail(Target& target);

    // arrive.cc: requests of others
    void execute(Target& origin, const wire::OperationHeader& header, const std::byte* runs, const std::byte* data);
    [[nodiscard]] bool in_reach(const wire::OperationHeader& header, const wire::WireRun& run) const;
    [[nodiscard]] bool in_window(__int128 first, __int128 end) const;
    [[nodiscard]] bool apply(const wire::OperationHeader& header, std::uint64_t address, std::size_t bytes,
                             const std::byte* in, std::byte* out) const;
    void reply(Target& origin, const wire::OperationHeader& header, const std::byte* data, mp_error_t error);
    void replied(Operation& operation, const wire::ReplyHeader& header, const std::byte* data);
    void on_sync(Target& origin, const wire::WindowSync& message);
    [[nodiscard]] bool put_held(Target& origin, const std::byte* data, std::size_t length);

    // keys.cc: keys of dynamic windows
    [[nodiscard]] bool wants_key(const Target& target, const Operation& operation) const;
    [[nodiscard]] Posted ask_for_key(Operation& operation);
    void give_keys(Target& origin, const wire::AskHeader& header);
    void go_on(Operation& operation, const std::byte* keys, std::size_t length);

    // sync.cc
    void ask_flush(Target& target);
    [[nodiscard]] Posted post_flush(Target& target, std::uint64_t left);
    [[nodiscard]] bool flush_writes_now(Target& target, std::uint64_t until);
    [[nodiscard]] bool flush_writes(Target& target, std::uint64_t until);
    [[nodiscard]] bool flushed_there(Target& target);
    static void writes_flushed(Completion& completion, bool ok);
    [[nodiscard]] bool target_flushed(Target& target, bool local);
    [[nodiscard]] bool target_flushed(Target& target, bool local, std::uint64_t call);
    [[nodiscard]] bool over(Target& target, Round& round, bool local);
    [[nodiscard]] bool target_unlocked(Target& target);
    [[nodiscard]] bool tell_over(Target& target, wire::Sync what);
    void ask_for_lock(Target& target) { // guarded() would leave a lock that is wanted and asked for by nobody
        if (target.lock == Lock::none) [[unlikely]]
            or_end("asking for a lock", [&] { want_lock(target.rank, false); });
    }
    void grant_locks();
    void look_at_locks(std::uint64_t now);
    void release_lock(Target& origin);

    // fence.cc
    [[nodiscard]] bool fence_with_all();
    [[nodiscard]] bool fence_with(Target& to);
    [[nodiscard]] bool fence_by_barrier();

    Windows& all_;
    const mp_window_config_t config_;
    const mp_window_hooks_t hooks_;
    std::vector<std::uint64_t> processes_;
    std::vector<std::unique_ptr<Target>> targets_; // by rank
    std::vector<Target*> made_;
    std::unique_ptr<Exposed> exposed_;
    const std::byte* keys_ = nullptr;
    std::size_t keys_stride_ = 0;
    std::vector<Region> regions_; // of a dynamic window
    std::vector<std::byte> results_;
    std::deque<Waiter> waiters_; // ranks that want our lock
    unsigned sharers_ = 0;
    bool exclusive_ = false;
    static constexpr std::uint64_t kPatience = 5'000'000; // ns
    unsigned looks_ = 0; // since the last request, grant or return of our lock: the first at stuck_since_
    std::uint64_t stuck_since_ = 0, patience_ = kPatience;
    std::uint64_t calls_ = 0;         // calls of flushed() that have begun
    std::uint64_t barriers_ = 0;      // barriers that are over
    std::uint64_t fences_ = 0;        // fences that are over, where each rank tells all others
    bool direct_ = false;             // each rank tells all others; the same at all ranks
    bool fence_flushed_ = false;      // else: the present one is at its barrier
    std::uint32_t barrier_round_ = 0; // of the present one: 1, 2, 4, ...; 0: it has not begun
    bool barrier_lost_ = false;       // in the present one: a rank may be unheard of
};

// All windows of a process.
class Windows final : private PeerObserver {
public:
    Windows(Engine& engine, Port& port, const mp_hooks_t& hooks);
    Windows(const Windows&) = delete;
    ~Windows();
    [[nodiscard]] Window* create(const mp_window_config_t& config, const mp_window_hooks_t& hooks);
    void free(Window& window);
    unsigned progress() { // also from within a hook
        if (locks_wanted_ && ++polls_ % kPollsPerLook == 0) [[unlikely]]
            look_at_locks();
        return waiting_.empty() || serving_ ? 0 : serve_waiting();
    }
    [[nodiscard]] std::string statistics() const;

private:
    friend class Window;
    void peer_failed(Peer& peer) override;
    void waits_for(std::vector<Peer*>& peers) override;
    [[nodiscard]] bool holds(const Peer& peer) const override;
    unsigned serve_waiting();
    void look_at_locks();
    void list(Target& target) {
        if (target.listed) return;
        target.listed = true;
        waiting_.push_back(&target);
    }
    void dropped(const char* why);
    [[nodiscard]] Target* find(std::uint32_t window, std::uint32_t rank);
    // True: a rank that is not connected, in a turn of the progress thread. It waits for the program's next call.
    [[nodiscard]] bool hold_back(std::uint32_t window, std::uint32_t rank, MessageKind kind, const std::byte* data,
                                 std::size_t length) const;
    static void on_operation(void* self, const std::byte* data, std::size_t length);
    static void on_reply(void* self, const std::byte* data, std::size_t length);
    static void on_sync(void* self, const std::byte* data, std::size_t length);
    static void on_ask(void* self, const std::byte* data, std::size_t length);
    static void on_keys(void* self, const std::byte* data, std::size_t length);
    [[nodiscard]] Operation& new_operation();
    [[nodiscard]] Move& new_move();

    Engine& engine_;
    Port& port_;
    const mp_hooks_t hooks_;
    const bool fences_cost_; // the port's
    std::unordered_map<std::uint32_t, std::unique_ptr<Window>> windows_;
    SlotsOf<Operation> ids_;
    std::vector<Target*> waiting_, turn_; // turn_: empty but in serve_waiting()
    bool serving_ = false;
    static constexpr unsigned kPollsPerLook = 16;
    unsigned polls_ = 0;
    unsigned locks_wanted_ = 0; // locks that we want, of all windows
    Operation* free_operations_ = nullptr;
    Move* free_moves_ = nullptr;
    struct Counts {
        std::uint64_t puts = 0, gets = 0, copies = 0, messages = 0, executed = 0, keys = 0, dropped = 0;
    } counts_;
};

} // namespace ucx_mp::glue
