#include "uct_mp/ucx/iface.h"

#include <algorithm>

#include "uct_mp/channel/beside.h"
#include "uct_mp/channel/statistics.h"
#include "uct_mp/host/turn.h"
#include "uct_mp/interface/open.h"
#include "uct_mp/ucx/abi/layout.h"
#include "uct_mp/ucx/advice.h"
#include "uct_mp/ucx/guard.h"
#include "uct_mp/ucx/inspect.h"
#include "uct_mp/ucx/md.h"

namespace ucx_mp::face {

namespace {

constexpr double kOverhead = 75e-9; // s per operation on the processor, about that of rc_verbs
// s. One small message, as UCX's own transports assume it for a link of this kind
// (FDR). UCX chooses protocols by it; only the scheduler knows later measurements.
constexpr double kLatency = 700e-9;

constexpr std::size_t kPciPayload = 512; // bytes of a packet of PCI Express
constexpr double kCopyRate =
    8e9; // bytes/s at which a receiver copies a message to where it belongs: assumed, not measured

unsigned smallest_mtu(const verbs::DeviceSet& devices) {
    ibv_mtu mtu = IBV_MTU_4096;
    for (const verbs::Rail& rail : devices.rails())
        if (rail.active) mtu = std::min(mtu, rail.mtu);
    return 128u << mtu;
}

} // namespace

ucs_status_t Iface::open(connect::Transport transport, uct_md_h md, uct_worker_h worker,
                         const uct_iface_params_t* params, const abi::IfaceOptionsBase& base_options,
                         const IfaceOptions& options, uct_iface_h* out) {
    *out = nullptr;
    return guard("opening an interface", [&] {
        struct Deleter {
            void operator()(Iface* iface) const { delete iface; }
        };
        std::unique_ptr<Iface, Deleter> iface(new Iface(Md::of(md)));
        iface->config_ = Md::of(md).config();
        iface->config_.transport = transport;
        ucs_status_t status = iface->open_base(md, worker, params, base_options);
        if (status == UCS_OK) status = iface->open_core(params, options);
        if (status == UCS_OK) *out = &iface.release()->super;
        return status;
    });
}

ucs_status_t Iface::open_base(uct_md_h md, uct_worker_h worker, const uct_iface_params_t* params,
                              const abi::IfaceOptionsBase& options) {
    if (!(params->field_mask & UCT_IFACE_PARAM_FIELD_OPEN_MODE) || !(params->open_mode & UCT_IFACE_OPEN_MODE_DEVICE)) {
        ucs_error("mp: only UCT_IFACE_OPEN_MODE_DEVICE is supported");
        return UCS_ERR_UNSUPPORTED;
    }
    if ((params->field_mask & UCT_IFACE_PARAM_FIELD_DEVICE) && params->mode.device.dev_name &&
        std::strcmp(params->mode.device.dev_name, kDevice) != 0) {
        ucs_error("mp: no device %s, only %s", params->mode.device.dev_name, kDevice);
        return UCS_ERR_NO_DEVICE;
    }
    const abi::Layout& layout = abi::layout();
    int classes = 1; // as UCS_CLASS_INIT
    const ucs_status_t status = abi::iface_init(this, &abi::iface_class, &classes, layout.interface_operations,
                                                layout.internal_operations, md, worker, params, &options);
    if (status != UCS_OK) ucs_class_call_cleanup_chain(&abi::iface_class, static_cast<abi::IfaceBase*>(this), classes);
    base_open_ = status == UCS_OK;
    return status;
}

ucs_status_t Iface::open_core(const uct_iface_params_t* params, const IfaceOptions& options) {
    Said said;
    const bool good = read_options(options, config_, said);
    advice::say(said);
    if (!good) return UCS_ERR_INVALID_PARAM;

    headroom_ = params->field_mask & UCT_IFACE_PARAM_FIELD_RX_HEADROOM ? params->rx_headroom : 0;
    release_.iface = this;
    config_.headroom = static_cast<unsigned>(headroom_);
    config_.keeper = static_cast<uct_recv_desc_t*>(&release_);

    config_.background = services_.use(abi::layout().async_of(*this));
    choose_recovery_thread();
    std::string error;
    ucs_status_t status = open_adapters(error);
    if (status != UCS_OK && config_.recovery.thread && !md_.insists_on_thread()) {
        recovers_without_thread(error); // which has descriptors of its own
        background_.close();
        core_.reset();
        status = open_adapters(error);
    }
    if (status != UCS_OK) {
        ucs_error("%s: %s", config_.name(), error.c_str());
        return status;
    }
    inspect::add(*this);
    advice::opened();
    return UCS_OK;
}

ucs_status_t Iface::open_adapters(std::string& error) {
    release_.cb = config_.recovery.thread ? release_marked : release;
    super.ops = config_.recovery.thread ? abi::marked_operations : *abi::layout().interface_operations;
    // UCX's table of handlers is the core's: uct_iface_set_am_handler() writes into it.
    const auto* handlers = reinterpret_cast<const channel::AmHandler*>(am);
    const Status status = open_interface(md_.devices(), config_, services_, sink_, md_.keys(), handlers, core_, error);
    if (status != Status::ok) return to_ucs(status);
    peers_.use(*core_);
    turn_ = &channel::beside(*core_).turn;
    if (config_.background && !background_.open(*core_, services_, config_.recovery.thread, error))
        return UCS_ERR_IO_ERROR;
    return UCS_OK;
}

void Iface::choose_recovery_thread() {
    config_.recovery.thread &= config_.recovery.enabled;
    if (!config_.recovery.thread || (config_.background && turn::can_take_turns())) return;
    recovers_without_thread(std::string("it needs ") + (config_.background ? "a kernel with membarrier(2)"
                                                                           : "an asynchronous thread of the worker"));
}

void Iface::recovers_without_thread(const std::string& why) {
    config_.recovery.thread = false;
    why_no_thread_ = why;
    if (md_.insists_on_thread())
        advice::say({.error = {}, .notes = {"mp: UCX_MP_RECOVERY_THREAD=yes has no effect: " + why}});
    else
        ucs_debug("mp: no thread recovers while the program computes: %s", why.c_str());
}

Iface::~Iface() {
    if (base_open_) abi::iface_progress_disable(&super, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    background_.close();
    if (core_) inspect::remove(*this);
    core_.reset();
    if (base_open_) ucs_class_call_cleanup_chain(&abi::iface_class, static_cast<abi::IfaceBase*>(this), -1);
}

// No turn begins from here on.
void Iface::close(uct_iface_h iface) {
    mp_turn_enter(&of(iface).turn());
    delete &of(iface);
}

ucs_status_t Iface::query(uct_iface_h iface, uct_iface_attr_t* attr) {
    Iface& self = of(iface);
    const channel::Limits& limits = self.core_->limits();
    abi::iface_query(&self, attr);

    attr->iface_addr_len = connect::packed_size(self.core_->address());
    attr->device_addr_len = connect::kDeviceAddress;

    attr->cap.flags = UCT_IFACE_FLAG_AM_SHORT | UCT_IFACE_FLAG_AM_BCOPY | UCT_IFACE_FLAG_AM_ZCOPY |
                      UCT_IFACE_FLAG_PUT_SHORT | UCT_IFACE_FLAG_PUT_BCOPY | UCT_IFACE_FLAG_PUT_ZCOPY |
                      UCT_IFACE_FLAG_GET_BCOPY | UCT_IFACE_FLAG_GET_ZCOPY | UCT_IFACE_FLAG_PENDING |
                      UCT_IFACE_FLAG_CONNECT_TO_IFACE | UCT_IFACE_FLAG_CB_SYNC | UCT_IFACE_FLAG_ERRHANDLE_PEER_FAILURE |
                      UCT_IFACE_FLAG_EP_CHECK | kInterNode;
    attr->cap.event_flags = UCT_IFACE_FLAG_EVENT_SEND_COMP | UCT_IFACE_FLAG_EVENT_RECV | UCT_IFACE_FLAG_EVENT_FD;

    const std::size_t mtu = smallest_mtu(self.md_.devices());
    const auto set = [&](auto& of, std::size_t max_zcopy) {
        of.max_bcopy = limits.max_bcopy;
        of.max_zcopy = max_zcopy;
        of.opt_zcopy_align = kPciPayload;
        of.align_mtu = mtu;
        of.max_iov = limits.max_iov;
    };
    set(attr->cap.put, limits.max_rdma);
    set(attr->cap.get, limits.max_rdma);
    set(attr->cap.am, limits.max_am_zcopy);
    attr->cap.put.max_short = limits.max_put_short;
    attr->cap.am.max_short = limits.max_am_short;
    attr->cap.am.max_hdr = limits.max_am_zcopy_header;

    if (self.config_.atomics == channel::AtomicsMode::target) {
        const std::uint64_t post = UCS_BIT(UCT_ATOMIC_OP_ADD) | UCS_BIT(UCT_ATOMIC_OP_AND) | UCS_BIT(UCT_ATOMIC_OP_OR) |
                                   UCS_BIT(UCT_ATOMIC_OP_XOR);
        const std::uint64_t fetch = post | UCS_BIT(UCT_ATOMIC_OP_SWAP) | UCS_BIT(UCT_ATOMIC_OP_CSWAP);
        attr->cap.flags |= UCT_IFACE_FLAG_ATOMIC_CPU;
        attr->cap.atomic32.op_flags = attr->cap.atomic64.op_flags = post;
        attr->cap.atomic32.fop_flags = attr->cap.atomic64.fop_flags = fetch;
    } else {
        attr->cap.flags |= UCT_IFACE_FLAG_ATOMIC_DEVICE;
        attr->cap.atomic64.op_flags = UCS_BIT(UCT_ATOMIC_OP_ADD);
        attr->cap.atomic64.fop_flags = UCS_BIT(UCT_ATOMIC_OP_ADD) | UCS_BIT(UCT_ATOMIC_OP_CSWAP);
    }

    attr->bandwidth.dedicated = self.core_->bandwidth() * 1e9;
    attr->latency = ucs_linear_func_make(kLatency, 0);
    attr->overhead = kOverhead;
    // Where mp_rc looks as good to UCP, mp_dc has RC for the peers that need it, whatever their number.
    attr->priority = self.config_.rc_on_demand();
    return UCS_OK;
}

unsigned Iface::adapters() const { return static_cast<unsigned>(md_.devices().devices().size()); }

Tasks& Iface::tasks() {
    if (!tasks_) tasks_ = std::make_unique<Tasks>(md_.devices(), services_, md_.tasks_mode());
    return *tasks_;
}

std::size_t Iface::concurrent_endpoints() const { return channel::count_initiators(*core_); }

// One thread copies what has come and posts what goes: the two add up. On 16 processors
// windows of 64 KiB by messages of 8 KiB reach 1.4 of two rails' 2.0 GB/s; reads reach 1.96.
double Iface::message_bandwidth() const { return 1 / (1 / (core_->bandwidth() * 1e9) + 1 / kCopyRate); }

double Iface::message_copy_time() const { return static_cast<double>(core_->limits().max_bcopy) / kCopyRate; }

ucs_status_t Iface::get_device_address(uct_iface_h, uct_device_addr_t* out) {
    const std::uint64_t host = ucs_get_system_id();
    static_assert(sizeof host == connect::kDeviceAddress);
    std::memcpy(out, &host, sizeof host);
    return UCS_OK;
}

ucs_status_t Iface::get_address(uct_iface_h iface, uct_iface_addr_t* out) {
    connect::pack(of(iface).core_->address(), out);
    return UCS_OK;
}

int Iface::is_reachable(uct_iface_h iface, const uct_device_addr_t*, const uct_iface_addr_t* address) {
    if (!address) return 1; // nothing in a device address speaks against it
    const Iface& self = of(iface);
    connect::InterfaceAddress peer;
    if (!connect::unpack(address, peer)) return 0;
    const channel::Config& ours = self.config_;
    if (const std::string misfit = connect::version_misfit(peer, ours.min_version, ours.max_version); !misfit.empty())
        advice::peer_of_other_release(misfit);
    return self.core_->reachable(peer);
}

bool Iface::same_host(const uct_device_addr_t* device) {
    const std::uint64_t here = ucs_get_system_id();
    return std::memcmp(device, &here, sizeof here) == 0;
}

void Iface::release(uct_recv_desc_t* hook, void* descriptor) {
    Iface& self = *static_cast<ReleaseHook*>(hook)->iface;
    self.core_->release(static_cast<char*>(descriptor) + self.headroom_);
}

void Iface::release_marked(uct_recv_desc_t* hook, void* descriptor) {
    const turn::Inside inside(static_cast<ReleaseHook*>(hook)->iface->turn());
    release(hook, descriptor);
}

ucs_status_t Iface::flush(uct_iface_h iface, unsigned, uct_completion_t* completion) {
    if (completion) return UCS_ERR_UNSUPPORTED;
    Iface& self = of(iface);
    const ucs_status_t status = to_ucs(self.core_->flush_all());
    // Requests that wait for room are not done, either; without any path to its peer nothing else may be under way.
    return status == UCS_OK && self.peers_.waiting() ? UCS_INPROGRESS : status;
}

ucs_status_t Iface::fence(uct_iface_h iface, unsigned) {
    of(iface).core_->fence_all();
    return UCS_OK;
}

template <bool marked> unsigned Iface::progress(void* iface) {
    Iface& self = of(static_cast<uct_iface_h>(iface));
    if constexpr (marked) {
        if (mp_turn_begin(self.turn_)) [[unlikely]]
            return self.wait_and_progress();
    }
    if (self.services_.timers() || self.attention_.load(std::memory_order_relaxed)) [[unlikely]]
        return self.progress_rarely<marked>();
    return marked ? self.core_->progress_and_leave() : self.core_->progress();
}

unsigned Iface::wait_and_progress() {
    mp_turn_wait(turn_);
    return progress_rarely<true>();
}

template <bool marked> unsigned Iface::progress_rarely() {
    unsigned count = channel::beside(*core_).hand_out(); // older than what timers and requests that wait call for
    count += services_.run_timers();
    if (attention_.load(std::memory_order_relaxed)) count += attend();
    return count + (marked ? core_->progress_and_leave() : core_->progress());
}

template unsigned Iface::progress<false>(void* iface);
template unsigned Iface::progress<true>(void* iface);

unsigned Iface::attend() {
    attention_.store(false, std::memory_order_relaxed);
    statistics_.update(*core_);
    return peers_.retries() ? peers_.retry() : 0;
}

void Iface::progress_enable(uct_iface_h iface, unsigned flags) {
    Iface& self = of(iface);
    abi::iface_progress_enable(&self, self.config_.recovery.thread ? progress<true> : progress<false>, flags);
}

ucs_status_t Iface::event_fd_get(uct_iface_h iface, int* fd) {
    Iface& self = of(iface);
    *fd = -1;
    return self.wakeup_.fd(*self.core_, self.services_, fd);
}

// Sends and receives wake up alike: acknowledgments that a send waits for arrive as messages.
ucs_status_t Iface::event_arm(uct_iface_h iface, unsigned) {
    Iface& self = of(iface);
    if (self.peers_.retries()) return UCS_ERR_BUSY;
    return self.wakeup_.arm(*self.core_, self.services_);
}

} // namespace ucx_mp::face
