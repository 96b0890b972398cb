// UCT objects of the component "mp", owned and closed in order.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

extern "C" {
#include <ucs/async/async_fwd.h>
#include <uct/api/uct.h>
#include <uct/api/version.h>
}

#include "uct_mp/ucx/abi/base.h" // what UCX does not package

#include <boost/test/unit_test.hpp>

// As BOOST_REQUIRE, from any thread: Boost's own notes where each thread is in one place.
#define UCT_TEST_REQUIRE(condition)                                                                                    \
    if (!(condition)) throw std::runtime_error(#condition)

namespace uct_test {

// uct/api/v2/uct_v2.h, which UCX does not package.
namespace v2 {
using ucx_mp::face::abi::DeregParameters;
using ucx_mp::face::abi::PackParameters;
ucs_status_t dereg(uct_md_h md, const DeregParameters* parameters) asm("uct_md_mem_dereg_v2");
// The parameters in use are left out by all who call it here.
ucs_status_t invalidate(uct_ep_h ep, const void* parameters) asm("uct_ep_invalidate");
#if UCT_VERNO_MINOR >= 16
ucs_status_t pack(uct_md_h md, uct_mem_h memh, void* address, std::size_t length, const PackParameters* parameters,
                  void* out) asm("uct_md_mkey_pack_v2");
#else
ucs_status_t pack_all(uct_md_h md, uct_mem_h memh, const PackParameters* parameters,
                      void* out) asm("uct_md_mkey_pack_v2");
inline ucs_status_t pack(uct_md_h md, uct_mem_h memh, void*, std::size_t, const PackParameters* parameters, void* out) {
    return pack_all(md, memh, parameters, out);
}
#endif
inline constexpr unsigned kPackRevocable = 1; // UCT_MD_MKEY_PACK_FLAG_INVALIDATE, later _INVALIDATE_RMA
} // namespace v2

using Options = std::vector<std::pair<const char*, const char*>>; // without prefix: {"TX_WINDOW", "64"}

inline uct_component_h component() {
    uct_component_h* all = nullptr;
    unsigned count = 0;
    UCT_TEST_REQUIRE(uct_query_components(&all, &count) == UCS_OK);
    uct_component_h found = nullptr;
    for (unsigned i = 0; i < count; ++i) {
        uct_component_attr_t attr{};
        attr.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME;
        if (uct_component_query(all[i], &attr) == UCS_OK && std::string(attr.name) == "mp") found = all[i];
    }
    uct_release_component_list(all);
    UCT_TEST_REQUIRE(found);
    return found;
}

// `name`: without prefix. From 1.17 on UCX wants it with the one of its table.
inline ucs_status_t modify(void* config, const char* name, const char* value) {
    for (const char* prefix : {"", "MP_", "MP_RC_", "MP_DC_"})
        if (uct_config_modify(config, (prefix + std::string(name)).c_str(), value) == UCS_OK) return UCS_OK;
    return UCS_ERR_NO_ELEM;
}

inline ucs_status_t open_md(const Options& options, uct_md_h* md) {
    uct_md_config_t* config = nullptr;
    UCT_TEST_REQUIRE(uct_md_config_read(component(), nullptr, nullptr, &config) == UCS_OK);
    for (const auto& [name, value] : options) UCT_TEST_REQUIRE(modify(config, name, value) == UCS_OK);
    const ucs_status_t status = uct_md_open(component(), "mp", config, md);
    uct_config_release(config);
    return status;
}

// Runs `softhca ARGUMENTS` against this session (SOFTHCA_BIN and SOFTHCA_SESSION come from the environment). The
// command itself must not run on the emulated adapter.
inline void softhca(const std::string& arguments) {
    const char* bin = std::getenv("SOFTHCA_BIN");
    const std::string line = "LD_PRELOAD= " + std::string(bin ? bin : "softhca") + " " + arguments + " >/dev/null";
    if (std::system(line.c_str()) != 0) throw std::runtime_error("failed: softhca " + arguments);
}
// Undoes what a test does to the fabric, also when it fails.
struct Restore {
    std::vector<std::string> commands;
    ~Restore() {
        for (const std::string& command : commands) softhca(command);
    }
};

class Domain {
public:
    explicit Domain(const Options& options = {}, ucs_async_mode_t mode = UCS_ASYNC_MODE_THREAD_SPINLOCK) {
        UCT_TEST_REQUIRE(open_md(options, &md) == UCS_OK);
        UCT_TEST_REQUIRE(uct_md_query(md, &attr) == UCS_OK);
        UCT_TEST_REQUIRE(ucs_async_context_create(mode, &async) == UCS_OK);
        UCT_TEST_REQUIRE(uct_worker_create(async, UCS_THREAD_MODE_SINGLE, &worker) == UCS_OK);
    }
    // Another worker on the same memory domain, which has to outlive it: for another thread.
    explicit Domain(Domain& of, ucs_async_mode_t mode = UCS_ASYNC_MODE_THREAD_SPINLOCK)
        : md(of.md), attr(of.attr), own_md_(false) {
        UCT_TEST_REQUIRE(ucs_async_context_create(mode, &async) == UCS_OK);
        UCT_TEST_REQUIRE(uct_worker_create(async, UCS_THREAD_MODE_SINGLE, &worker) == UCS_OK);
    }
    ~Domain() {
        uct_worker_destroy(worker);
        ucs_async_context_destroy(async);
        if (own_md_) uct_md_close(md);
    }
    Domain(const Domain&) = delete;

    // Progress until `condition` or for `seconds`.
    bool until(const std::function<bool()>& condition, double seconds = 20) const {
        const double end = now() + seconds;
        while (!condition()) {
            uct_worker_progress(worker);
            if (now() > end) return false;
        }
        return true;
    }
    static double now() {
        timespec time{};
        clock_gettime(CLOCK_MONOTONIC, &time);
        return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
    }

    uct_md_h md = nullptr;
    uct_md_attr_t attr{};
    ucs_async_context_t* async = nullptr;
    uct_worker_h worker = nullptr;

private:
    bool own_md_ = true;
};

inline constexpr std::size_t kHeadroom = 40;

class Interface {
public:
    Interface(Domain& domain, const char* transport, const Options& options = {}) : domain_(domain) {
        UCT_TEST_REQUIRE(open(domain, transport, options, this, &iface) == UCS_OK);
        UCT_TEST_REQUIRE(uct_iface_query(iface, &attr) == UCS_OK);
        uct_iface_progress_enable(iface, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
        device_address.resize(attr.device_addr_len);
        address.resize(attr.iface_addr_len);
        UCT_TEST_REQUIRE(uct_iface_get_device_address(iface, device()) == UCS_OK);
        UCT_TEST_REQUIRE(uct_iface_get_address(iface, where()) == UCS_OK);
    }
    ~Interface() { uct_iface_close(iface); }
    Interface(const Interface&) = delete;

    static ucs_status_t open(Domain& domain, const char* transport, const Options& options, Interface* self,
                             uct_iface_h* out) {
        uct_iface_config_t* config = nullptr;
        UCT_TEST_REQUIRE(uct_md_iface_config_read(domain.md, transport, nullptr, nullptr, &config) == UCS_OK);
        for (const auto& [name, value] : options) UCT_TEST_REQUIRE(modify(config, name, value) == UCS_OK);
        uct_iface_params_t params{};
        params.field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE |
                            UCT_IFACE_PARAM_FIELD_RX_HEADROOM | UCT_IFACE_PARAM_FIELD_ERR_HANDLER |
                            UCT_IFACE_PARAM_FIELD_ERR_HANDLER_ARG | UCT_IFACE_PARAM_FIELD_ERR_HANDLER_FLAGS;
        params.open_mode = UCT_IFACE_OPEN_MODE_DEVICE;
        params.mode.device.tl_name = transport;
        params.mode.device.dev_name = "mp0";
        params.rx_headroom = kHeadroom;
        params.err_handler_arg = self;
        params.err_handler = [](void* arg, uct_ep_h ep, ucs_status_t status) {
            static_cast<Interface*>(arg)->errors.emplace_back(ep, status);
            return UCS_OK;
        };
        const ucs_status_t status = uct_iface_open(domain.md, domain.worker, &params, config, out);
        uct_config_release(config);
        return status;
    }

    [[nodiscard]] uct_device_addr_t* device() { return reinterpret_cast<uct_device_addr_t*>(device_address.data()); }
    [[nodiscard]] uct_iface_addr_t* where() { return reinterpret_cast<uct_iface_addr_t*>(address.data()); }

    [[nodiscard]] uct_ep_h connect(Interface& peer) { return connect(peer.device(), peer.where()); }
    [[nodiscard]] uct_ep_h connect(const uct_device_addr_t* device, const uct_iface_addr_t* address) {
        UCT_TEST_REQUIRE(uct_iface_is_reachable(iface, device, address));
        uct_ep_params_t params{};
        params.field_mask = UCT_EP_PARAM_FIELD_IFACE | UCT_EP_PARAM_FIELD_DEV_ADDR | UCT_EP_PARAM_FIELD_IFACE_ADDR;
        params.iface = iface;
        params.dev_addr = device;
        params.iface_addr = address;
        uct_ep_h ep = nullptr;
        UCT_TEST_REQUIRE(uct_ep_create(&params, &ep) == UCS_OK);
        return ep;
    }
    // Waits for everything of this endpoint.
    void flush(uct_ep_h ep) {
        ucs_status_t status = UCS_INPROGRESS;
        UCT_TEST_REQUIRE(domain_.until([&] { return (status = uct_ep_flush(ep, 0, nullptr)) == UCS_OK; }));
    }

    uct_iface_h iface = nullptr;
    uct_iface_attr_t attr{};
    std::vector<std::byte> device_address, address;
    std::vector<std::pair<uct_ep_h, ucs_status_t>> errors;

private:
    Domain& domain_;
};

// Registered bytes with an unpacked key.
class Memory {
public:
    Memory(Domain& domain, void* address, std::size_t length, unsigned pack_flags = 0) : domain_(domain) {
        UCT_TEST_REQUIRE(uct_md_mem_reg(domain.md, address, length, UCT_MD_MEM_ACCESS_ALL, &handle) == UCS_OK);
        packed.resize(domain.attr.rkey_packed_size);
        const v2::PackParameters params{.field_mask = ucx_mp::face::abi::kPackFlags, .flags = pack_flags};
        UCT_TEST_REQUIRE(v2::pack(domain.md, handle, address, length, &params, packed.data()) == UCS_OK);
        UCT_TEST_REQUIRE(uct_rkey_unpack(component(), packed.data(), &key) == UCS_OK);
    }
    ~Memory() {
        uct_rkey_release(component(), &key);
        if (handle) uct_md_mem_dereg(domain_.md, handle);
    }
    Memory(const Memory&) = delete;

    uct_mem_h handle = nullptr;
    uct_rkey_bundle_t key{};
    std::vector<std::byte> packed;

private:
    Domain& domain_;
};

struct Done : uct_completion_t {
    explicit Done(int n = 1) {
        func = [](uct_completion_t* self) { static_cast<Done*>(self)->fired = true; };
        count = n;
        status = UCS_OK;
    }
    bool fired = false;
};

} // namespace uct_test
