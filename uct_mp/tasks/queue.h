// Queues that wait: triggered writes that an adapter executes while no processor looks.
//
// A queue leads to one peer over one rail. A *task* is a list of requests: wait for words of ours, put data into the
// peer's memory, put a word behind it. All tasks of a queue are executed in order, each request behind those before it.
// A word is 8 bytes of registered memory with one writer. It follows its data if both came over the same queue.
//
// A WAIT compares for equality. So a word must not pass a value that somebody still waits for.
//
// A queue fails as a whole: by a completion, because its port has gone down, or because its owner ends it. An adapter
// whose port is down tries again for as long as its retries last (half a second), and gives up then: nobody waits for
// that. Our half is dead once end() has returned ok: nothing leaves and nothing arrives any more. Then it tells the
// peer how far it has come (Ended). How far each side's tasks went is known (how_far) only when both halves are dead.
// Before that something could still arrive that was taken for lost.
//
// The adapter may keep a task waiting for ever. An owner that gives up ends the queue.
//
// Threads: one at a time for all of a pool. Nothing here allocates but create(). Source: mlx5dv_create_qp(3), and how
// UCC uses the same request.
#pragma once

#include <cstdint>
#include <vector>

#include "uct_mp/host/status.h"
#include "uct_mp/verbs/device.h"
#include "uct_mp/verbs/queue_pair.h"

struct mlx5dv_qp_ex;

namespace ucx_mp::tasks {

class Pool;

inline constexpr unsigned kMostRequests = 1024; // of a queue, under way
inline constexpr unsigned kInline = 8;          // a word

// A half tells this to the other one to be connected: without gaps, little endian.
struct Half {
    std::uint8_t version;  // kHalfVersion
    std::uint8_t mtu;      // ibv_mtu
    std::uint8_t device;   // index of the adapter whose keys are to be used
    std::uint8_t ethernet; // RoCE: gid, else lid
    std::uint16_t lid, zero;
    std::uint32_t qp_number;
    std::uint32_t first_psn;
    std::uint8_t gid[16];
};
inline constexpr std::uint8_t kHalfVersion = 1;
static_assert(sizeof(Half) == 32);

// How far a dead half has come: so many of its tasks are complete for
// certain. Later ones may have arrived or not, in order: words tell.
struct Ended {
    std::uint32_t version; // kHalfVersion
    std::uint32_t zero;
    std::uint64_t done, posted;
};
static_assert(sizeof(Ended) == 24);

class Queue {
public:
    Queue(Pool& pool, const verbs::Device& device, const verbs::Rail& rail, unsigned depth);
    ~Queue();
    Queue(const Queue&) = delete;

    void tell(Half& out) const;
    // invalid_param: not written by tell(). io_error: the adapter refuses (logged by errno).
    Status connect(const Half& peer);

    // The requests of the next task. no_resource: more than `depth`; invalid_param: a word that is not aligned.
    Status wait(std::uint64_t word, std::uint32_t lkey, std::uint64_t value);
    Status write(std::uint64_t from, std::uint32_t bytes, std::uint32_t lkey, std::uint64_t to, std::uint32_t rkey);
    Status word(std::uint64_t value, std::uint64_t to, std::uint32_t rkey);
    // The task: all of it is given to the adapter, or nothing. no_resource: not room enough before others are complete,
    // and it stays as it is; io_error: the queue has failed or ended, the task is forgotten.
    Status post();
    void forget() { filled_ = 0; } // drops requests that were added and not posted

    // ok: dead. in_progress: the adapter still gives requests back; call again after
    // Pool::poll(). io_error: it refuses (errno). Ends at once where the adapter has died.
    Status end();
    // in_progress: one half is not dead yet. Else how far ours has come (dead()), and the peer's, as it has told.
    Status how_far(const Ended& peer, Ended& ours) const;
    [[nodiscard]] Ended ended() const; // our half's, which is dead

    [[nodiscard]] bool connected() const { return state_ == State::connected; }
    [[nodiscard]] bool failed() const { return state_ == State::failed || state_ == State::ending; }
    [[nodiscard]] bool dead() const { return state_ == State::dead; }
    [[nodiscard]] std::uint64_t posted() const { return posted_; }
    [[nodiscard]] std::uint64_t done() const { return done_; } // tasks that are complete
    [[nodiscard]] ibv_wc_status trouble() const { return trouble_; }
    [[nodiscard]] unsigned depth() const { return depth_; }
    [[nodiscard]] std::uint32_t number() const { return qp_ ? qp_->qp_num : 0; }

private:
    friend class Pool;
    enum class State : std::uint8_t { made, connected, failed, ending, dead };
    struct Request {
        enum class Kind : std::uint8_t { wait, write, word } kind;
        std::uint32_t bytes, lkey, rkey;
        std::uint64_t local; // wait: the word; write: from
        std::uint64_t value; // wait, word
        std::uint64_t remote;
    };
    Status add(const Request& request);
    void completed(const ibv_wc& wc);
    void look_at_port();
    void set(State to);
    void all_back();
    void leave();

    Pool& pool_;
    const verbs::Device& device_;
    verbs::Rail rail_;
    verbs::QueuePair qp_;
    ibv_qp_ex* ex_ = nullptr;
    mlx5dv_qp_ex* dv_ = nullptr;
    unsigned depth_ = 0, filled_ = 0, used_ = 0; // requests: in all, of the next task, under way
    std::vector<Request> task_;
    std::vector<unsigned> sizes_;                    // requests of the tasks under way, by task modulo depth
    std::uint64_t posted_ = 0, done_ = 0, back_ = 0; // tasks; back: complete or flushed
    std::uint32_t first_psn_ = 0;
    const std::uint32_t downs_; // of its port, when it was made
    State state_ = State::made;
    ibv_wc_status trouble_ = IBV_WC_SUCCESS;
};

} // namespace ucx_mp::tasks
