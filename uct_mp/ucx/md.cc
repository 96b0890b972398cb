#include "uct_mp/ucx/md.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "uct_mp/path/path.h"
#include "uct_mp/ucx/abi/layout.h"
#include "uct_mp/ucx/advice.h"
#include "uct_mp/ucx/guard.h"
#include "uct_mp/ucx/who.h"
#include "uct_mp/verbs/packet_numbers.h"
#include "uct_mp/verbs/registry.h"

namespace ucx_mp::face {

namespace {

// All accesses that a peer may make: UCX tells at registration only the likely ones, and checks nothing later.
constexpr int kAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

ucs_status_t init_fork(int wish) {
    if (wish == UCS_NO) return UCS_OK;
    const int result = ibv_fork_init();
    if (result == 0) return UCS_OK;
    if (wish == UCS_YES) {
        ucs_error("UCX_MP_FORK_INIT=yes: ibv_fork_init() failed: %s", strerror(result));
        return UCS_ERR_IO_ERROR;
    }
    ucs_debug("mp: ibv_fork_init() failed: %s; fork() is not safe", strerror(result));
    return UCS_OK;
}

// An outage at the start: waits for a port, not for longer than `timeout` (s). Slow.
Status open_devices(const verbs::DeviceConfig& config, double timeout, verbs::DeviceSet& out, std::string& error) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout);
    for (bool said = false;; said = true) {
        const Status status = verbs::DeviceSet::open(config, out, error);
        const bool down = status == Status::ok ? std::ranges::none_of(out.rails(), &verbs::Rail::active)
                                               : status == Status::unreachable && verbs::DeviceSet::has_ports();
        if (!down || std::chrono::steady_clock::now() >= until) return status;
        if (!said) ucs_warn("mp: no port is active: waiting for one, %.1f s at most (UCX_MP_PORT_TIMEOUT)", timeout);
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
}

} // namespace

Status RegisteredMemory::open(const verbs::DeviceSet& devices, verbs::KeyTable& keys, void* address,
                              std::size_t length) {
    const Status status = verbs::register_once(devices, address, length, kAccess, registration_);
    if (status != Status::ok) return status;
    address_ = reinterpret_cast<std::uint64_t>(address);
    length_ = length;
    keys_ = &keys;
    return Status::ok;
}

void RegisteredMemory::pack(void* out, bool first) {
    if (first && offers_ == 0) keys_->insert(registration_.id, address_, length_);
    offers_ += first;
    registration_.pack(out);
}

void RegisteredMemory::withdraw() {
    if (--offers_ != 0) return;
    keys_->erase(registration_.id);
    registration_.withdraw();
}

RegisteredMemory::~RegisteredMemory() {
    // First refuse our own atomics, then the adapters' operations.
    if (offers_) keys_->erase(registration_.id);
}

ucs_status_t Md::open(const MdOptions& options, const abi::CacheOptionsStorage& cache_options) {
    DomainOptions domain;
    Said said;
    const bool good = read_options(options, domain, config_, said);
    config_.names = {.host = who().host, .rank = who().rank, .ports = {}};
    advice::say(said);
    if (!good) return UCS_ERR_INVALID_PARAM;
    tasks_mode_ = static_cast<TasksMode>(options.tasks);
    insists_on_thread_ = options.recovery_thread == UCS_YES;
    if (const ucs_status_t status = init_fork(options.fork_init); status != UCS_OK) return status;

    std::string error;
    const Status status = open_devices(domain.devices, domain.port_timeout, devices_, error);
    if (status == Status::unreachable && domain.devices.rails.empty()) {
        // Nobody asked for us by name.
        ucs_debug("mp: %s", error.c_str());
        advice::no_port(error);
        return UCS_ERR_NO_DEVICE;
    }
    if (status == Status::ok) error = path::check(config_.paths, devices_.rails());
    if (status == Status::ok && error.empty()) {
        Said of_policy;
        check_policy(options, !domain.devices.rails.empty(), devices_.rails(), config_, of_policy);
        error = of_policy.error;
        if (error.empty()) advice::say(of_policy);
    }
    if (!error.empty()) {
        advice::say({.error = error, .notes = {}});
        return status == Status::ok ? UCS_ERR_INVALID_PARAM : to_ucs(status);
    }
    if (status != Status::ok) return to_ucs(status);
    if (!test_packet_numbers(options.packet_numbers)) return UCS_ERR_UNSUPPORTED;
    for (const verbs::Device& device : devices_.devices())
        if (options.apm == UCS_YES && !device.has_apm) {
            ucs_error("UCX_MP_APM=yes: %s cannot migrate paths; allowed is \"try\" or \"no\"", device.name.c_str());
            return UCS_ERR_UNSUPPORTED;
        }
    constexpr int kPriority = 1000;
    const ucs_status_t hooked = ucm_set_event_handler(UCM_EVENT_VM_UNMAPPED, kPriority, memory_unmapped, this);
    hooked_ = hooked == UCS_OK;
    if (!hooked_) ucs_debug("mp: nobody tells when memory is unmapped: %s", ucs_status_string(hooked));
    const auto devices = static_cast<double>(devices_.devices().size());
    reg_cost_ = ucs_linear_func_make(domain.reg_overhead * devices, domain.reg_growth * devices);
    return open_cache(options, cache_options);
}

// False: the user insists on packet numbers, and an adapter does not tell them.
bool Md::test_packet_numbers(int wish) {
    bool& believed = config_.recovery.packet_numbers;
    if (!believed || !config_.recovery.enabled) return true;
    for (const verbs::Device& device : devices_.devices()) {
        bool tells = false, active = false;
        for (const verbs::Rail& rail : devices_.rails()) {
            if (rail.device != device.index) continue;
            active |= rail.active;
            if (!tells) tells = verbs::tells_packet_numbers(device, rail);
        }
        active = active && !verbs::is_dead(device);
        if (!active) config_.recovery.untested |= 1u << device.index; // when its port comes up
        if (tells || !active) continue;
        believed = false;
        if (wish == UCS_YES) {
            ucs_error("UCX_MP_PACKET_NUMBERS=yes: %s does not tell them; allowed is \"try\" "
                      "or \"no\"",
                      device.name.c_str());
            return false;
        }
        ucs_debug("mp: %s does not tell packet numbers: markers decide what to send again", device.name.c_str());
    }
    return true;
}

ucs_status_t Md::open_cache(const MdOptions& options, const abi::CacheOptionsStorage& cache_options) {
    if (options.use_rcache == UCS_NO) return UCS_OK;

    const abi::Layout& layout = abi::layout();
    const ucs_status_t status = layout.make_cache(*this, cache_options, &cache_);
    if (status == UCS_OK) {
        cache_alignment_ = layout.cache_alignment(cache_options);
        reg_cost_ = ucs_linear_func_make(layout.cache_overhead(cache_options), 0);
        devices_.registry()->set_relief([this](std::size_t bytes) { return give_back(bytes); });
        return UCS_OK;
    }
    cache_ = nullptr;
    if (options.use_rcache == UCS_YES) {
        ucs_error("UCX_MP_RCACHE=yes: no registration cache: %s", ucs_status_string(status));
        return status;
    }
    ucs_debug("mp: no registration cache: %s", ucs_status_string(status));
    return UCS_OK;
}

// Called before memory is unmapped, by whoever unmaps it. The cache hears as well, but acts at its next call.
void Md::memory_unmapped(ucm_event_type_t, ucm_event_t* event, void* self) {
    static_cast<Md*>(self)->keys_.unmapped(reinterpret_cast<std::uint64_t>(event->vm_unmapped.address),
                                           event->vm_unmapped.size);
}

Md::~Md() {
    if (hooked_) ucm_unset_event_handler(UCM_EVENT_VM_UNMAPPED, memory_unmapped, this);
    if (!cache_) return;
    devices_.registry()->set_relief({});
    abi::cache_destroy(cache_);
}

std::size_t Md::packed_key_size() const {
    return verbs::packed_keys_size(static_cast<unsigned>(devices_.devices().size()));
}

void Md::show_in_vfs() {
    // "rails/softhca_0:1/rate": bytes per ns of payload, and so on
    const auto show = [](void*, ucs_string_buffer_t* text, void* arg, std::uint64_t field) {
        const verbs::Rail& rail = *static_cast<const verbs::Rail*>(arg);
        switch (field) {
        case 0:
            ucs_string_buffer_appendf(text, "%.3f\n", rail.rate);
            break;
        case 1:
            ucs_string_buffer_appendf(text, "0x%x\n", rail.lid);
            break;
        case 2:
            ucs_string_buffer_appendf(text, "%u\n", rail.lmc);
            break;
        default:
            ucs_string_buffer_appendf(text, "0x%016lx\n", rail.subnet_prefix);
            break;
        }
    };
    const char* const fields[] = {"rate", "lid", "lmc", "subnet_prefix"};
    for (const verbs::Rail& rail : devices_.rails())
        for (std::uint64_t field = 0; field < std::size(fields); ++field)
            ucs_vfs_obj_add_ro_file(handle(*this), show, const_cast<verbs::Rail*>(&rail), field, "rails/%s/%s",
                                    rail.name.c_str(), fields[field]);
}

} // namespace ucx_mp::face
