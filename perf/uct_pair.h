// Two or more UCT interfaces in one process, connected, with the public API: what the uct_*.cc benchmarks share. Any
// transport: connected endpoint to endpoint (rc_verbs) or to the interface (mp_rc).
#pragma once

#include <uct/api/uct.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace ucx_mp::perf {

inline void must(ucs_status_t status, const char* what) {
    if (status == UCS_OK || status == UCS_INPROGRESS) return;
    std::fprintf(stderr, "%s: %s\n", what, ucs_status_string(status));
    std::exit(1);
}

// The first memory domain that has the transport on the device.
struct Domain {
    uct_component_h component = nullptr;
    uct_md_h md = nullptr;
    uct_md_attr_t attr{};

    Domain(const char* transport, const char* device) {
        uct_component_h* components;
        unsigned count;
        must(uct_query_components(&components, &count), "uct_query_components");
        for (unsigned i = 0; i < count && !md; ++i) {
            uct_component_attr_t info{};
            info.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
            must(uct_component_query(components[i], &info), "uct_component_query");
            // UCX looks again, and writes all that are there by then.
            std::vector<uct_md_resource_desc_t> domains(info.md_resource_count + 64);
            info.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES | UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
            info.md_resources = domains.data();
            must(uct_component_query(components[i], &info), "uct_component_query");
            domains.resize(info.md_resource_count);
            for (const auto& domain : domains)
                if (!md && open(components[i], domain.md_name, transport, device)) component = components[i];
        }
        uct_release_component_list(components);
        if (!md) must(UCS_ERR_NO_DEVICE, (std::string(transport) + " on " + device).c_str());
        must(uct_md_query(md, &attr), "uct_md_query");
    }

private:
    bool open(uct_component_h from, const char* name, const char* transport, const char* device) {
        uct_md_config_t* config;
        must(uct_md_config_read(from, nullptr, nullptr, &config), "uct_md_config_read");
        uct_md_h opened = nullptr;
        const ucs_status_t status = uct_md_open(from, name, config, &opened);
        uct_config_release(config);
        if (status != UCS_OK) return false;
        uct_tl_resource_desc_t* transports;
        unsigned n;
        must(uct_md_query_tl_resources(opened, &transports, &n), "uct_md_query_tl_resources");
        bool found = false;
        for (unsigned k = 0; k < n; ++k)
            found |= !std::strcmp(transports[k].tl_name, transport) && !std::strcmp(transports[k].dev_name, device);
        uct_release_tl_resource_list(transports);
        if (found)
            md = opened;
        else
            uct_md_close(opened);
        return found;
    }
};

// An interface with its worker, and memory that peers may access.
struct Side {
    static constexpr std::size_t kMemory = 1 << 20;
    uct_worker_h worker = nullptr;
    uct_iface_h iface = nullptr;
    uct_iface_attr_t attr{};
    char* memory = nullptr;
    uct_mem_h memh = nullptr;
    std::vector<char> packed_key;

    Side(Domain& domain, const char* transport, const char* device) {
        ucs_async_context_t* async;
        must(ucs_async_context_create(UCS_ASYNC_MODE_THREAD_SPINLOCK, &async), "ucs_async_context_create");
        must(uct_worker_create(async, UCS_THREAD_MODE_SINGLE, &worker), "uct_worker_create");
        uct_iface_config_t* config;
        must(uct_md_iface_config_read(domain.md, transport, nullptr, nullptr, &config), "uct_md_iface_config_read");
        uct_iface_params_t params{};
        params.field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE;
        params.open_mode = UCT_IFACE_OPEN_MODE_DEVICE;
        params.mode.device.tl_name = transport;
        params.mode.device.dev_name = device;
        must(uct_iface_open(domain.md, worker, &params, config, &iface), "uct_iface_open");
        uct_config_release(config);
        uct_iface_progress_enable(iface, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
        must(uct_iface_query(iface, &attr), "uct_iface_query");
        memory = static_cast<char*>(std::aligned_alloc(4096, kMemory));
        std::memset(memory, 1, kMemory);
        must(uct_md_mem_reg(domain.md, memory, kMemory, UCT_MD_MEM_ACCESS_ALL, &memh), "uct_md_mem_reg");
        packed_key.resize(domain.attr.rkey_packed_size);
        must(uct_md_mkey_pack(domain.md, memh, packed_key.data()), "uct_md_mkey_pack");
    }
    Side(const Side&) = delete;
    [[nodiscard]] bool to_ep() const { return attr.cap.flags & UCT_IFACE_FLAG_CONNECT_TO_EP; }
    [[nodiscard]] std::vector<char> device_address() const {
        std::vector<char> out(attr.device_addr_len);
        must(uct_iface_get_device_address(iface, reinterpret_cast<uct_device_addr_t*>(out.data())), "device address");
        return out;
    }
};

// An endpoint of each of two sides to the other. Nothing is ever closed: the process ends.
struct Link {
    Side& a;
    Side& b;
    uct_ep_h ab, ba;

    Link(Side& first, Side& second) : a(first), b(second), ab(make(a, b)), ba(make(b, a)) {
        if (!a.to_ep()) return;
        join(ab, b, ba);
        join(ba, a, ab);
    }

private:
    static uct_ep_h make(Side& from, Side& to) {
        uct_ep_params_t params{};
        params.field_mask = UCT_EP_PARAM_FIELD_IFACE;
        params.iface = from.iface;
        const std::vector<char> device = to.device_address();
        std::vector<char> address(to.attr.iface_addr_len);
        if (!from.to_ep()) {
            must(uct_iface_get_address(to.iface, reinterpret_cast<uct_iface_addr_t*>(address.data())), "address");
            params.field_mask |= UCT_EP_PARAM_FIELD_DEV_ADDR | UCT_EP_PARAM_FIELD_IFACE_ADDR;
            params.dev_addr = reinterpret_cast<const uct_device_addr_t*>(device.data());
            params.iface_addr = reinterpret_cast<const uct_iface_addr_t*>(address.data());
        }
        uct_ep_h ep;
        must(uct_ep_create(&params, &ep), "uct_ep_create");
        return ep;
    }
    static void join(uct_ep_h ep, Side& peer, uct_ep_h peer_ep) {
        const std::vector<char> device = peer.device_address();
        std::vector<char> address(peer.attr.ep_addr_len);
        must(uct_ep_get_address(peer_ep, reinterpret_cast<uct_ep_addr_t*>(address.data())), "uct_ep_get_address");
        must(uct_ep_connect_to_ep(ep, reinterpret_cast<const uct_device_addr_t*>(device.data()),
                                  reinterpret_cast<const uct_ep_addr_t*>(address.data())),
             "uct_ep_connect_to_ep");
    }
};

} // namespace ucx_mp::perf
