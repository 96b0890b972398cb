// The inside of Interface: state, and the functions of the files of this folder. Private to uct_mp/channel.
#pragma once

#include <atomic>
#include <deque>
#include <mutex>
#include <string>
#include <type_traits>
#include <unordered_map>

#include "uct_mp/channel/adapter.h"
#include "uct_mp/channel/cancel.h"
#include "uct_mp/channel/channel.h"
#include "uct_mp/channel/interface.h"
#include "uct_mp/channel/table.h"
#include "uct_mp/recover/history.h"
#include "uct_mp/verbs/address_handles.h"
#include "uct_mp/verbs/packet_numbers.h"

namespace ucx_mp::channel {

inline constexpr unsigned kHeader = sizeof(MessageHeader);
inline constexpr unsigned kMaxUserHeader = 256; // of am_zcopy, beyond Config::segment
// After the header: UCT's 8 bytes of am_short, or the user's header; at the end perhaps a fence's trailer.
inline constexpr unsigned kExtra = 64;
inline constexpr unsigned kReadBackBytes = 8; // of a read that pushes writes (visible.cc)

// mp_dc: what a target of this life of its device asks for. Requests for targets of the life before may still be
// repeated, and their numbers be in use again.
[[nodiscard]] constexpr std::uint64_t key_of_life(std::uint64_t dc_key, std::uint8_t life) {
    return dc_key ^ life * 0x9e3779b97f4a7c15ull;
}

struct Interface::Impl final : connect::Owner {
    Impl(const verbs::DeviceSet& devices, const Config& config, Services& services, Events& events,
         const verbs::KeyTable& keys, const AmHandler* handlers);
    ~Impl() override;

    // -- Set-up: setup.cc
    Status open(std::string& error);
    struct DcRail { // mp_dc
        verbs::QueuePair target;
        std::vector<std::unique_ptr<SendQueue>> initiators;
    };
    Status open_dc(std::string& error);
    // On a life of the rail's device, with the queues of `adapter`. Lowers inline_bytes to what is granted.
    [[nodiscard]] Status make_dc_rail(const verbs::Rail& rail, const verbs::Device& device, Adapter& adapter,
                                      DcRail& out, std::string& error);
    void watch_descriptor(int fd); // by event_fd
    void read_rails();
    Channel* attach(const connect::InterfaceAddress& peer, std::string& error);
    void detach(Channel& channel);
    Channel* make_channel(std::uint64_t uid);
    void connect_self(Channel& channel);
    void describe_self(connect::Connection& connection) const;
    [[nodiscard]] std::uint32_t probe_key_of(const verbs::Rail& rail) const;
    std::uint32_t probe_key(const verbs::Rail& rail) override { return probe_key_of(rail); }
    void connect_later(Channel& channel);

    // -- Peers come and go: depart.cc
    [[nodiscard]] static bool has_outstanding(const Channel& channel);
    [[nodiscard]] Status refusal(Channel& channel); // of an operation on a channel that has failed
    void end_quietly(Channel& channel, bool renew);
    void list_ending(Channel& channel);
    void end_channels();
    [[nodiscard]] bool is_forgotten(Channel& channel);
    void clear(Channel& channel); // of what others have a part in; with the lock held
    void end_channel(Channel& channel);
    void begin_anew(Channel& channel);
    void take_leave(Channel& channel, const connect::Goodbye& goodbye); // of the peer
    bool judge_leaver(Channel& channel);
    void judge_leavers();
    void watch_unused(Channel& channel, Nanos now);
    void trim_unused();
    void parted(Channel& channel, connect::Answer answer);

    // -- The interface closes: close.cc. Says goodbye to everybody
    void say_goodbye();
    unsigned poll_closing();

    // The channel that has taken or takes the place of one that is buried; itself if it is not. With the lock held.
    Channel* successor(Channel& channel);

    // -- Handshake's owner: owner.cc. On either side of Services::lock(), with it held; what concerns the data path
    // goes to progress by mail.
    connect::Connection* accept(std::uint64_t peer_uid) override;
    connect::Connection* find(std::uint64_t peer_uid) override;
    connect::Connection* find_local(std::uint32_t local_id) override;
    Status make_end(connect::Connection& connection, std::size_t path) override;
    void rails_told(connect::Connection& connection, std::uint32_t number,
                    const std::vector<path::RemoteRail>& list) override;
    Status connect_end(connect::Connection& connection, std::size_t path) override;
    void drop_ends(connect::Connection& connection) override;
    void established(connect::Connection& connection) override;
    void failed(connect::Connection& connection, Status status, const char* why) override;
    void abandoned(connect::Connection& connection) override;
    [[nodiscard]] bool may_do_without(const Channel& channel, const verbs::Rail& rail) const;
    [[nodiscard]] bool is_news(const connect::Connection& connection, const verbs::Rail& rail) const;
    verbs::QueuePair make_half(const verbs::Rail& rail, LogLevel level,
                               verbs::QueuePair* broken = nullptr); // null: logged, errno
    [[nodiscard]] verbs::RemoteEnd remote_end(const connect::Connection& connection, const path::PathSpec& route,
                                              const connect::LocalEnd& end) const;
    connect::Connection* renew(connect::Connection& connection) override;
    void answered(connect::Connection& connection, connect::Answer answer) override;
    bool hears(std::uint64_t peer_uid) override;
    void ended(connect::Connection& connection, const connect::Goodbye& goodbye) override;
    void parted(connect::Connection& connection, connect::Answer answer) override;
    struct Mail {
        enum class What : std::uint8_t {
            established,
            abandoned,
            failed,
            answered,
            path,
            rails,
            keys,
            ended,
            parted
        } what;
        Channel* channel;
        Status status;                                    // failed
        connect::Answer answer = connect::Answer::alive;  // answered, parted
        connect::Goodbye goodbye{};                       // ended
        connect::PathKind kind = connect::PathKind::down; // path
        connect::PathNews news{};
        std::uint32_t number = 0; // rails
        std::vector<path::RemoteRail> rails{};
        verbs::RemoteKeys keys{}; // keys
        bool found = false;
    };
    [[nodiscard]] bool mail_is_full() const; // with the lock held
    void tell(Mail mail);
    unsigned read_mail();                                      // progress only
    void drop_prepared(Channel& channel);                      // with the lock held
    void entomb(verbs::QueuePair qp, const verbs::Rail& rail); // likewise
    unsigned clear_graves(bool occupied);                      // progress only
    void establish(Channel& channel); // progress only: the channel takes over what the handshake has made
    unsigned attend(unsigned found);  // progress: what is rare; so much has been found at the adapters
    void serve_lists(unsigned found); // progress: what is in the lists, see `listed`
    Channel& channel_of(connect::Connection& connection);

    // -- Choosing where: place.cc
    // A path with room for a whole message of `size`, in the account; kNoPath: none has room.
    PathIndex place(Channel& channel, Direction direction, std::uint64_t size);
    [[nodiscard]] bool path_has_room(Channel& channel, PathIndex path, Direction direction, unsigned n);
    SendQueue* queue_for(Channel& channel, PathIndex path, Direction direction);
    SendQueue* pick_initiator(Channel& channel, Subchannel& sub);
    [[nodiscard]] bool any_path_has_room(Channel& channel, Direction direction);
    [[nodiscard]] bool lane_has_room(Channel& channel);
    // Strict: every kind of operation would go now. Loose: some kind would.
    [[nodiscard]] bool surely_room(Channel& channel);
    [[nodiscard]] bool maybe_room(Channel& channel);

    // -- Messages: send.cc
    // gates != 0: may a message go in spite of it? no_resource, or the error of a failed channel. May start a
    // connection.
    Status pass_gate_message(Channel& channel);
    Status pass_gate_rdma(Channel& channel, const verbs::RemoteKeys*& keys);
    Status blocked(Channel& channel); // not ready, held, failed
    // What begins a sequenced message of `total` bytes (header included, trailer not): a path and a buffer. ok, or not.
    struct Start {
        Buffer* buffer;
        SendQueue* queue;
        PathIndex path;
        bool fenced;
        std::uint32_t placed; // bytes in the account
    };
    Status start_message(Channel& channel, BufferPool& pool, std::uint32_t size, Start& start);
    Status start_gated(Channel& channel, BufferPool& pool, std::uint32_t size, Start& start);
    Status start_plain(Channel& channel, BufferPool& pool, std::uint32_t size, Start& start); // whatever fences want
    Status start_fenced(Channel& channel, BufferPool& pool, std::uint32_t size, Start& start);
    // Fills the header, retains, posts the buffer (inline if it fits).
    void finish_message(Channel& channel, const Start& start, Kind kind, std::uint8_t am_id, std::uint32_t length,
                        std::uint8_t flags);
    // The same for zcopy: the pieces of the buffer's work go behind it.
    void finish_pieces(Channel& channel, const Start& start, std::uint8_t am_id, std::uint32_t length);
    void compose(Channel& channel, Buffer& buffer, PathIndex path, Kind kind, std::uint8_t am_id, std::uint32_t length,
                 std::uint8_t flags);
    template <Fits> void post_own(Channel& channel, Buffer& buffer, SendQueue& queue, PathIndex path);
    void post_whole(Channel& channel, Buffer& buffer, SendQueue& queue, PathIndex path, bool signaled);
    [[gnu::noinline, gnu::cold]] void post_joined_refused(Channel& channel, SendQueue& queue); // the last message
    [[gnu::noinline, gnu::cold]] void post_whole_refused(Channel& channel, Buffer& buffer, SendQueue& queue,
                                                         PathIndex path);
    [[gnu::noinline]] static Status am_short_any(Channel&, std::uint8_t id, std::uint64_t header, const void* payload,
                                                 unsigned length);
    [[gnu::noinline]] static Status am_short_sole(Channel&, std::uint8_t id, std::uint64_t header, const void* payload,
                                                  unsigned length);
    [[gnu::noinline]] static Status am_short_lane(Channel&, std::uint8_t id, std::uint64_t header, const void* payload,
                                                  unsigned length);
    template <Fits, class Fill>
    ssize_t send_message(Channel& channel, BufferPool& pool, std::uint8_t id, std::uint32_t size, const Fill& fill);
    template <Fits, class Fill>
    ssize_t active_message_sole(Channel& channel, BufferPool& pool, std::uint8_t id, const Fill& fill);
    template <Fits, class Fill, class Otherwise> ssize_t active_message_lane(Channel& channel, BufferPool& pool,
                                                                             std::uint8_t id, const Fill& fill,
                                                                             const Otherwise& otherwise);
    template <Fits, class Fill>
    ssize_t active_message(Channel& channel, BufferPool& pool, std::uint8_t id, std::uint32_t size, Fill fill);
    void finish_fenced(Channel& channel, const Start& start, Kind kind, std::uint8_t am_id, std::uint32_t length,
                       std::uint8_t flags);
    void append_trailer(Channel& channel, Buffer& buffer, std::uint32_t sequence);
    void post_message(Channel& channel, Buffer& buffer, SendQueue& queue, PathIndex path, std::uint32_t placed);
    void post_refused(Channel& channel, SendQueue& queue, const Posted& posted);
    // `marked`: the path that a marker is about, if not the one that carries it.
    bool send_control(Channel& channel, Kind kind, const void* body, unsigned length, PathIndex path, SendQueue& queue,
                      PathIndex marked = kNoPath);
    static int gather(Buffer& buffer, const Work* pieces, unsigned device, ibv_sge* sge); // entries
    static std::uint32_t fence_of(Buffer& buffer); // its number, 0: not a fenced message
    bool send_ack(Channel& channel, Kind kind);
    void send_due_acks();
    void owe_ack(Channel& channel, bool now);

    // -- What both sides agree on, and messages larger than the peer's segment: parts.cc
    [[nodiscard]] connect::Terms own_terms() const;
    std::string misfit(const connect::Terms& theirs) override;
    void agree(Channel& channel);
    [[nodiscard]] std::uint32_t part_size(const Channel& channel) const;
    [[nodiscard]] unsigned most_parts(const Channel& channel) const;
    [[nodiscard]] bool room_for_parts(Channel& channel);
    Status start_parts(Channel& channel, Start& start);
    void finish_parts(Channel& channel, const Start& start, std::uint8_t am_id, std::uint32_t length); // of `whole`
    Status am_zcopy_parts(Channel& channel, std::uint8_t id, const void* header, unsigned header_length, const Iov* iov,
                          std::size_t count);
    void join_part(Channel& channel, const MessageHeader& header, const std::byte* payload, std::uint32_t bytes);
    [[nodiscard]] bool grow_joined(Channel& channel, std::uint32_t bytes);
    void drop_joined(Channel& channel);

    // -- RDMA: rdma.cc
    Status rdma(Channel& channel, Work& work);
    template <bool read> Status rdma_sole(Channel& channel, SendQueue& queue, const Iov* iov, std::size_t count,
                                          std::uint64_t remote, const verbs::RemoteKeys& rkeys, Completion* completion);
    Status rdma_by_plan(Channel& channel, Work& work);
    PathIndex lane_of_puts(Channel& channel); // kNoPath: no room
    void put_copied(Channel& channel, Buffer& bounce, std::uint32_t length, std::uint64_t remote,
                    const verbs::RemoteKeys& rkeys, PathIndex path);
    Status nothing_to_do(Work& work);
    void post_piece(Channel& channel, Work& work, std::uint64_t offset, std::uint64_t length, PathIndex path,
                    SendQueue& queue);
    bool post_stripe(Channel& channel, Work& work, std::uint64_t offset, std::uint64_t length, PathIndex path);
    void pull(Channel& channel);
    void pull(Channel& channel, bool read);
    [[nodiscard]] schedule::Message message(const Channel& channel, std::uint64_t size, bool read, Nanos now) const;
    void append(Channel& channel, Work& work);
    void unlink(Channel& channel, bool read, Work& work);
    std::uint64_t ahead_of_reads(Channel& channel, std::uint64_t size, Nanos now);
    void release_writes(Channel& channel, Nanos now);
    bool post_until(Channel& channel, Work& work, std::uint64_t end, Nanos now);
    void pull_due();
    Work* new_work(Channel& channel, WorkKind kind, Completion* completion);
    void finish_work(Work& work);                                    // open has come to 0
    void finish(Work& work);                                         // the same, inline
    [[nodiscard]] bool finish_unusual(Channel& channel, Work& work); // false: it is not over, after all

    // -- Atomics: atomic.cc
    Status atomic(Channel& channel, AtomicOp op, unsigned width, std::uint64_t value, std::uint64_t compare,
                  void* result, std::uint64_t remote, const verbs::RemoteKeys& keys, Completion* completion,
                  bool fetch);
    Status adapter_atomic(Channel& channel, AtomicOp op, unsigned width, std::uint64_t value, std::uint64_t compare,
                          void* result, std::uint64_t remote, const verbs::RemoteKeys& keys, Completion* completion,
                          bool fetch);
    void serve_atomic(Channel& channel, const AtomicRequest& request);
    void serve_replies(); // replies that found no room
    void take_reply(Channel& channel, const AtomicReply& reply);

    // -- Fences and flushes: fence.cc
    void fence(Channel& channel);
    bool clear_drain(Channel& channel);
    Status flush(Channel& channel, Completion* completion);
    void push(Channel& channel);
    void push_due();
    bool push_out(Channel& channel); // a completion for every unsignaled request; false: no room for one
    void epoch_done(Channel& channel, std::uint8_t epoch, std::uint32_t count = 1);
    void close_epochs(Channel& channel);

    // -- What the peer's memory shows: visible.cc
    void note_devices(Channel& channel); // after a change of the peer's rails, or of our paths
    void mark_unseen(Channel& channel);
    [[nodiscard]] PathMask one_per_device(const Channel& channel, PathMask paths) const;
    [[nodiscard]] PathIndex beside(const Channel& channel,
                                   PathIndex path) const; // it or another to the same adapter; kNoPath: none
    void read_back(Channel& channel);                     // part of the present epoch
    void add_read_back(Channel& channel, PathMask paths, Completion* completion);
    void read_back_all(Channel& channel); // over all paths: recovery
    void post_read_backs(Channel& channel);
    [[nodiscard]] bool post_read_back(Channel& channel, Work& work); // false: not now
    void read_back_lost(Channel& channel, Work& work);
    void read_back_again(Channel& channel, Work& work);
    [[nodiscard]] bool finish_read_back(Channel& channel, Work& work); // as finish_unusual()
    void end_read_backs(Channel& channel, Status status);
    void read_backs_due_again();

    // -- Completions: complete.cc
    // `all`: also for sends that have not asked for a completion, and may have failed.
    unsigned poll(Adapter& adapter, bool all);
    unsigned poll_receives(Adapter& adapter);
    template <bool extended> unsigned poll_sends(Adapter& adapter);
    void handle_receive(Adapter& adapter, std::uint64_t id, ibv_wc_status status, std::uint32_t length,
                        std::uint32_t qp_number);
    void handle_send(Adapter& adapter, std::uint64_t id, ibv_wc_status status, std::uint64_t ticks,
                     std::uint32_t vendor_error);
    unsigned handle_peeked(Adapter& adapter);
    void reap_sole(SendQueue& queue, std::uint16_t position);
    bool peek(Adapter& adapter); // something is there; it is kept for the next poll
    void reap(Adapter& adapter, SendQueue& queue, std::uint16_t position, std::uint64_t ticks);
    void tally(const Posted& posted);  // statistics
    void settle(const Posted& posted); // may call the user
    void send_failed(SendQueue& queue, std::uint16_t position, ibv_wc_status status, std::uint32_t vendor_error);
    void fail_channel(Channel& channel, Status status);
    [[nodiscard]] static bool all_back(const Channel& channel); // what has been posted
    void free_retained(Channel& channel);
    void tell_failures();

    // -- Recovery: uct_mp/recover. fail.cc
    recover::Recovery& recovery_of(Channel& channel);
    [[nodiscard]] bool recoverable(const Channel& channel) const;
    void set_phase(recover::PathRecovery& r, recover::Phase phase);
    void note(const Channel& channel, recover::Transition::What what, PathIndex path, Nanos since = 0,
              std::uint32_t again = 0,
              const char* cause = nullptr); // in the history
    void list_recovering(Channel& channel);
    // `stays`: mp_dc, the path may go on being used, only what was posted is lost.
    void path_failed(Channel& channel, PathIndex path, const char* cause, bool stays);
    void drain(SendQueue& queue, Channel& channel, PathIndex path);
    void end(SendQueue& queue, Channel& channel, PathIndex path);
    void end_queue(SendQueue& queue, Channel& channel, PathIndex path);
    void drop_posted(SendQueue& queue);
    void note_back(Channel& channel, PathIndex path);
    void lose(SendQueue& queue, const Posted& posted);
    void mark_messages(Channel& channel, PathIndex path);
    void end_detours(Channel& channel, PathIndex path);
    void drained(Channel& channel, PathIndex path);
    void rail_failed(unsigned rail, const char* cause, bool device_gone);
    void rail_active(unsigned rail);
    void read_events();
    void abandon_recovery(Channel& channel, Status status);
    // jobs.cc
    void add_job(recover::Job job);
    void add_path_job(Channel& channel, recover::Job::What what, const connect::PathNews& news); // once, however often
    void run(const recover::Job& job);
    void run_jobs();
    [[nodiscard]] bool jobs_wait() const { return !jobs[0].empty() || !jobs[1].empty(); }
    // exchange.cc
    void path_news(connect::Connection& connection, connect::PathKind kind, const connect::PathNews& news) override;
    void take_news(Channel& channel, connect::PathKind kind, const connect::PathNews& news); // progress
    void tell_peer(Channel& channel, connect::PathKind kind, const connect::PathNews& news, unsigned attempt);
    bool tell_over_path(Channel& channel, connect::PathKind kind, const connect::PathNews& news); // false: no room
    [[nodiscard]] std::uint32_t random_psn();
    void set_path_timer(Channel& channel, PathIndex path, Nanos at, void (Impl::*fn)(Channel&, PathIndex));
    void ask(Channel& channel, PathIndex path);
    void on_path_down(Channel& channel, const connect::PathNews& news);
    void tell_gone(Channel& channel, PathIndex path);
    void answer_questions();
    [[nodiscard]] bool may_open(const Channel& channel) const;
    void schedule_open(Channel& channel, PathIndex path);
    [[nodiscard]] Nanos pause_between_tries(const Channel& channel, const recover::PathRecovery& r) const;
    bool connect_half(Channel& channel, PathIndex path, verbs::QueuePair& qp, const connect::LocalEnd& ours,
                      const connect::LocalEnd& theirs);
    void time_to_open(Channel& channel, PathIndex path);
    void try_open(Channel& channel, PathIndex path);
    void on_path_open(Channel& channel, const connect::PathNews& news);
    void on_path_opened(Channel& channel, const connect::PathNews& news);
    void take_path_up(Channel& channel, PathIndex path, std::uint32_t life);
    void path_is_up(Channel& channel, PathIndex path);
    void greet(Channel& channel, PathIndex path);
    void resume(Channel& channel);
    // join.cc
    void renew_rail(unsigned rail);
    void test_numbers(unsigned device);
    void take_numbers();
    [[nodiscard]] bool is_absent(const Channel& channel, PathIndex path) const {
        return channel.recovery && channel.recovery->paths[path].phase == recover::Phase::absent;
    }
    void join_paths(Channel& channel);
    [[nodiscard]] bool may_join(const Channel& channel, PathIndex path, bool routed) const;
    [[nodiscard]] bool has_places(Channel& channel);
    void widen(Channel& channel);
    [[nodiscard]] bool wanted(const Channel& channel, PathIndex path) const;
    void join(Channel& channel, PathIndex path);
    void find_spares(Channel& channel);
    bool address_target(Channel& channel, PathIndex path);
    // reopen.cc
    void device_died(unsigned device);
    void tell_rails();
    void try_reopen(unsigned device);
    [[nodiscard]] bool may_adopt(unsigned device);
    [[nodiscard]] bool adopt(const verbs::Device& now);
    void tell_self(Channel& channel); // if it is one to ourselves: of our rails, as they are now
    void let_go(unsigned device);
    void watch_descriptors(unsigned device);
    [[nodiscard]] bool is_ready(Channel& channel, PathIndex path);
    // keys.cc
    bool find_keys(std::uint64_t region, verbs::RemoteKeys& out) override;
    void keys_told(connect::Connection& connection, bool found, const verbs::RemoteKeys& told) override;
    // False: the peer has been asked, the channel waits.
    bool present_keys(Channel& channel, const verbs::RemoteKeys*& keys);
    void note_lives(Channel& channel);
    void ask_keys(Channel& channel, std::uint64_t region);
    void repeat_question(Channel& channel, std::uint64_t region);
    void take_keys(Channel& channel, bool found, const verbs::RemoteKeys& told);
    void stop_asking(Channel& channel);
    // migrate.cc
    void load_first_alternate(connect::Connection& connection, PathIndex path, Subchannel& sub);
    void load_alternate(const connect::Connection& connection, PathIndex path, Subchannel& sub);
    [[nodiscard]] bool may_migrate(const Channel& channel, PathIndex path) const;
    void tell_to_migrate(Channel& channel, PathIndex path, const char* cause);
    void migrate(Channel& channel, PathIndex path);
    void exchange_migration(Channel& channel, PathIndex path);
    void take_migrations();
    void has_migrated(Channel& channel, PathIndex path);
    void turn_route(Channel& channel, PathIndex path);
    void forget_migration(Channel& channel, PathIndex path);
    void go_back(Channel& channel, PathIndex path, unsigned rail);
    void probe_home(Channel& channel, PathIndex path);
    void home_answers(Channel& channel, PathIndex path);
    // watch.cc
    void watch_paths(Nanos now);
    void watch_path(Channel& channel, PathIndex path, Nanos now);
    void path_answers(Channel& channel, PathIndex path);
    // replay.cc
    void redo(Channel& channel, Work& of, std::uint64_t offset, std::uint64_t bytes);
    void finish_replayed(Channel& channel, Work& work);
    void settled(Channel& channel, PathIndex path);
    bool send_again(Channel& channel, Buffer& buffer);
    PathIndex place_again(Channel& channel, Buffer& buffer, std::uint64_t bytes);
    PathIndex place_put_again(Channel& channel, PathIndex path, std::uint64_t bytes);
    bool place_puts_again(Channel& channel, const schedule::Transfer& transfer, schedule::Stripe& chunk);
    void resend(Channel& channel);
    void heal(Channel& channel);
    bool send_markers(Channel& channel);
    void release_holds(Channel& channel);
    void pull_sole(Channel& channel);
    bool recover(Channel& channel);
    void recover();
    void count_look(unsigned found); // by a round of progress over all adapters
    // What had come by then (`since`: `looks` at that moment) has been handled.
    [[nodiscard]] bool looked_since(std::uint32_t since) const { return looks - since >= 2; }

    // -- Peers that may be dead: peer.cc
    void judge_peer(Channel& channel);
    void no_path_left(Channel& channel);
    void still_no_path(Channel& channel);
    [[nodiscard]] bool has_witness(const Channel& channel) const;
    void hear_answer(Channel& channel, connect::Answer answer);
    bool write_nothing(Channel& channel, PathIndex path, SendQueue& queue);
    void check(Channel& channel);
    void bury(Channel& channel);
    void abandon(Channel& channel);
    void restart_later(SendQueue& queue);
    void restart(SendQueue& queue);
    void watch_peers(Nanos now);

    // -- One of several endpoints: cancel.cc
    Completion* tag(Completion* user, std::uint32_t origin);
    void untag(Completion* completion);
    Status cancel(Channel& channel, std::uint32_t origin, Completion* completion);
    Status join_cancel(Channel& channel, std::uint32_t origin, Completion* completion);
    void announce(Cancel& cancel);
    void go_on(Cancel& cancel);
    void cancel_waiting(Cancel& cancel);
    void cancel_retained(Cancel& cancel);
    void take_back_posted(Cancel& cancel);
    Channel& canceled_channel();

    // -- Receiving: receive.cc
    void receive(Adapter& adapter, ReceiveBuffer* buffer, std::uint32_t length, std::uint32_t qp_number);
    // By what the adapter has heard last; `from`: that, see Adapter::heard.
    void receive_heard(Adapter& adapter, ReceiveBuffer* buffer, std::uint32_t length, std::uint64_t from);
    [[gnu::noinline]] void receive_other(Adapter& adapter, ReceiveBuffer* buffer, std::uint32_t length,
                                         std::uint64_t from);
    void receive_unusual(Adapter& adapter, ReceiveBuffer* buffer, std::uint32_t length, std::uint64_t from);
    // What came there by `from` was sent by this channel's peer. `path`: the message's own word, a hint.
    [[nodiscard]] bool is_from(const Adapter& adapter, Channel& channel, PathIndex path, std::uint64_t from);
    [[nodiscard]] bool has_queue_pair(const Subchannel* subs, unsigned count, const Adapter& adapter, PathIndex path,
                                      std::uint64_t number) const;
    [[gnu::cold]] void drop_forged(const Channel& channel);
    // Delivers in place; true: the buffer may be given back.
    bool deliver(Channel& channel, ReceiveBuffer* buffer, std::uint32_t length);
    // False: no memory for it, and the channel has been ended.
    bool store_early(Channel& channel, ReceiveBuffer* buffer, std::uint32_t length, std::uint32_t sequence);
    // The peer has sent what nobody sends who keeps to the agreement. Its channel ends.
    [[gnu::cold]] void broken(Channel& channel, const char* what, std::uint64_t detail);
    void drain_early(Channel& channel);
    bool markers_in(Channel& channel, const MessageHeader& header, const std::byte* message, std::uint32_t length);
    void take_marker(Channel& channel, std::uint32_t number, PathIndex path);
    void take_ack(Channel& channel, std::uint32_t ack);
    bool hand_over(const MessageHeader& header, std::byte* payload, std::uint32_t bytes); // as deliver()
    ReceiveBuffer* get_stored();
    void release(ReceiveBuffer* buffer);

    void calibrate();
    void list_waiting(Channel& channel);
    void wake_waiting();

    // What every progress looks at, together: few cache lines.
    std::unique_ptr<Adapter[]> adapters;
    unsigned adapter_count = 0;
    unsigned polled_count = 0;   // the others, the last ones, have had no active port yet: nothing can have come there
    unsigned latest_adapter = 0; // the last one that had something
    std::uint32_t rounds = 0;    // of progress, wraps
    std::uint32_t quiet_mask, silent_mask; // rounds in which an adapter is asked that has been quiet, or silent
    const std::uint32_t ring;              // entries of a channel's rings: config.window or more, a power of two
    std::uint32_t at_work = 0;             // completions found since progress has last found nothing
    unsigned until_control = 1;
    bool alert = false;          // some path is not up, or something else is to be repaired
    unsigned recovery_steps = 0; // things that happened there, in this round
    bool listed =
        false; // something is, or was a moment ago, in replies, ..._due, failures, endings or waiting; or provide_due
    std::uint32_t looks = 0;  // see count_look(); wraps
    unsigned crowded = 0;     // rounds of the look under way
    unsigned connected = 0;   // channels that have been established, and not been given back
    unsigned unused = 0;      // channels without an endpoint. Under the lock
    bool trim_due = false;    // there are many of those. Under the lock
    bool closing = false;     // the interface. Under the lock
    bool provide_due = false; // ... since receives were provided
    std::unique_ptr<connect::ControlPlane> control;
    const AmHandler* const handlers;
    ReceiveLayout layout;
    std::atomic<bool> attention{false}; // attend() now: mail, or a handshake under way
    // Ids carry a generation, so that late messages of an earlier run are recognised.
    Channel nobody; // in free slots
    ChannelTable channels{nobody};
    struct PendingReply {
        Channel* channel;
        AtomicReply reply;
    };
    std::vector<PendingReply> replies;
    std::vector<Channel*> pushes_due;
    std::vector<Channel*> acks_due;
    std::vector<Channel*> failures;
    std::vector<Channel*> pulls_due;
    std::vector<Channel*> read_backs_due;
    std::vector<Channel*> waiting;
    std::vector<Channel*> endings; // failed or unused, and to be given back
    std::vector<Channel*> leavers; // their peers have said goodbye
    template <class T> void enlist(std::vector<T>& in, const std::type_identity_t<T>& what) {
        in.push_back(what);
        listed = true;
    }

    verbs::DeviceSet devices;       // their lives that this interface uses. Progress changes it, under the lock
    std::vector<verbs::Rail> rails; // of `devices`, as they are now. Progress changes it, under the lock
    const Config config;
    Services& services;
    Events& events;
    const verbs::KeyTable& keys;

    Limits limits{};
    std::uint32_t inline_bytes = 0; // that every queue pair grants
    BufferPool small, large;
    WorkPool works;
    schedule::Plan plan; // scratch

    // The channel with this id of ours; null: there is none.
    [[nodiscard]] Channel* channel_with(std::uint32_t id) const {
        const std::uint32_t slot = id & kSlotMask;
        if (slot >= channels.size()) return nullptr;
        Channel* channel = channels[slot];
        return channel->local_id == id ? channel : nullptr;
    }
    // Under the lock
    std::unordered_map<std::uint64_t, Channel*> by_uid;
    // Recovery
    std::vector<Channel*> recovering; // have something to do in every progress
    int paths_away = 0;               // that are not up: the control plane is asked all the time
    verbs::DeviceEvents::Seen seen_events[verbs::kMaxRails];
    std::uint32_t untested = config.recovery.untested; // devices that have not shown yet that they tell packet numbers
    // Those that are being tested, or wait for it: verbs/packet_numbers.h
    std::unique_ptr<verbs::PacketNumberTest> number_tests[verbs::kMaxDevices];
    std::uint32_t numbers_wanted = 0;
    Services::Timer numbers_timer = 0;                     // runs while there are any
    std::uint32_t more_downs[verbs::kMaxRails] = {};       // events of it, than ups, while the port is up; wraps
    [[nodiscard]] bool port_is_down(unsigned rail) const { // as far as events have told
        return seen_events[rail].downs - seen_events[rail].ups != more_downs[rail];
    }
    std::uint32_t seen_migrations[verbs::kMaxDevices] = {};
    std::vector<Mail> mail;
    Services::Timer reopen_timer[verbs::kMaxDevices] = {}; // runs while the device is dead
    unsigned reopen_attempts[verbs::kMaxDevices] = {};
    bool timed = false; // completions of adapters bring timestamps, if they can
    // Queue pairs that a handshake has made and dropped, whole or half-way. Progress destroys them, since a completion
    // queue has one user (Adapter's are made for a single thread, and destroying takes what is left of a queue pair out
    // of them): a few at a time, each is a command. Under the lock.
    std::vector<std::unique_ptr<SendQueue>> graves;
    Nanos next_clearing = 0;
    recover::History history;
    std::deque<recover::Job> jobs[2]; // urgent, others
    Services::Timer jobs_timer = 0;   // runs while jobs wait for their time
    Nanos next_watch = 0, next_path_watch = 0;
    Services::Timer watch_timer = 0; // runs while some path is suspect
    struct Question {                // mp_dc: a peer wants to know what has come
        Channel* channel;
        std::uint32_t id;
        PathIndex path;
        std::uint32_t life;
        std::uint32_t round; // `looks` when it came
    };
    std::vector<Question> questions;
    unsigned question_attempts = 0;
    std::vector<std::unique_ptr<std::byte, void (*)(void*)>> stored_chunks;
    ibv_recv_wr* stored_free = nullptr;
    void keep_stored(ReceiveBuffer* buffer) {
        buffer->wr.next = stored_free;
        stored_free = &buffer->wr;
    }
    std::unique_ptr<std::byte[]> whole; // a message that goes in parts; made when first needed
    unsigned tick = 0;
    std::uint64_t dropped = 0;
    std::uint64_t forged = 0; // of them: by other than the channel's peer
    Nanos next_forged_line = 0;
    int event_fd = -1;
    std::vector<std::unique_ptr<Cancel>> cancels;
    std::vector<std::unique_ptr<Tag>> tags; // all of them
    Tag* free_tags = nullptr;
    std::unique_ptr<Channel> canceled;

    // What peers read that want to know whether what they have written here is seen
    alignas(connect::kProbeBytes) std::byte probe_bytes[connect::kProbeBytes] = {};
    verbs::Registration probe_region;

    // mp_dc
    std::vector<DcRail> dc_rails;
    std::uint64_t dc_key = 0;
    verbs::AddressHandles address_handles;
    // Soon after the first, so that a nominal rate that is off (adapters', or the host clock's own) does little harm.
    Nanos next_calibration = 0, calibration_interval = 1'000'000;
};

} // namespace ucx_mp::channel
