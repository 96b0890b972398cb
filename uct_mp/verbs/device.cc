#include "uct_mp/verbs/device.h"

#include <endian.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <tuple>
#include <utility>

#include "uct_mp/verbs/port_query.h"
#include "uct_mp/verbs/registry.h"

namespace ucx_mp::verbs {
namespace {

constexpr const char* kVariable = "UCX_MP_RAILS";

using DeviceList = std::unique_ptr<ibv_device*, Destroyer<ibv_free_device_list>>;

struct Port {
    Rail rail;
    PortUse use = PortUse::unknown;

    [[nodiscard]] bool is_rail() const { return use == PortUse::active || use == PortUse::inactive; }
};

// An adapter of this host, used or not.
struct Adapter {
    std::string name;
    std::uint64_t guid = 0;
    Context context; // null: `trouble` says why
    std::string trouble;
    bool dead = false;       // ... and it may be there again
    std::vector<Port> ports; // ports[i]: IB port i + 1
};

struct Choice {
    std::size_t adapter;
    std::size_t port; // index in Adapter::ports

    bool operator==(const Choice&) const = default;
};

std::string with_errno(const char* what, int error) { return std::string(what) + ": " + std::strerror(error); }

Adapter look_at(ibv_device* device, std::uint16_t partition) {
    Adapter out;
    out.name = ibv_get_device_name(device);
    out.guid = be64toh(ibv_get_device_guid(device));
    const auto fails = [&](const char* what, int error) {
        out.trouble = with_errno(what, error);
        out.context.reset();
        // Containers show all adapters of their host, and let few of them be opened.
        const bool forbidden = error == EACCES || error == EPERM || error == ENOENT;
        // Nor is the adapter to blame for a resource that this process lacks.
        const bool ours = error == EMFILE || error == ENFILE || error == ENOMEM;
        if (ours) out.trouble += ": this process or host lacks it, the adapter is left out";
        out.dead = device->transport_type == IBV_TRANSPORT_IB && !forbidden && !ours;
        return std::move(out);
    };
    errno = 0;
    out.context.reset(ibv_open_device(device));
    if (!out.context) return fails("ibv_open_device", errno ? errno : EIO);
    ibv_device_attr attributes{};
    if (const int error = ibv_query_device(out.context.get(), &attributes))
        return fails("ibv_query_device", error > 0 ? error : errno);
    out.ports.resize(attributes.phys_port_cnt);
    for (std::size_t i = 0; i < out.ports.size(); ++i) {
        Port& port = out.ports[i];
        port.rail.partition = partition;
        port.use = query_port(out.context.get(), static_cast<std::uint8_t>(i + 1), port.rail);
        // iWARP and vendors' own transports have ports, but not of these kinds.
        if (device->transport_type != IBV_TRANSPORT_IB) port.use = PortUse::foreign;
        port.rail.name = out.name + ":" + std::to_string(i + 1);
    }
    if (!out.ports.empty() &&
        std::ranges::all_of(out.ports, [](const Port& port) { return port.use == PortUse::unknown; }))
        return fails("ibv_query_port", EIO);
    return out;
}

// A dead adapter's ports are taken to be like those of the first adapter that lives.
void guess_ports(std::vector<Adapter>& adapters) {
    const auto has_rail = [](const Adapter& a) { return a.context && std::ranges::any_of(a.ports, &Port::is_rail); };
    const auto model = std::ranges::find_if(adapters, has_rail);
    for (Adapter& adapter : adapters) {
        if (!adapter.dead) continue;
        adapter.ports.clear();
        if (model == adapters.end()) continue;
        for (const Port& like : model->ports)
            adapter.ports.push_back({.rail = {.port = like.rail.port,
                                              .ethernet = like.rail.ethernet,
                                              .partition = like.rail.partition,
                                              .pkey = 0,
                                              .mtu = like.rail.mtu,
                                              .rate = like.rail.rate,
                                              .name = adapter.name + ":" + std::to_string(adapter.ports.size() + 1),
                                              .active = false},
                                     .use = like.is_rail() ? PortUse::inactive : PortUse::foreign});
    }
}

// All adapters of this host in the order of ibv_get_device_list; empty: errno.
std::vector<Adapter> look_around(std::uint16_t partition = 0) {
    int count = 0;
    errno = 0;
    const DeviceList list(ibv_get_device_list(&count));
    std::vector<Adapter> out;
    if (!list) return out;
    out.reserve(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) out.push_back(look_at(list.get()[i], partition));
    guess_ports(out);
    if (out.empty()) errno = ENODEV;
    return out;
}

// A user's value as part of one line of text.
std::string quoted(std::string_view value) {
    std::string out = "\"";
    for (const char c : value) out += std::isprint(static_cast<unsigned char>(c)) ? c : '?';
    return out + "\"";
}

std::string allowed(const std::vector<Adapter>& adapters) {
    std::string ports;
    for (const Adapter& adapter : adapters)
        for (const Port& port : adapter.ports)
            if (port.is_rail()) ports += (ports.empty() ? "" : ", ") + port.rail.name;
    if (ports.empty()) return "nothing: this host has no InfiniBand or RoCE port";
    return ports + ", or an adapter's name without a port; each rail once, at most " + std::to_string(kMaxRails) +
           " on " + std::to_string(kMaxDevices) + " adapters";
}

std::string refusal(std::string_view value, const std::string& reason, const std::vector<Adapter>& adapters) {
    return std::string(kVariable) + ": " + quoted(value) + " " + reason + "; allowed: " + allowed(adapters);
}

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
    while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
    return text;
}

const Adapter* find(const std::vector<Adapter>& adapters, std::string_view name) {
    const auto found = std::ranges::find(adapters, name, &Adapter::name);
    return found == adapters.end() ? nullptr : &*found;
}

std::vector<Choice> ports_of(const std::vector<Adapter>& adapters, std::size_t adapter, bool only_active) {
    std::vector<Choice> out;
    const std::vector<Port>& ports = adapters[adapter].ports;
    for (std::size_t i = 0; i < ports.size(); ++i)
        if (only_active ? ports[i].use == PortUse::active : ports[i].is_rail()) out.push_back({adapter, i});
    return out;
}

// The ports that one element of the variable means; empty: `reason`.
std::vector<Choice> parse(const std::vector<Adapter>& adapters, std::string_view value, std::string& reason) {
    if (value.empty()) {
        reason = "is empty";
        return {};
    }
    const Adapter* adapter = find(adapters, value);
    std::string_view number;
    if (!adapter) {
        const std::size_t colon = value.rfind(':');
        if (colon != std::string_view::npos) {
            adapter = find(adapters, value.substr(0, colon));
            number = value.substr(colon + 1);
        }
        if (!adapter) {
            reason = "is not an adapter of this host";
            return {};
        }
    }
    const auto index = static_cast<std::size_t>(adapter - adapters.data());
    if (!adapter->context && adapter->ports.empty()) {
        reason = "can't be used (" + adapter->trouble + ")";
        return {};
    }
    if (number.data() == nullptr) { // an adapter: its ports that work, and those that may come up
        std::vector<Choice> out = ports_of(adapters, index, false);
        if (out.empty()) reason = "has no InfiniBand or RoCE port";
        return out;
    }
    unsigned port = 0;
    const auto [end, bad] = std::from_chars(number.data(), number.data() + number.size(), port);
    if (bad != std::errc{} || end != number.data() + number.size()) {
        reason = "has no port number behind the colon";
        return {};
    }
    if (port == 0 || port > adapter->ports.size()) {
        reason = "names a port that the adapter doesn't have";
        return {};
    }
    const Port& chosen = adapter->ports[port - 1];
    if (chosen.is_rail()) return {{index, port - 1}};
    reason = chosen.use == PortUse::foreign ? "is an Ethernet port without RoCE" : "can't be queried";
    return {};
}

// With this one, too, there are not too many rails, and not too many adapters.
bool has_room(const std::vector<Choice>& chosen, const Choice& more) {
    std::vector<std::size_t> used{more.adapter};
    for (const Choice& choice : chosen)
        if (std::ranges::find(used, choice.adapter) == used.end()) used.push_back(choice.adapter);
    return chosen.size() < kMaxRails && used.size() <= kMaxDevices;
}

Status choose_named(const std::vector<Adapter>& adapters, const std::vector<std::string>& names,
                    std::vector<Choice>& out, std::string& error) {
    for (const std::string& name : names) {
        const std::string_view value = trimmed(name);
        std::string reason;
        const std::vector<Choice> more = parse(adapters, value, reason);
        for (const Choice& choice : more) {
            if (!reason.empty()) break;
            if (std::ranges::find(out, choice) != out.end())
                reason = "is named twice";
            else if (!has_room(out, choice))
                reason = out.size() == kMaxRails ? "is one rail too many" : "is one adapter too many";
            else
                out.push_back(choice);
        }
        if (!reason.empty()) {
            error = refusal(value, reason, adapters);
            return Status::invalid_param;
        }
    }
    return Status::ok;
}

// It has a LID, so its table of partition keys is there.
bool lacks_key(const Port& port) { return port.is_rail() && !port.rail.ethernet && port.rail.lid && !port.rail.pkey; }

// A partition that no port is a member of. (Some may lack it; Ethernet has none.)
Status check_partition(const std::vector<Adapter>& adapters, std::uint16_t partition, std::string& error) {
    std::string lack;
    for (const Adapter& adapter : adapters)
        for (const Port& port : adapter.ports) {
            if (port.is_rail() && !lacks_key(port) && (port.rail.ethernet || port.rail.lid)) return Status::ok;
            if (lacks_key(port)) lack += (lack.empty() ? "" : ", ") + port.rail.name;
        }
    if (partition == 0 || lack.empty()) return Status::ok;
    char key[8];
    std::snprintf(key, sizeof key, "0x%x", partition);
    error = std::string("UCX_MP_PKEY, UCX_IB_PKEY: no port is a member of partition ") + key + " (" + lack +
            "); allowed: auto, or a key that one of them has";
    return Status::invalid_param;
}

// In the order of discovery; if there are too many, ports that are down are left out first.
Status choose_all(const std::vector<Adapter>& adapters, std::vector<Choice>& out, std::string& error) {
    const auto take = [&](bool only_active) {
        for (std::size_t i = 0; i < adapters.size(); ++i)
            for (const Choice& choice : ports_of(adapters, i, only_active))
                if (has_room(out, choice) && std::ranges::find(out, choice) == out.end()) out.push_back(choice);
    };
    take(true);
    if (!out.empty()) {
        take(false);
        std::ranges::sort(out, {}, [](const Choice& choice) { return std::pair(choice.adapter, choice.port); });
        return Status::ok;
    }
    error = "no active InfiniBand or RoCE port on this host (";
    for (const Adapter& adapter : adapters) {
        if (&adapter != adapters.data()) error += ", ";
        if (!adapter.context)
            error += adapter.name + ": " + adapter.trouble;
        else if (std::ranges::any_of(adapter.ports, lacks_key))
            error += adapter.name + ": no partition key with full membership";
        else if (!ports_of(adapters, static_cast<std::size_t>(&adapter - adapters.data()), false).empty())
            error += adapter.name + ": down";
        else
            error += adapter.name + ": neither InfiniBand nor RoCE";
    }
    error += ")";
    return Status::unreachable;
}

Status make_device(Adapter& adapter, const Rail& rail, Device& out, std::string& error) {
    out.context = std::move(adapter.context);
    out.name = adapter.name;
    if (const int code = query_limits(out)) {
        error = adapter.name + ": " + with_errno("ibv_query_device_ex", code);
        return Status::io_error;
    }
    ibv_pd* const pd = ibv_alloc_pd(out.context.get());
    if (pd) {
        out.pd = {pd, [context = out.context](ibv_pd* p) { (void)ibv_dealloc_pd(p); }}; // before its context
    } else {
        const int code = errno;
        error = adapter.name + ": " + with_errno("ibv_alloc_pd", code);
        return code == ENOMEM ? Status::no_memory : Status::io_error;
    }
    out.events = std::make_shared<DeviceEvents>();
    if (!out.events->start(out.context.get())) {
        error = adapter.name + ": " + with_errno("its event descriptor", errno);
        return Status::io_error;
    }
    // Loading a route takes LIDs; some drivers (rxe) claim to have it on Ethernet.
    if (rail.ethernet) out.has_apm = false;
    out.has_dc = try_dc(out, rail);
    return Status::ok;
}

bool answers(const Device& device) {
    ibv_device_attr attributes{};
    return ibv_query_device(device.context.get(), &attributes) == 0;
}

// Abilities that all adapters have, on the first one.
Device least(const std::vector<Device>& devices) {
    Device out = devices.front();
    for (const Device& device : devices) {
        for (unsigned Device::*const limit :
             {&Device::max_sge, &Device::max_qp_wr, &Device::max_cqe, &Device::max_srq_wr, &Device::max_rd_atomic})
            out.*limit = std::min(out.*limit, device.*limit);
        out.has_dc = out.has_dc && device.has_dc;
        out.has_timestamps = out.has_timestamps && device.has_timestamps;
    }
    return out;
}

} // namespace

bool is_dead(const Device& device) {
    if (!device.events) return false;
    device.events->read();
    return device.events->seen(0).fatal != 0;
}

Status DeviceSet::open(const DeviceConfig& config, DeviceSet& out, std::string& error) {
    std::vector<Adapter> adapters = look_around(config.partition);
    if (adapters.empty()) {
        error = with_errno("no InfiniBand adapter on this host: ibv_get_device_list", errno ? errno : ENODEV);
        return Status::unreachable;
    }
    if (const Status status = check_partition(adapters, config.partition, error); failed(status)) return status;
    std::vector<Choice> chosen;
    const Status choice = config.rails.empty() ? choose_all(adapters, chosen, error)
                                               : choose_named(adapters, config.rails, chosen, error);
    if (failed(choice)) return choice;

    DeviceSet made;
    // Devices in the order of their GUIDs: every process takes the first where one per host
    // must be agreed on. It must be one that works, so those without an active port are last.
    std::vector<bool> idle(adapters.size(), true);
    for (const auto& [adapter, port] : chosen)
        if (adapters[adapter].ports[port].use == PortUse::active) idle[adapter] = false;
    std::vector<Choice> by_guid = chosen;
    std::ranges::sort(by_guid, {}, [&](const Choice& choice) {
        const Adapter& a = adapters[choice.adapter];
        return std::tuple(bool{idle[choice.adapter]}, a.dead, a.guid, choice.adapter);
    });
    std::vector<std::size_t> device_of(adapters.size(), kMaxDevices); // DeviceSet's index by adapter
    std::vector<std::size_t> dead;
    const auto add = [&](std::size_t adapter, Device&& device) {
        device_of[adapter] = made.devices_.size();
        device.index = static_cast<unsigned>(made.devices_.size());
        made.devices_.push_back(std::move(device));
    };
    std::vector<bool> seen(adapters.size(), false);
    for (const auto& [adapter, port] : by_guid) {
        if (seen[adapter]) continue;
        seen[adapter] = true;
        if (adapters[adapter].dead) {
            dead.push_back(adapter);
            continue;
        }
        Device device;
        const bool optional = idle[adapter] && config.rails.empty();
        std::string trouble;
        const Status status = make_device(adapters[adapter], adapters[adapter].ports[port].rail, device, trouble);
        if (is_dead(device) || !answers(device)) { // it died since the last look; what it seems to lack says nothing
            adapters[adapter].trouble = trouble.empty() ? "it has died" : trouble;
            dead.push_back(adapter);
            continue;
        }
        if (optional && (failed(status) || (made.all_have_dc() && !device.has_dc))) continue;
        if (failed(status)) {
            error = trouble;
            return status;
        }
        add(adapter, std::move(device));
    }
    if (made.devices_.empty()) {
        const Adapter& first = adapters[dead.empty() ? chosen.front().adapter : dead.front()];
        error = first.name + ": " + first.trouble;
        return Status::io_error;
    }
    const Device like = least(made.devices_);
    for (const std::size_t adapter : dead) {
        Device device = like;
        device.name = adapters[adapter].name;
        device.guid = adapters[adapter].guid;
        device.events = std::make_shared<DeviceEvents>();
        device.events->start_dead();
        add(adapter, std::move(device));
    }
    for (const auto& [adapter, port] : chosen) {
        if (device_of[adapter] == kMaxDevices) continue;
        Rail rail = std::move(adapters[adapter].ports[port].rail);
        rail.index = static_cast<unsigned>(made.rails_.size());
        rail.device = static_cast<unsigned>(device_of[adapter]);
        rail.active = rail.active && std::ranges::find(dead, adapter) == dead.end();
        made.rails_.push_back(std::move(rail));
    }
    made.registry_ = std::make_shared<Registry>(made.devices_);
    out = std::move(made);
    return Status::ok;
}

bool open_again(const Device& dead, Device& out, std::string& trouble) {
    trouble = dead.name + ": it has died " + std::to_string(dead.life + 1) + " times";
    if (dead.life >= kLastLife) return false;
    trouble = dead.name + ": no adapter with its GUID";
    int count = 0;
    const DeviceList list(ibv_get_device_list(&count));
    for (int i = 0; list && i < count; ++i) {
        if (be64toh(ibv_get_device_guid(list.get()[i])) != dead.guid) continue;
        Adapter adapter = look_at(list.get()[i], 0);
        trouble = adapter.name + ": " + adapter.trouble;
        const auto port = std::ranges::find_if(adapter.ports, &Port::is_rail);
        if (!adapter.context || port == adapter.ports.end()) continue;
        Device made;
        if (failed(make_device(adapter, port->rail, made, trouble))) continue;
        trouble = adapter.name + ": it can do less than the one that has died, or than others";
        if (made.max_sge < dead.max_sge || made.max_qp_wr < dead.max_qp_wr || made.max_cqe < dead.max_cqe ||
            made.max_srq_wr < dead.max_srq_wr || made.max_rd_atomic < dead.max_rd_atomic || made.has_dc < dead.has_dc ||
            made.has_timestamps < dead.has_timestamps)
            continue;
        made.index = dead.index;
        made.life = static_cast<std::uint8_t>(dead.life + 1);
        out = std::move(made);
        trouble.clear();
        return true;
    }
    return false;
}

std::vector<std::string> DeviceSet::active_ports() {
    std::vector<std::string> out;
    for (const Adapter& adapter : look_around())
        for (const Port& port : adapter.ports)
            if (port.use == PortUse::active) out.push_back(port.rail.name);
    return out;
}

bool DeviceSet::has_ports() {
    const std::vector<Adapter> adapters = look_around();
    return std::ranges::any_of(
        adapters, [](const Adapter& adapter) { return std::ranges::any_of(adapter.ports, &Port::is_rail); });
}

bool DeviceSet::all_have_dc() const { return !devices_.empty() && std::ranges::all_of(devices_, &Device::has_dc); }

bool refresh(const Device& device, Rail& rail) {
    Rail now;
    now.partition = rail.partition;
    now.in_use = rail.in_use;
    const PortUse use = query_port(device.context.get(), rail.port, now);
    if (use != PortUse::active && use != PortUse::inactive) return false;
    rail.lid = now.lid;
    rail.lmc = now.lmc;
    rail.subnet_prefix = now.subnet_prefix;
    rail.in_use = now.in_use;
    rail.pkey = now.pkey;
    rail.pkey_index = now.pkey_index;
    rail.port_guid = now.port_guid;
    rail.ethernet = now.ethernet;
    rail.gid = now.gid;
    rail.gid_index = now.gid_index;
    rail.roce_2 = now.roce_2;
    rail.mtu = now.mtu;
    rail.rate = now.rate;
    rail.active = now.active;
    return true;
}

} // namespace ucx_mp::verbs
