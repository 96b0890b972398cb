// A UCT interface: the core's Interface with UCX's base in front, and what UCX expects beside it (pending requests,
// wake-up, errors per endpoint).
//
// Threads: the worker's, one at a time (UCX locks around workers that several threads use), and UCX's async thread,
// which answers peers while the application computes (background.cc). VFS reads from a thread of its own: what it shows
// is a copy that the worker's thread makes on demand.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "uct_mp/channel/interface.h"
#include "uct_mp/channel/statistics.h"
#include "uct_mp/ucx/compat.h"
#include "uct_mp/ucx/services.h"

namespace ucx_mp::face {

class Iface;
class Md;
struct Ep;

// A request that waits for room; lives in uct_pending_req_t::priv.
struct PendingLink {
    uct_pending_req_t* next;
    Ep* ep;
};
static_assert(sizeof(PendingLink) <= UCT_PENDING_REQ_PRIV_LEN);
[[nodiscard]] inline PendingLink& link(uct_pending_req_t* request) {
    return *reinterpret_cast<PendingLink*>(request->priv);
}

// All endpoints to one peer share a channel, so they share its queue of waiting requests: first come, first served.
// Exists while it has endpoints, or is being worked on (busy).
struct Peer {
    Iface* iface = nullptr;
    channel::Channel* channel = nullptr;
    std::uint64_t uid = 0; // of the peer's interface
    std::vector<Ep*> eps;
    uct_pending_req_t* first = nullptr;
    uct_pending_req_t* last = nullptr;
    std::uint32_t numbers = 0; // of endpoints, given out
    unsigned busy = 0;         // callbacks of the user under way: don't delete
    bool retry = false;        // in Iface::retry_
    bool failed = false;       // peer_failed() was called
};

// An endpoint holds what the data path needs, and nothing else on this cache line.
struct Ep : uct_base_ep_t {
    channel::Interface* core;
    channel::Channel* channel;
    Peer* peer;
    // 0: the first of those that share the channel (nearly always the only one). See cancelling in ep.h.
    std::uint32_t origin = 0;
    channel::Channel* cancelled = nullptr; // the channel that it has left: UCT_FLUSH_FLAG_CANCEL

    [[nodiscard]] static Ep& of(uct_ep_h ep) { return *static_cast<Ep*>(reinterpret_cast<uct_base_ep_t*>(ep)); }
};

class Iface : public uct_base_iface_t {
public:
    static ucs_status_t open(connect::Transport transport, uct_md_h md, uct_worker_h worker,
                             const uct_iface_params_t* params, const uct_iface_config_t* options, uct_iface_h* out);
    [[nodiscard]] static Iface& of(uct_iface_h iface) {
        return *static_cast<Iface*>(reinterpret_cast<uct_base_iface_t*>(iface));
    }

    [[nodiscard]] channel::Interface& core() { return *core_; }
    [[nodiscard]] const channel::Config& config() const { return config_; }
    // A fresh copy; if the worker does not progress within some milliseconds, the last one. From another thread.
    [[nodiscard]] channel::Interface::Statistics statistics();

    // What an endpoint's interface is recognised by.
    [[nodiscard]] static auto close_operation() { return ops_.iface_close; }

    // The endpoint leaves its channel: all that it does from now on fails with UCS_ERR_CANCELED.
    static void leave(Ep& ep);

    // ep.cc, pending.cc
    static ucs_status_t ep_create(const uct_ep_params_t* params, uct_ep_h* out);
    static void ep_destroy(uct_ep_h ep);
    static ucs_status_t ep_pending_add(uct_ep_h ep, uct_pending_req_t* request, unsigned flags);
    static void ep_pending_purge(uct_ep_h ep, uct_pending_purge_callback_t callback, void* arg);

private:
    class Sink final : public channel::Events {
    public:
        explicit Sink(Iface& iface) : iface_(iface) {}
        void room(channel::Channel& channel) override { iface_.room(channel); }
        void peer_failed(channel::Channel& channel, Status status) override { iface_.peer_failed(channel, status); }
        void new_control_fd(int fd) override { iface_.watch_in_background(fd); }

    private:
        Iface& iface_;
    };
    // A handler that keeps a message returns UCS_INPROGRESS and later calls uct_iface_release_desc() with the start of
    // the headroom; UCX finds this, which says what to do, in the word before it (Config::keeper).
    struct ReleaseHook : uct_recv_desc_t {
        Iface* iface;
    };
    explicit Iface(Md& md) : md_(md) {}
    ~Iface();
    ucs_status_t open_base(uct_md_h md, uct_worker_h worker, const uct_iface_params_t* params,
                           const uct_iface_config_t* options);
    ucs_status_t open_core(const uct_iface_params_t* params, const uct_iface_config_t* options);

    // iface.cc
    static void close(uct_iface_h iface);
    static ucs_status_t query(uct_iface_h iface, uct_iface_attr_t* attr);
    static ucs_status_t estimate_perf(uct_iface_h iface, uct_perf_attr_t* attr);
    static ucs_status_t get_device_address(uct_iface_h iface, uct_device_addr_t* out);
    static ucs_status_t get_address(uct_iface_h iface, uct_iface_addr_t* out);
    static int is_reachable(const uct_iface_h iface, const uct_device_addr_t* device, const uct_iface_addr_t* address);
    static ucs_status_t flush(uct_iface_h iface, unsigned flags, uct_completion_t* completion);
    static ucs_status_t fence(uct_iface_h iface, unsigned flags);
    static unsigned progress(void* iface);
    [[gnu::noinline]] unsigned progress_rarely();
    static void progress_enable(uct_iface_h iface, unsigned flags);
    // wakeup.cc
    static ucs_status_t event_fd_get(uct_iface_h iface, int* fd);
    static ucs_status_t event_arm(uct_iface_h iface, unsigned events);
    ucs_status_t open_event_fd();
    // background.cc
    [[nodiscard]] bool open_background();
    bool watch_in_background(int fd);
    void close_background();
    static void serve(int id, ucs_event_set_types_t events, void* iface);
    static void release(uct_recv_desc_t* hook, void* descriptor);
    // vfs.cc
    static void vfs_refresh(uct_iface_h iface);

    // pending.cc
    void room(channel::Channel& channel);
    void peer_failed(channel::Channel& channel, Status status);
    void dispatch(Peer& peer);
    unsigned attend();
    unsigned dispatch_retries();
    void drop_if_unused(Peer& peer);
    Peer& peer_of(channel::Channel& channel, std::uint64_t uid);
    static void push_back(Peer& peer, uct_pending_req_t* request);

    static uct_iface_ops_t ops_;
    static uct_iface_internal_ops_t internal_ops_;

    bool base_open_ = false;
    Md& md_;
    UcxServices services_;
    Sink sink_{*this};
    channel::Config config_;
    ReleaseHook release_{};
    std::size_t headroom_ = 0; // bytes, as the user asked for
    std::unique_ptr<channel::Interface> core_;
    std::mutex peers_lock_; // of the map and of Peer::eps, against VFS: slow path
    std::unordered_map<channel::Channel*, std::unique_ptr<Peer>> peers_;
    std::vector<Peer*> retry_; // dispatch again at the next progress
    int event_fd_ = -1, timer_fd_ = -1;
    int background_fd_ = -1; // what the asynchronous side waits for
    // Set when progress has something rare to do: retry_, or a copy of the statistics.
    std::atomic<bool> attention_{false};
    std::mutex statistics_lock_;
    std::condition_variable statistics_made_;
    bool statistics_wanted_ = false;
    channel::Interface::Statistics statistics_;
};

} // namespace ucx_mp::face
