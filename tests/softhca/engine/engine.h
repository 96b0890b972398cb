// The adapter's work of one process (or of one virtual-time world): send queues, timers, responders executed on behalf
// of peers, completion queues. Who drives it in real time: every post and poll (try-lock), and one helper thread that
// sleeps until shortly before the next event. In virtual time: World::step() only.
#pragma once
#include <atomic>
#include <mutex>
#include <thread>

#include "engine/host_time.h"
#include "engine/objects.h"
#include "engine/scheduler.h"

namespace softhca {

class Waits;
struct FlightPool; // requester.cc
struct FlightPoolDelete {
    void operator()(FlightPool*) const;
};

unsigned cores(); // of this host

class Engine {
public:
    Engine(Process& process, bool virtual_time);
    ~Engine();
    static Engine* current(); // created with the first device context

    Process& process() { return process_; }
    Segment& seg() { return process_.seg(); }
    Network& network() { return *network_; }
    Scheduler& scheduler() { return scheduler_; }
    Nanos now() const { return process_.now(); }
    // As the program on this processor sees it (HostTime).
    Nanos program_now(uint32_t processor) { return host ? host->now(processor, now()) : now(); }
    std::recursive_mutex mutex; // see objects.h for the order

    // Runs events that are due. poll(): cheap check first, try-lock. Virtual time: no-ops.
    void poll() {
        if (next_due_.load(std::memory_order_relaxed) != kNever ||
            process_.seg().fabric.generation.load(std::memory_order_relaxed) !=
                generation_.load(std::memory_order_relaxed)) [[unlikely]]
            poll_slow();
    }
    // Like poll(), but what is due has happened afterwards, whichever thread is at it: may block, for no longer than
    // that takes.
    void catch_up();
    // A device is dead. Afterwards it uses no memory of the program: what is under way has its own copy.
    void note_death();
    // After scheduling under `mutex`: publishes the next due time. Starts the helper thread, or wakes it unless the
    // program polls.
    void kick();
    // The program has armed a queue: it will wait for an event rather than poll.
    void expect_sleep();
    // Virtual time: fires the earliest event at its time and returns true; false if there is none.
    bool step(Nanos& clock);

    // ---- data path (fast_path.cc, completion.cc) ----
    // 0 or an errno, nothing of `desc` is kept beyond the call except SGE target memory.
    int post_send(Qp& qp, const SendDesc& desc);
    int post_raw(Qp& qp, const SendDesc& desc); // likewise, of a request with the flag kRaw
    int post_recv(RecvQ& queue, const ibv_recv_wr& wr, uint32_t device, uint32_t pd);
    int poll_cq(Cq& cq, int entries, ibv_wc* wc);
    // ibv_cq_ex: next valid entry placed for reading (receive data already copied), nullptr if empty.
    Cqe* next_cqe(Cq& cq);
    static void retire(Cqe& e); // gives the entry's receive back to its queue; before consume_cqe
    void consume_cqe(Cq& cq);   // done with the entry next_cqe returned
    int arm_cq(Cq& cq, bool solicited_only);
    // Send queues of that adapter which stand at a WAIT look at their words: at each poll, since the program may have
    // written. Try-lock.
    void poll_waits(uint32_t device) {
        if (waiting_.load(std::memory_order_relaxed) != 0) [[unlikely]]
            look_at_waits(device);
    }
    Waits& waits();             // mutex
    void empty_poll(Cq& cq);    // after a poll that found nothing: gives way if cores are scarce
    uint32_t send_room(Qp& qp); // requests that the send queue takes now
    // wr_id of a completion entry (receive entries name a ring position).
    static uint64_t cqe_wr_id(const Cqe& e);

    // ---- set-up (qp_state.cc) ----
    // Legal transitions and attribute masks have been checked by the caller (verbs/modify_qp.cc). 0, or EINVAL if the
    // QP is not in state `from` any more.
    int apply_modify(Qp& qp, const ibv_qp_attr& attr, int mask, ibv_qp_state from, ibv_qp_state to);
    void fill_query(Qp& qp, ibv_qp_attr& attr);      // live parts: state, sq_psn, rq_psn, path_mig_state, cur path
    void init_qp(Qp& qp);                            // after rec is filled: creates the requester
    void destroy_qp(Qp& qp);                         // vanishes from the fabric, cleans its CQEs, waits for nobody
    void destroy_qps_of(const ibv_context* context); // those that the program has not destroyed
    // The QP goes to ERR: flushes both queues (and raises LAST_WQE_REACHED with an SRQ). mutex held.
    void enter_error(Qp& qp);
    void flush_posted(Qp& qp); // receives posted to a QP in ERR complete at once
    void clean_cq(Cq& cq, uint32_t qpn);

    uint32_t chunk_packets() const { return chunk_packets_; }
    bool modelled() const { return modelled_; }
    // May what arrived at `when` wait for what is due as well? deliver_gathered() is called soon then. mutex
    bool gather(class ReadStream& stream, Nanos when);
    void bury(Requester* r) { graveyard_.push_back(r); } // deleted when nothing refers to it any more
    std::vector<Qp*> qps; // all of this process, in order of creation; null: destroyed; mutex
    std::unique_ptr<FlightPool, FlightPoolDelete> flights; // chunks between injection and arrival; mutex
    std::vector<struct Placement*> placements;             // delayed data, oldest first (placement.cc); mutex
    std::atomic<uint32_t> late{0};                         // how many they are

    // Costs of verbs commands (0 create, 1 modify, 2 query, 3 reg, 4 destroy of a queue pair): real time is spent here;
    // in virtual time it is up to `on_command`, or the processor's. No lock is held.
    void charge_command(uint32_t device, int which, uint32_t caller);
    void (*on_command)(Nanos cost) = nullptr; // virtual time; nullptr: commands are free, or HostCosts::commands
    std::unique_ptr<HostTime> host;           // virtual time; nullptr: processors are infinitely fast
    uint32_t processor = 0;                   // virtual time: of who opens devices now

private:
    friend class Requester;
    // The processor collects completions, so many of them of receives.
    void charge_completions(const Cq& cq, uint32_t n, uint32_t receives) {
        if (!host) [[likely]]
            return;
        const sim::HostCosts& costs = host->costs;
        const Nanos receive = costs.receive != 0 ? costs.receive : costs.completion;
        host->spend(cq.processor, cq.rec->device, (n - receives) * costs.completion + receives * receive, now());
    }
    void poll_slow();
    void run_due(Nanos now);
    void deliver_gathered();
    void helper();
    void sleep_for(std::unique_lock<std::mutex>& lock, Nanos most);
    void look_at_waits(uint32_t device);
    [[nodiscard]] Nanos left_alone_for() const;
    void sweep();
    void forget_qp(const Qp& qp);
    // With many thousands of queue pairs, neither list is gone through at each that is destroyed.
    size_t destroyed_ = 0;  // nulls in qps
    size_t sweep_from_ = 1; // buried ones
    int post_slow(Qp& qp, const SendDesc& desc, uint64_t total);
    bool post_fast(Qp& qp, Requester& rq, const SendDesc& desc, uint64_t total);
    uint8_t check_local(const Qp& qp, const SendDesc& desc) const;
    void note_fabric_change();
    Process& process_;
    const std::atomic<uint32_t>& waiting_; // ProcSlot::waiting of ours
    Scheduler scheduler_;
    std::unique_ptr<Network> network_;
    std::atomic<Nanos> next_due_{kNever};
    std::atomic<bool> fires_{false}; // somebody is in run_due()
    std::atomic<uint64_t> poll_count_{0};
    bool virtual_time_;
    bool modelled_ = false;
    uint32_t chunk_packets_ = 4;
    std::atomic<uint32_t> generation_{0};
    std::vector<Requester*> graveyard_;
    std::unique_ptr<Waits> waits_;      // made by the first that stands
    std::vector<ReadStream*> gathered_; // what has arrived there is not copied yet
    Nanos gathered_until_ = 0;          // events that are due later find it copied
    bool gathers_ = false;              // in run_due()
    std::thread thread_;
    bool thread_started_ = false, stopping_ = false;
    std::mutex sleep_mutex_;   // the innermost one. It guards stopping_ and what follows
    Nanos sleeping_until_ = 0; // the helper, which kick() wakes before; 0: it does not sleep, or kick() lets it
    bool left_alone_ = false;  // it sleeps because the program polls
    uint64_t seen_polls_ = 0;  // poll_count_ up to here tells of no polling
};

// Pushes a completion; `entry` is copied (payload only in_payload bytes). Wakes the channel if armed. Overrun: CQ_ERR
// event. Any process; takes CqRec::lock. `seg`: the session. `held` (Responder::in_recv) is cleared in the moment in
// which the entry becomes visible: a producer that is killed leaves the receive with its queue pair or completed, not
// lost.
void push_cqe(Segment& seg, CqRec& cq, const Cqe& entry, uint8_t* held = nullptr);
// The same for a receive whose `length` bytes of payload (kCqePayload to kStagedMost) wait in the staging ring.
// no_room: nothing has happened; fault: likewise, the payload can't be read.
enum class Staging { done, no_room, fault };
struct LocalData; // engine/responder.h
[[nodiscard]] Staging push_staged(Segment& seg, CqRec& cq, Cqe& entry, const LocalData& payload, uint32_t length,
                                  uint8_t* held);
// Takes CqRec::lock and counts the entry that a killed producer may have made visible without counting it: all who take
// that lock and look at CqRec::tail, or leave the queue in use, do it this way. False: a live process holds it for
// longer.
[[nodiscard]] bool lock_cq(Segment& seg, CqRec& cq, uint32_t milliseconds);
void lock_cq(Segment& seg, CqRec& cq);
// One event, if the queue is armed and has an entry at `head` or behind that the arming is for and no event was sent
// for. The caller keeps the ring from being replaced. False: there was none to be sent.
bool announce_waiting(Segment& seg, CqRec& cq, uint64_t head);

} // namespace softhca
