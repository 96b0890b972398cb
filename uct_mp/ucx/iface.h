// A UCT interface: the core's Interface with UCX's base in front, and the rest that UCX expects.
//
// The rest: requests that wait and errors per endpoint (peers.h),
// sleeping (wakeup.h), an asynchronous side (background.h), statistics.
//
// Threads: the worker's, one at a time (UCX locks around workers that several threads use), and UCX's async thread.
// That answers peers while the application computes, and recovers if that is wanted (background.h). VFS reads from a
// thread of its own: what it shows is a copy that the worker's thread makes on demand.
#pragma once

#include <atomic>
#include <memory>

#include "uct_mp/channel/interface.h"
#include "uct_mp/host/mp_turn.h"
#include "uct_mp/ucx/background.h"
#include "uct_mp/ucx/config.h"
#include "uct_mp/ucx/peers.h"
#include "uct_mp/ucx/services.h"
#include "uct_mp/ucx/shared_statistics.h"
#include "uct_mp/ucx/tasks.h"
#include "uct_mp/ucx/wakeup.h"

namespace ucx_mp::face {

class Md;

class Iface : public abi::IfaceBase {
public:
    static constexpr char kDevice[] = "mp0";

    static ucs_status_t open(connect::Transport transport, uct_md_h md, uct_worker_h worker,
                             const uct_iface_params_t* params, const abi::IfaceOptionsBase& base_options,
                             const IfaceOptions& options, uct_iface_h* out);
    [[nodiscard]] static Iface& of(uct_iface_h iface) {
        return *static_cast<Iface*>(reinterpret_cast<abi::IfaceBase*>(iface));
    }

    [[nodiscard]] channel::Interface& core() { return *core_; }
    // If a thread recovers beside the program, each call marks its entry and its exit: abi::marked_operations. Calls by
    // another table do so by themselves.
    [[nodiscard]] mp_turn_t& turn() const { return *turn_; }
    [[nodiscard]] Peers& peers() { return peers_; }
    [[nodiscard]] UcxServices& services() { return services_; }
    [[nodiscard]] const channel::Config& config() const { return config_; }
    // Why no thread recovers beside the program. Empty: there is one, or none is wanted.
    [[nodiscard]] const std::string& why_no_thread() const { return why_no_thread_; }
    [[nodiscard]] unsigned adapters() const;
    [[nodiscard]] Tasks& tasks(); // made at the first call
    [[nodiscard]] bool has_tasks() const { return tasks_ != nullptr; }
    // mp_dc: so many peers can be sent to at a time. 0: no limit.
    [[nodiscard]] std::size_t concurrent_endpoints() const;
    // Messages are copied out of the receive buffers: bytes/s of a stream of them, and the s that a full one takes
    // there.
    [[nodiscard]] double message_bandwidth() const;
    [[nodiscard]] double message_copy_time() const;
    // A fresh copy; if the worker does not progress within some milliseconds, the last one. From another thread.
    [[nodiscard]] channel::Interface::Statistics statistics() { return statistics_.get(attention_); }

    // Functions that UCX calls.
    static void close(uct_iface_h iface);
    static ucs_status_t query(uct_iface_h iface, uct_iface_attr_t* attr);
    static ucs_status_t get_device_address(uct_iface_h iface, uct_device_addr_t* out);
    static ucs_status_t get_address(uct_iface_h iface, uct_iface_addr_t* out);
    static int is_reachable(uct_iface_h iface, const uct_device_addr_t* device, const uct_iface_addr_t* address);
    static bool same_host(const uct_device_addr_t* device);
    static ucs_status_t flush(uct_iface_h iface, unsigned flags, uct_completion_t* completion);
    static ucs_status_t fence(uct_iface_h iface, unsigned flags);
    template <bool marked> static unsigned progress(void* iface);
    static void progress_enable(uct_iface_h iface, unsigned flags);
    static ucs_status_t event_fd_get(uct_iface_h iface, int* fd);
    static ucs_status_t event_arm(uct_iface_h iface, unsigned events);
    static void vfs_refresh(uct_iface_h iface); // vfs.cc

private:
    class Sink final : public channel::Events {
    public:
        explicit Sink(Iface& iface) : iface_(iface) {}
        void room(channel::Channel& channel) override { iface_.peers_.room(channel); }
        void peer_failed(channel::Channel& channel, Status status) override { iface_.peers_.failed(channel, status); }
        void new_control_fd(int fd) override { iface_.background_.watch(fd); }
        void new_fault_fds() override { (void)iface_.background_.watch_faults(); }
        void recover_soon() override { iface_.services_.recover_soon(); }

    private:
        Iface& iface_;
    };
    // A handler that keeps a message returns UCS_INPROGRESS, and later calls uct_iface_release_desc() with the start of
    // the headroom. UCX finds this, which says what to do, in the word before it (Config::keeper).
    struct ReleaseHook : uct_recv_desc_t {
        Iface* iface;
    };
    explicit Iface(Md& md) : md_(md) {}
    ~Iface();
    ucs_status_t open_base(uct_md_h md, uct_worker_h worker, const uct_iface_params_t* params,
                           const abi::IfaceOptionsBase& options);
    ucs_status_t open_core(const uct_iface_params_t* params, const IfaceOptions& options);
    ucs_status_t open_adapters(std::string& error);
    void choose_recovery_thread();
    void recovers_without_thread(const std::string& why);
    template <bool marked> [[gnu::noinline]] unsigned progress_rarely();
    [[gnu::noinline, gnu::cold]] unsigned wait_and_progress();
    unsigned attend();
    static void release(uct_recv_desc_t* hook, void* descriptor);
    static void release_marked(uct_recv_desc_t* hook, void* descriptor);

    bool base_open_ = false;
    Md& md_;
    UcxServices services_;
    Sink sink_{*this};
    channel::Config config_;
    ReleaseHook release_{};
    std::size_t headroom_ = 0; // bytes, as the user asked for
    std::unique_ptr<channel::Interface> core_;
    std::string why_no_thread_;
    mp_turn_t* turn_ = nullptr; // the core's
    // Set when progress has something rare to do: requests to be tried again, or a copy of the statistics.
    std::atomic<bool> attention_{false};
    Peers peers_{*this, attention_};
    Wakeup wakeup_;
    Background background_;
    SharedStatistics statistics_;
    std::unique_ptr<Tasks> tasks_;
};

} // namespace ucx_mp::face
