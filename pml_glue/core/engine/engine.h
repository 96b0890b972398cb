// Point-to-point messages with MPI's matching over a port: eager messages, rendezvous by get, put or fragments.
//
// Sends to a peer leave in the order of the calls: while its queue is not empty, later ones go behind. The receiver
// matches in the order of arrival. Messages after the matching (answers, data) have no order of their own.
//
// A request is complete when the program may have its memory back. Its `completed` hook runs last,
// and may start other operations; the request is not touched behind it. The same holds behind every
// call that sends to a peer: a message to this process itself has been handled when the call returns.
//
// Errors: a peer that fails ends all requests that need it with MP_FAILED, also receives from any source of
// its communicators. Its process is not talked to again. A peer of another job may end before us, and says
// so. Then only requests that name it fail, and receives from any source that no other peer can serve.
#pragma once

#include <unordered_map>

#include "pml_glue/core/engine/assembly.h"
#include "pml_glue/core/engine/kept.h"
#include "pml_glue/core/engine/request.h"
#include "pml_glue/core/engine/slots.h"
#include "pml_glue/core/engine/watched.h"
#include "pml_glue/core/wire.h"

namespace ucx_mp::glue {

// Other users of peers: windows and collective operations. From progress().
class PeerObserver {
public:
    virtual void peer_failed(Peer& peer) = 0;
    // Adds the peers that it waits for. Slow path.
    virtual void waits_for(std::vector<Peer*>& peers) = 0;
    [[nodiscard]] virtual bool holds(const Peer& peer) const = 0; // slow path, too

protected:
    ~PeerObserver() = default;
};

class Engine final : private FailureListener {
public:
    // The port outlives the engine. `config.transports` and `local` are the port's.
    Engine(Port& port, const mp_config_t& config, const mp_hooks_t& hooks);
    Engine(const Engine&) = delete;
    ~Engine();

    // The functions of mp_core.h. In a turn of the thread null for a new peer.
    [[nodiscard]] Peer* peer(std::uint64_t process);
    [[nodiscard]] bool send_now(Peer& peer, std::uint64_t compact, const void* data, std::size_t bytes, bool waits) {
        if (peer.busy || bytes > peer.most_now || (!waits && crowded(peer))) return false;
        if (peer.endpoint->send_short(wire::kCompact, compact, data, bytes) != Posted::done) return false;
        ++counts_.eager;
        return true;
    }
    // Takes a message that send_now() refused, to leave with others. False: too large. The request need not be set up.
    [[nodiscard]] bool hold(Peer& peer, std::uint64_t compact, const void* data, std::size_t bytes, Request& request);
    void send(Request& request, Peer& peer, const Envelope& envelope, const mp_data_t& data, bool synchronous,
              Hint hint);
    void receive(Request& request, const Envelope& pattern, const mp_data_t& data, Hint hint);
    [[nodiscard]] bool receive_now(const Envelope& pattern, void* data, std::size_t bytes, mp_status_t& status);
    void receive_message(Request& request, StoredEntry& message, const mp_data_t& data, Hint hint);
    bool cancel(Request& request);
    [[nodiscard]] StoredEntry* find(const Envelope& pattern) {
        return static_cast<StoredEntry*>(matcher_.find(pattern));
    }
    void take(StoredEntry& message) { matcher_.take(message); }
    // Called after a look that has found nothing: the source is waited for.
    [[nodiscard]] bool source_failed(const Envelope& pattern);
    void drop(std::uint32_t context);
    void named(std::uint64_t process, bool comes);
    unsigned progress();
    // thread.cc: a turn of the progress thread (core/async), with kept().in_thread. Work that needs other hooks than
    // pack and unpack waits for the program: new peers, failures, questions whether others live, and all that kept()
    // has.
    unsigned progress_in_thread();
    [[nodiscard]] bool stops_thread() const; // no more without the program
    [[nodiscard]] bool hold_back(std::uint64_t process, MessageKind kind, const std::byte* data, std::size_t length);
    [[nodiscard]] Kept& kept() { return kept_; }
    void tell_kept();
    // Called last: tells peers of other jobs that this process leaves. Peers of its own job leave with it.
    void leave();
    [[nodiscard]] bool waits() const { return !waiting_.empty(); }
    [[nodiscard]] std::string statistics() const;

    // For other users of peers.
    void observe(PeerObserver& observer) { observers_.push_back(&observer); }
    [[nodiscard]] std::uint64_t process() const { return process_; }
    // An operation of `peer` has failed: it ends with the next progress().
    void give_up(Peer& peer) { endpoint_failed(*peer.endpoint); }
    // `hint` is for the next operations, of `bytes` each.
    void tell(Peer& peer, Hint hint, std::size_t bytes) {
        if (bytes < hint_limit_) return;
        ++counts_.told[static_cast<std::size_t>(hint)];
        if (peer.hint == hint) return;
        peer.hint = hint;
        peer.endpoint->hint(hint);
    }
    void report(const char* line);

private:
    // Sets the fields that the starter does not set, and that are read before they are written.
    void clear_request(Request& request) {
        request.shown.complete = false;
        request.is_send = request.synchronous = request.truncated = false;
        request.outstanding = request.fenced = request.bulk = request.broken = false;
        request.posted.link.linked = false;
        request.engine = this;
        request.peer = nullptr;
        request.id = 0;
        request.moved = 0;
        request.pieces_out = 0;
        request.memory = nullptr;
        request.key = nullptr;
        request.waiting.entry = Waiting::Entry::request;
    }
    // bundle.cc: small eager messages that leave together
    [[nodiscard]] bool crowded(Peer& peer) const {
        if (peer.turn != turns_) peer.gone_alone = 0;
        peer.turn = turns_;
        return ++peer.gone_alone > peer.burst;
    }
    [[nodiscard]] Bundle& new_bundle();
    void end_bundle(Bundle& bundle, mp_error_t error);
    [[nodiscard]] Posted post_bundle(Peer& peer, Bundle& bundle);
    static void on_bundle(void* self, const std::byte* data, std::size_t length);

    // send.cc
    [[nodiscard]] bool goes_behind(Request& request);
    [[nodiscard]] bool needs_rendezvous(const Request& request) const;
    [[nodiscard]] Posted post_first(Request& request);
    void settle_first(Request& request, Posted outcome);
    [[nodiscard]] Posted post_eager(Request& request);
    [[nodiscard]] bool leaves_without_copy(Request& request);
    [[nodiscard]] static const Sizes& sizes_of(const Request& request);
    void choose(Peer& peer) const;
    [[nodiscard]] Posted post_zero_copy(Request& request);
    [[nodiscard]] Posted post_synchronous(Request& request);
    [[nodiscard]] Posted post_offer(Request& request);
    static std::size_t pack_eager(void* out, void* request);
    std::size_t pack_data(Request& request, std::size_t offset, void* out, std::size_t bytes);
    static void left(Completion& completion, bool ok);

    // receive.cc: messages of the wire, and their effects
    static void on_compact(void* self, const std::byte* data, std::size_t length);
    static void on_eager(void* self, const std::byte* data, std::size_t length);
    static void on_eager_sync(void* self, const std::byte* data, std::size_t length);
    static void on_request(void* self, const std::byte* data, std::size_t length);
    void eager_arrived(const Envelope& envelope, const std::byte* data, std::size_t bytes);
    [[gnu::noinline]] void store_eager(const Envelope& envelope, const std::byte* data, std::size_t bytes);
    void deliver(Request& request, StoredEntry& message);
    void deliver_eager(Request& request, const Envelope& envelope, const std::byte* data, std::size_t bytes);
    void start_receive(Request& request, const mp_data_t& data, Hint hint);
    [[nodiscard]] StoredEntry& new_entry(std::size_t room);
    void free_entry(StoredEntry& entry);

    // pieces.cc: eager messages of several pieces
    [[nodiscard]] Posted post_pieces(Request& request);
    [[nodiscard]] Posted part_on(Request& request);
    [[nodiscard]] Posted send_piece(Request& request);
    [[nodiscard]] Posted send_piece_from_place(Request& request);
    static std::size_t pack_piece(void* out, void* request);
    static void piece_left(Completion& completion, bool ok);
    static void on_first(void* self, const std::byte* data, std::size_t length);
    static void on_more(void* self, const std::byte* data, std::size_t length);
    void fill(Request& request, const Envelope& envelope, Assembly& assembly);
    void arrived(Assembly& assembly, const std::byte* data, std::size_t bytes);
    void put_in(Request& request, const std::byte* data, std::size_t bytes);
    void forget_pieces(Peer& peer); // the sender is gone

    // rendezvous.cc
    static void on_clear(void* self, const std::byte* data, std::size_t length);
    static void on_fragment(void* self, const std::byte* data, std::size_t length);
    static void on_finish(void* self, const std::byte* data, std::size_t length);
    static void on_done(void* self, const std::byte* data, std::size_t length);
    struct Offer {
        std::uint64_t sender, request, address;
        std::size_t bytes;
        bool can_get;
        Hint hint;
        const std::byte* key;
        std::size_t key_bytes;
    };
    void accept(Request& request, const Envelope& envelope, const Offer& offer);
    [[nodiscard]] bool start_reading(Request& request, const Offer& offer);
    void clear(Request& request);
    void tell_done(Peer& peer, MessageKind kind, std::uint64_t id, bool ok);
    void cannot_read(Request& request);
    void part(Request& request, MessageKind kind);
    [[nodiscard]] Posted move(Request& request);
    [[nodiscard]] Posted read_on(Request& request);
    [[nodiscard]] Posted write_on(Request& request);
    [[nodiscard]] Posted send_pieces(Request& request);
    static std::size_t pack_fragment(void* out, void* request);
    static void moved(Completion& completion, bool ok);
    static void wrote(Completion& completion, bool ok);

    // queue.cc: operations that wait for room, failures, endings
    void enqueue(Peer& peer, Waiting& entry);
    void enqueue_bulk(Request& request);
    void list(Peer& peer);
    void control(Peer& peer, MessageKind kind, const void* message, std::size_t length);
    [[nodiscard]] Posted post_control(Peer& peer, MessageKind kind, const std::byte* message, std::size_t length);
    [[gnu::noinline]] unsigned serve_waiting();
    unsigned serve(Peer& peer);
    unsigned serve_bulk(Peer& peer);
    void endpoint_failed(Endpoint& endpoint) override;
    [[gnu::noinline, gnu::cold]] void fail_peers();
    void fail(Peer& peer);
    void lost(Request& request);    // an operation for it has failed
    void release(Request& request); // gives back everything but the program's memory
    void complete(Request& request, mp_error_t error);
    void tell_end(Request& request, mp_error_t error) { // for a request that holds nothing
        request.phase = Phase::idle;
        request.shown.status.error = error;
        if (error == MP_FAILED) [[unlikely]]
            ++counts_.lost;
        if (kept_.in_thread) [[unlikely]]
            return kept_.add(request);
        request.shown.complete = true;
        hooks_.completed(hooks_.argument, &request.shown);
    }
    void dropped(const char* why);

    // others.cc: peers of other jobs
    [[gnu::noinline, gnu::cold]] void let_go();
    [[nodiscard]] bool idle(Peer& peer);
    [[nodiscard]] bool is_other(std::uint64_t process) const { return process >> 32 != process_ >> 32; }
    void says(const std::byte* data, std::size_t length, bool leaves);
    static void on_bye(void* self, const std::byte* data, std::size_t length);
    static void on_hello(void* self, const std::byte* data, std::size_t length);

    // watch.cc: whether awaited peers live
    [[gnu::noinline, gnu::cold]] void look();
    void sources(std::vector<std::uint64_t>& names);
    void meet(std::vector<std::uint32_t>& contexts);
    void ask(std::uint64_t process);
    [[nodiscard]] bool has_failed(const Envelope& pattern) const;
    [[nodiscard]] bool ends(const Envelope& pattern, const Peer& peer) const;

    Port& port_;
    const mp_hooks_t hooks_;
    const std::uint64_t process_;
    const std::size_t eager_limit_, zero_copy_, hint_limit_; // MP_AUTO: thresholds.h
    const bool by_put_;
    const std::uint32_t burst_;
    Matcher matcher_;
    Slots slots_;
    Assemblies assemblies_;
    std::vector<std::unique_ptr<Bundle>> bundles_;
    Bundle* free_bundles_ = nullptr;
    std::vector<std::unique_ptr<Piece>> pieces_;
    Piece* free_pieces_ = nullptr;
    std::uint32_t message_number_ = 0; // of the last message in pieces
    std::unordered_map<std::uint64_t, std::unique_ptr<Peer>> peers_;
    std::unordered_map<std::uint64_t, unsigned> named_; // processes of other jobs: how many communicators have them
    std::vector<std::uint64_t> unnamed_;                // named by none any more, and not yet let go
    std::vector<Peer*> waiting_;                        // peers with something in a queue
    std::vector<Endpoint*> failed_endpoints_;
    unsigned failed_peers_ = 0;
    bool in_progress_ = false;
    Kept kept_;
    std::uint32_t turns_ = 0; // calls of progress()
    Watched watched_;
    const std::uint64_t watch_interval_;
    const bool watch_strangers_;
    std::vector<PeerObserver*> observers_;
    struct FreeEntries {
        StoredEntry* first = nullptr;
        unsigned count = 0;
    } free_entries_[5]; // of kRooms bytes each
    struct Counts {
        std::uint64_t eager = 0, in_pieces = 0, bundles = 0, unlike = 0, offers = 0, reads = 0, writes = 0,
                      fragments = 0, unexpected = 0, waited = 0, dropped = 0, forgotten = 0,
                      lost = 0;     // lost: requests that a failure has ended
        std::uint64_t told[5] = {}; // operations, by their hint
    } counts_;
};

} // namespace ucx_mp::glue
