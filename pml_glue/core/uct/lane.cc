#include "pml_glue/core/uct/lane.h"

#include <cstring>

namespace ucx_mp::glue {

namespace {
constexpr std::size_t kMoreDomains = 64;
}

bool Lane::open(const std::string& transport, uct_worker_h worker, uct_error_handler_t on_error, void* argument,
                std::string& error) {
    transport_ = transport;
    std::string device;
    if (!find_domain(device, error)) return false;
    uct_md_query(domain_, &domain_attributes_);
    uct_iface_config_t* config;
    status_ = uct_md_iface_config_read(domain_, transport_.c_str(), nullptr, nullptr, &config);
    if (status_ == UCS_OK) {
        uct_iface_params_t params{};
        params.field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE |
                            UCT_IFACE_PARAM_FIELD_ERR_HANDLER | UCT_IFACE_PARAM_FIELD_ERR_HANDLER_ARG |
                            UCT_IFACE_PARAM_FIELD_ERR_HANDLER_FLAGS;
        params.open_mode = UCT_IFACE_OPEN_MODE_DEVICE;
        params.mode.device.tl_name = transport_.c_str();
        params.mode.device.dev_name = device.c_str();
        params.err_handler = on_error;
        params.err_handler_arg = argument;
        params.err_handler_flags = 0;
        // Shared memory tells of peers that are gone if it is asked (uct_ep_check). Others have no such option.
        (void)uct_config_modify(config, "ERROR_HANDLING", "y");
        status_ = uct_iface_open(domain_, worker, &params, config, &interface_);
        uct_config_release(config);
    }
    if (status_ == UCS_OK) status_ = uct_iface_query(interface_, &attributes_);
    if (status_ != UCS_OK) {
        error = why_not();
        return false;
    }
    if (!can(UCT_IFACE_FLAG_CONNECT_TO_IFACE)) {
        error = transport_ + " connects endpoints to each other: not supported";
        return false;
    }
    uct_iface_progress_enable(interface_, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    return true;
}

bool Lane::wakes() const {
    constexpr std::uint64_t kNeeded = UCT_IFACE_FLAG_EVENT_RECV | UCT_IFACE_FLAG_EVENT_FD;
    return (attributes_.cap.event_flags & kNeeded) == kNeeded;
}

int Lane::event_descriptor() {
    if (!wakes() || uct_iface_event_fd_get(interface_, &event_fd_) != UCS_OK) event_fd_ = -1;
    return event_fd_;
}

bool Lane::arm() {
    if (event_fd_ < 0) return true;
    return uct_iface_event_arm(interface_, UCT_EVENT_SEND_COMP | UCT_EVENT_RECV) != UCS_ERR_BUSY;
}

Lane::~Lane() {
    if (interface_) uct_iface_close(interface_);
    if (domain_) uct_md_close(domain_);
}

std::string Lane::why_not() const {
    if (status_ == UCS_OK) return transport_ + ": no such transport, or no device for it";
    if (misled()) return transport_ + " cannot be opened with these settings: see its own line above";
    return transport_ + " cannot be opened: " + ucs_status_string(status_);
}

// The first memory domain that has the transport; its first device.
bool Lane::find_domain(std::string& device, std::string& error) {
    uct_component_h* components;
    unsigned count;
    if (uct_query_components(&components, &count) != UCS_OK) {
        error = "UCX has no components";
        return false;
    }
    for (unsigned i = 0; i < count && !domain_; ++i) {
        uct_component_attr_t info{};
        info.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT | UCT_COMPONENT_ATTR_FIELD_NAME;
        if (uct_component_query(components[i], &info) != UCS_OK) continue;
        // Opening domains of others is slow, and some of them complain: "mp" has mp_rc, "self" has self, ...
        if (std::strncmp(info.name, transport_.c_str(), std::strlen(info.name)) != 0) continue;
        // UCX looks for adapters again, and writes all that are there by then.
        std::vector<uct_md_resource_desc_t> domains(info.md_resource_count + kMoreDomains);
        info.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES | UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
        info.md_resources = domains.data();
        if (uct_component_query(components[i], &info) != UCS_OK) continue;
        domains.resize(info.md_resource_count);
        for (const auto& domain : domains)
            if (open_domain(components[i], domain.md_name, device)) break;
    }
    uct_release_component_list(components);
    if (!domain_) error = why_not();
    return domain_;
}

bool Lane::open_domain(uct_component_h component, const char* name, std::string& device) {
    uct_md_config_t* config;
    const ucs_status_t read = uct_md_config_read(component, nullptr, nullptr, &config);
    if (read != UCS_OK) {
        status_ = UCS_ERR_INVALID_PARAM; // its own codes say less
        return false;
    }
    // We have a thread of our own (core/async), so "try", the default, becomes "n". From UCX 1.17 on names have the
    // prefix of their table here, but not where they are read.
    char thread[8] = {};
    if (uct_config_get(config, "RECOVERY_THREAD", thread, sizeof thread) == UCS_OK && std::strcmp(thread, "try") == 0)
        for (const char* const variable : {"RECOVERY_THREAD", "MP_RECOVERY_THREAD"})
            (void)uct_config_modify(config, variable, "n");
    uct_md_h opened = nullptr;
    const ucs_status_t status = uct_md_open(component, name, config, &opened);
    uct_config_release(config);
    if (status != UCS_OK) {
        if (status_ == UCS_OK) status_ = status;
        return false;
    }
    uct_tl_resource_desc_t* resources;
    unsigned count;
    if (uct_md_query_tl_resources(opened, &resources, &count) == UCS_OK) {
        for (unsigned i = 0; i < count && !domain_; ++i)
            if (transport_ == resources[i].tl_name) {
                device = resources[i].dev_name;
                component_ = component;
                domain_ = opened;
            }
        uct_release_tl_resource_list(resources);
    }
    if (!domain_) uct_md_close(opened);
    return domain_;
}

// UCT may write nothing, or be asked for nothing: room for one byte at least.
std::vector<std::byte> Lane::device_address() const {
    std::vector<std::byte> out(attributes_.device_addr_len + 1);
    uct_iface_get_device_address(interface_, reinterpret_cast<uct_device_addr_t*>(out.data()));
    out.pop_back();
    return out;
}

std::vector<std::byte> Lane::interface_address() const {
    std::vector<std::byte> out(attributes_.iface_addr_len + 1);
    uct_iface_get_address(interface_, reinterpret_cast<uct_iface_addr_t*>(out.data()));
    out.pop_back();
    return out;
}

uct_ep_h Lane::connect(const std::byte* device, const std::byte* interface, std::string& error) {
    const auto* const device_address = reinterpret_cast<const uct_device_addr_t*>(device);
    const auto* const interface_address = reinterpret_cast<const uct_iface_addr_t*>(interface);
    if (!uct_iface_is_reachable(interface_, device_address, interface_address)) {
        error += (error.empty() ? "" : "; ") + transport_ + ": not reachable";
        return nullptr;
    }
    uct_ep_params_t params{};
    params.field_mask = UCT_EP_PARAM_FIELD_IFACE | UCT_EP_PARAM_FIELD_DEV_ADDR | UCT_EP_PARAM_FIELD_IFACE_ADDR;
    params.iface = interface_;
    params.dev_addr = device_address;
    params.iface_addr = interface_address;
    uct_ep_h endpoint;
    const ucs_status_t status = uct_ep_create(&params, &endpoint);
    if (status == UCS_OK) return endpoint;
    error += (error.empty() ? "" : "; ") + transport_ + ": " + ucs_status_string(status);
    return nullptr;
}

} // namespace ucx_mp::glue
